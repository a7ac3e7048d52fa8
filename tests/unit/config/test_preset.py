"""Requested configurations: complete, partial and invalid ones."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.load import load
from raysweep.config.preset import ParameterError, preset_of
from raysweep.config.space import Choices, Fixed, Range, Space
from raysweep.errors import InputError
from support.landscape import MIXED, RANGES
from support.paths import SPACES
from support.sweep_files import MINIMAL, read

SPACE = Space(
    {
        "loss": Choices({"triplet": {"margin": Range(0.01, 1.0, True, False)}, "softmax": {}}),
        "learning_rate": Range(1e-6, 1e-3, True, False),
        "batch_size": Range(16, 64, False, True),
        "fresh_optimizer": Choices({False: {}, True: {}}),
        "optimizer": Fixed("adamw"),
    }
)


def test_complete_and_partial_configurations() -> None:
    complete = {
        "loss": "triplet",
        "margin": 0.1,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "fresh_optimizer": False,
    }
    preset = preset_of(SPACE, complete)
    assert preset.is_complete
    names = {"loss": "loss", "margin": "loss=triplet.margin"}
    assert preset.params == {names.get(name, name): value for name, value in complete.items()}
    assert preset_of(SPACE, {**complete, "optimizer": "adamw"}).params == preset.params
    partial = preset_of(SPACE, {"loss": "triplet"})
    assert (partial.params, partial.is_complete) == ({"loss": "triplet"}, False)
    assert preset_of(SPACE, {}).params == {}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.data())
def test_samples_and_their_parts_are_presets(seed: int, data: Any) -> None:
    """Compare with :meth:`Space.suggest_fixed`."""
    import optuna

    for space in (RANGES, MIXED):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
        values = space.draw(study.ask())
        preset = preset_of(space, values)
        assert preset.is_complete
        assert preset.params == space.suggest_fixed(values).params
        names = data.draw(st.sets(st.sampled_from(sorted(values)))) | {"loss"}
        part = preset_of(space, {name: value for name, value in values.items() if name in names})
        assert part.params.items() <= preset.params.items()
        free = {name for name in values if not isinstance(space.parameters.get(name), Fixed)}
        assert part.is_complete == (free <= names)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"loss": "hinge"}, "loss is 'hinge'; allowed: triplet, softmax"),
        ({"loss": ["triplet"]}, "loss is ['triplet']; allowed: a plain value"),
        ({"loss": {"choices": ["triplet"]}}, "; allowed: a plain value"),
        ({"loss": "triplet", "margin": 2}, "margin is 2; allowed: a number from 0.01 to 1 (log)"),
        ({"loss": "triplet", "margin": True}, "margin is True; allowed: a number"),
        ({"loss": "triplet", "margin": "0.1"}, "margin is '0.1'; allowed: a number"),
        ({"loss": "triplet", "margin": float("nan")}, "margin is nan; allowed: a number"),
        ({"loss": "triplet", "margin": 10**400}, "margin is 1000"),
        ({"batch_size": 32.5}, "batch_size is 32.5; allowed: a whole number from 16 to 64"),
        ({"fresh_optimizer": 1}, "fresh_optimizer is 1; allowed: False, True"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; allowed: 'adamw'"),
        (
            {"margin": 0.1},
            "margin: exists only under loss: triplet; the configuration is {margin: 0.1}",
        ),
        ({"loss": "softmax", "margin": 0.1}, "margin: exists only under loss: triplet"),
        ({"los": "triplet"}, "los: unknown key (did you mean loss?); allowed: batch_size, "),
        ({"freezing": "none"}, "freezing is not a parameter of this space; allowed: batch_size, "),
    ],
)
def test_values_outside_the_space_are_rejected(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(problem)):
        preset_of(SPACE, values)


def test_first_configurations_are_read(tmp_path: Path) -> None:
    config, _ = read(
        tmp_path, MINIMAL + "first:\n- {loss: triplet, margin: 0.1}\n- loss: contrastive\n"
    )
    assert config.first == [{"loss": "triplet", "margin": 0.1}, {"loss": "contrastive"}]
    config, _ = read(tmp_path, MINIMAL, first="[{loss: cosine_similarity}]")
    assert config.first == [{"loss": "cosine_similarity"}]


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (
            "- loss: triplet\n  margin: 7\n",
            "sweep.yaml: line 15: first[0].margin is 7; allowed: a number from 0.01 to 1",
        ),
        (
            "- loss: triplet\n- los: triplet\n",
            "line 15: first[1].los: unknown key (did you mean loss?)",
        ),
        ("- triplet\n", "line 14: first[0] is 'triplet'; allowed: "),
        ("  loss: triplet\n", "line 13: first is {"),
        (
            2 * "- {loss: cosine_similarity, learning_rate: 1e-5, freezing: none}\n",
            "line 15: first[1] is a duplicate",
        ),
        (
            21 * "- {loss: triplet}\n",
            "line 13: first is a list of 21 configurations; allowed: at most budget.trials (20)",
        ),
    ],
)
def test_invalid_first_configurations_are_rejected(
    tmp_path: Path, first: str, problem: str
) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        read(tmp_path, f"{MINIMAL}first:\n{first}")


def test_first_configurations_outside_an_overridden_space_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"{MINIMAL}first:\n- {{loss: triplet, margin: 0.1}}\n- loss: contrastive\n")
    unaffected = load(path, [("space.learning_rate", "1e-5")])
    assert (len(unaffected.config.first), unaffected.warnings) == (2, ())
    narrowed = load(path, [("space.loss", "{choices: {contrastive: {margin: 0.5}, softmax: {}}}")])
    assert narrowed.config.first == [{"loss": "contrastive"}]
    (line,) = narrowed.warnings
    assert (
        line.startswith("first[0] is left out")
        and "loss is 'triplet'; allowed: contrastive" in line
    )
    with pytest.raises(InputError, match=re.escape("--first[0].loss is 'triplet'; ")):
        load(path, [("space.loss", "cosine_similarity"), ("first", "[{loss: triplet}]")])


def test_repeated_partial_configurations_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"{MINIMAL}first:\n- loss: triplet\n- loss: triplet\n")
    loaded = load(path)
    assert len(loaded.config.first) == 2
    (line,) = loaded.warnings
    assert line.startswith("first[1] repeats")
    path.write_text(f"{MINIMAL}first:\n- loss: triplet\n- {{}}\n")
    with pytest.raises(InputError, match=r"line 15: first\[1\] is empty; allowed: .*loss"):
        load(path)


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_spaces_have_no_first_configurations(path: Path) -> None:
    assert load(path).config.first == []


def test_errors_name_an_override(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape("--first[0].margin is 7; allowed")):
        read(tmp_path, MINIMAL, first="[{loss: triplet, margin: 7}]")
