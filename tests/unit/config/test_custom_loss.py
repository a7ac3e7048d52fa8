"""A user's own loss by its import path: its specification, and one line for everything that is wrong with it."""

import sys
from pathlib import Path

import pytest

from raysweep.config import space_parser, sweep
from raysweep.config.document import Document
from raysweep.config.loss_spec import Choice, Number
from raysweep.config.losses import find_loss, mined_kinds
from raysweep.config.trial import trial_config
from raysweep.errors import InputError
from support.sweep_files import MINIMAL

CODE = '''
from __future__ import annotations

from typing import Literal

import torch


class Base(torch.nn.Module):
    """Pull pairs together.

    More."""

    examples = "positive_pair"

    def __init__(self, model, power: float, steps: int = 2, mode: Literal["a", "b"] = "b", flag: bool = False,
                 other: list | None = None, *, width: int = 0, **options):
        super().__init__()

    def compute_loss_from_embeddings(self, embeddings, labels):
        return embeddings[0].sum()


class Margins(Base):
    examples = "triplet"
    targets = "reference_margin"
    batches = "by_label"

    def __init__(self, model):
        super().__init__(model, 1.0)


class Untyped(Base):
    def __init__(self, model, power):
        super().__init__(model, power)


class Unresolved(Base):
    def __init__(self, model, power: Missing):
        super().__init__(model, power)


class NoExamples(torch.nn.Module):
    def compute_loss(self, batch):
        return batch.columns[0].sum()


class WrongKind(NoExamples):
    examples = "pairs"


class WrongTargets(Base):
    targets = "labels"


class WrongName(Base):
    def __init__(self, model, batch_size: int = 4):
        super().__init__(model, 1.0)


class NoModel(Base):
    def __init__(self):
        super().__init__(None, 1.0)


class KeywordModel(Base):
    def __init__(self, *, model=None):
        super().__init__(model, 1.0)


class InheritedInit(torch.nn.Module):
    examples = "triplet"

    def compute_loss(self, batch):
        return batch.columns[0].sum()


class ManyArguments(Base):
    def __init__(self, *arguments):
        super().__init__(*arguments)

    def compute_loss(self, first, second, third):
        return first


class NoLabels(Margins):
    def compute_loss_from_embeddings(self, embeddings):
        return embeddings[0].sum()


class Static(Margins):
    @staticmethod
    def compute_loss(batch, scale=1.0):
        return batch.columns[0].sum()


class NotALoss:
    examples = "triplet"

    def compute_loss(self, batch): ...


def function(model): ...
'''


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("package")
    (folder / "own_losses.py").write_text(CODE, encoding="utf-8")
    (folder / "broken_losses.py").write_text("import no_such_package", encoding="utf-8")
    sys.path.insert(0, str(folder))


def test_a_class_gives_its_examples_and_parameters() -> None:
    loss = find_loss("own_losses:Base")
    assert (loss.examples, loss.targets, loss.batches, loss.has_head) == (
        "positive_pair",
        "examples",
        "plain",
        False,
    )
    assert loss.description == "Pull pairs together."
    assert list(loss.parameters) == ["power", "steps", "mode", "flag"]
    power, steps, mode, flag = loss.parameters.values()
    assert isinstance(power, Number) and power.default is None and not power.is_integer
    assert isinstance(steps, Number) and steps.default == 2 and steps.is_integer
    assert isinstance(mode, Choice) and list(mode.options) == ["a", "b"] and mode.default == "b"
    assert (
        isinstance(flag, Choice) and list(flag.options) == [True, False] and flag.default is False
    )
    values = {"power": 1.5, "steps": 3, "mode": "a", "flag": True}
    assert loss.arguments(values) == values


def test_a_class_by_label_has_the_size_of_groups() -> None:
    loss = find_loss("own_losses:Margins")
    assert (loss.batches, loss.targets) == ("by_label", "reference_margin")
    assert list(loss.parameters) == ["examples_per_class"]
    assert loss.arguments({"examples_per_class": 4}) == {}
    assert find_loss("own_losses:Static").parameters == loss.parameters
    assert mined_kinds(["own_losses:Margins", "own_losses:Base", "softmax"]) == [
        "positive_pair",
        "triplet",
    ]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:Loss", r"cannot be imported: ModuleNotFoundError: .*no_such_module"),
        ("broken_losses:Loss", r"cannot be imported: ModuleNotFoundError: .*no_such_package"),
        ("own_losses:Missing", r"does not exist: own_losses has no Missing"),
        ("own_losses:function", r"is not a loss; allowed: a torch.nn.Module with"),
        ("own_losses:NotALoss", r"is not a loss; allowed: a torch.nn.Module with"),
        ("own_losses:NoExamples", r"examples is missing; allowed: triplet, .*labeled_sentence"),
        ("own_losses:WrongKind", r"examples is 'pairs'; allowed: triplet, .*labeled_sentence"),
        ("own_losses:WrongTargets", r"targets is 'labels'; allowed: examples, reference_margin"),
        ("own_losses:Untyped", r"parameter power is missing; allowed: float, int, bool"),
        ("own_losses:Unresolved", r"parameters cannot be read: NameError: .*Missing"),
        ("own_losses:NoModel", r"__init__ takes no positional argument; allowed: the model"),
        ("own_losses:KeywordModel", r"__init__ takes no positional argument; allowed: the model"),
        ("own_losses:InheritedInit", r"__init__ takes no positional argument; allowed: the model"),
        (
            "own_losses:ManyArguments",
            r"missing a required argument: 'second'; allowed: compute_loss\(batch\)",
        ),
        (
            "own_losses:NoLabels",
            r"too many positional arguments; allowed: .*\(embeddings, labels\)",
        ),
        ("own_losses:WrongName", r"every trial has a parameter batch_size; required: another name"),
        ("missing", r"'missing'; allowed: triplet, .*package.module:Class"),
        ("own_losses:", r"does not exist: own_losses has no "),
    ],
)
def test_what_is_not_a_loss_is_one_line_with_the_place(
    path: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(MINIMAL, encoding="utf-8")
    document = Document.read(tmp_path / "sweep.yaml")
    document.override("space.loss", repr(path))
    with pytest.raises(InputError, match=message) as caught:
        space_parser.parse(document, sweep.parse(document))
    assert str(caught.value).startswith("--space.loss") and "\n" not in str(caught.value)
    with pytest.raises(InputError, match=message):
        trial_config({"loss": path, "learning_rate": 1e-5})


def test_a_space_searches_the_parameters_of_a_class(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(MINIMAL, encoding="utf-8")
    document = Document.read(tmp_path / "sweep.yaml")

    def parse(parameters: str) -> list[object]:
        document.override(
            "space.loss", f"{{choices: {{triplet: {{}}, 'own_losses:Base': {parameters}}}}}"
        )
        space = space_parser.parse(document, sweep.parse(document))
        return [space.values(name) for name in ("power", "steps", "mode")]

    assert parse(
        "{power: {low: 1, high: 2}, steps: {low: 1, high: 5}, mode: {choices: [a, b]}}"
    ) == [
        [1.0, 2.0],
        [1, 5],
        ["a", "b"],
    ]
    for wrong, message in {
        "{}": "power is missing; the loss own_losses:Base requires it",
        "{power: 1, margin: 0.1}": r"the loss own_losses:Base has no margin",
        "{power: 1, pover: 2}": r"pover: unknown key \(did you mean power",
        "{power: high}": r"power is 'high'; allowed: a number",
        "{power: 1, steps: 1.5}": r"steps is 1.5; allowed: a whole number",
        "{power: 1, mode: c}": r"mode is 'c'; allowed: a, b",
        "{power: 1, flag: 1}": r"flag is 1; allowed: true, false",
        "{power: null}": r"power is null; allowed: a value",
    }.items():
        with pytest.raises(InputError, match=message):
            parse(wrong)


def test_the_identity_has_the_values_of_a_class_that_differ_from_its_defaults() -> None:
    values = {"loss": "own_losses:Base", "learning_rate": 1e-5, "power": 2}
    config = trial_config(values)
    assert config.loss_parameters == {"power": 2.0, "steps": 2, "mode": "b", "flag": False}
    assert config.identity == values
    assert trial_config({**values, "flag": True}).identity == {**values, "flag": True}
    assert trial_config(config.flat) == config
