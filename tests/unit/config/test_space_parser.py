"""Search spaces: the shipped ones, samples from them, and dependencies between parameters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.losses import ALL_LOSSES
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.errors import InputError
from support.paths import SPACES
from support.sweep_files import MINIMAL, read

SHIPPED = sorted(SPACES.glob("*.yaml"))


class Declared:
    """A space as its file declares it, and the choices that were sampled."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        self.space = space
        self.drawn: set[str] = set()

    def check(self, values: Mapping[str, Any]) -> None:
        """Check that the values are those of the parameters that exist under the sampled choices, and are in the space."""
        assert set(values) == set(self._check(self.space, values, ""))

    def _check(
        self, parameters: Mapping[str, Any], values: Mapping[str, Any], path: str
    ) -> list[str]:
        names = list(parameters)
        for name, declared in parameters.items():
            value = values[name]
            if not isinstance(declared, dict):
                assert value == declared and type(value) is type(declared), name
            elif "low" in declared:
                assert declared["low"] <= value <= declared["high"], name
            else:
                choices = declared["choices"]
                assert value in choices, name
                # 10 is sampled as 10.0
                spelling = next(choice for choice in choices if choice == value)
                choice = f"{path}{name}={spelling}"
                self.drawn.add(choice)
                if isinstance(choices, dict):
                    names += self._check(choices[value] or {}, values, f"{choice}.")
        return names

    def all_choices(self) -> set[str]:
        return set(_choices(self.space, ""))


def _choices(parameters: Mapping[str, Any], path: str) -> list[str]:
    paths = []
    for name, declared in parameters.items():
        if isinstance(declared, dict) and "choices" in declared:
            choices = declared["choices"]
            for choice in choices:
                paths.append(f"{path}{name}={choice}")
                if isinstance(choices, dict):
                    paths += _choices(choices[choice] or {}, f"{path}{name}={choice}.")
    return paths


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_samples_are_in_the_shipped_spaces(path: Path) -> None:
    document = Document.read(path)
    space = space_parser.parse(document, configuration.parse(document))
    declared = Declared(document.values["space"])
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(200):
        values = space.draw(study.ask())
        declared.check(values)
        trial = trial_config(values)
        assert TrialConfig(**trial.model_dump()) == trial
        assert {name: trial.flat[name] for name in values} == values
        assert trial.loss_parameters.keys() == ALL_LOSSES[trial.loss].parameters.keys()
    assert declared.drawn == declared.all_choices(), "every choice is sampled"


def test_negatives_belong_to_multiple_negatives(tmp_path: Path) -> None:
    both = (
        "{choices: {triplet: {}, multiple_negatives: {negatives: {choices: [all, other_class]}}}}"
    )
    assert read(tmp_path, MINIMAL, space__loss=both)[1].values("negatives") == [
        "all",
        "other_class",
    ]
    wrong = (
        "{choices: {triplet: {}, multiple_negatives: {negatives: {choices: [all, same_class]}}}}"
    )
    with pytest.raises(
        InputError, match=r"space\.loss\.choices\.multiple_negatives\.negatives.*'same_class'"
    ):
        read(tmp_path, MINIMAL, space__loss=wrong)
    with pytest.raises(InputError, match=r"space\.negatives: the loss triplet has no negatives"):
        read(tmp_path, MINIMAL, space__loss="triplet", space__negatives="all")


def test_the_required_spaces_are_shipped() -> None:
    assert {"demo", "polarity", "published_grid", "adiabatic", "smoke"} <= {
        path.stem for path in SHIPPED
    }


@pytest.mark.parametrize("name", ["published_grid", "published_text"])
def test_published_spaces_have_the_17_published_configurations(name: str) -> None:
    document = Document.read(next(path for path in SHIPPED if path.stem == name))
    config = configuration.parse(document)
    space = space_parser.parse(document, config)
    study = optuna.create_study()
    for parameters in space.grid():
        study.enqueue_trial(parameters)
    trials = [trial_config(space.draw(study.ask())) for _ in space.grid()]
    published = {("triplet", margin) for margin in (0.01, 0.1, 1.0, 5.0, 7.5, 10.0)}
    published |= {
        (loss, m)
        for loss in ("contrastive", "online_contrastive")
        for m in (0.1, 0.25, 0.5, 0.75, 1.0)
    }
    published |= {("multiple_negatives", None)}
    assert {(trial.loss, trial.loss_parameters.get("margin")) for trial in trials} == published
    assert {
        trial.loss_parameters.get("negatives")
        for trial in trials
        if trial.loss == "multiple_negatives"
    } == {"all"}
    assert len(trials) == 17


def test_integer_ranges_are_sampled_as_integers(tmp_path: Path) -> None:
    _, space = read(
        tmp_path,
        MINIMAL.replace(
            "  examples_per_rung", "  batch_size: {low: 16, high: 64}\n  examples_per_rung"
        ),
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    sizes = {trial_config(space.draw(study.ask())).batch_size for _ in range(50)}
    assert all(isinstance(size, int) and 16 <= size <= 64 for size in sizes)
    assert len(sizes) > 10


def test_several_parameters_may_have_equal_choices(tmp_path: Path) -> None:
    nested = "{choices: {true: {weight_decay: {low: 0.0, high: 0.1}}, false: {}}}"
    other = nested.replace("weight_decay", "warmup_fraction")
    _, space = read(
        tmp_path, MINIMAL, space__freeze_output_dense=nested, space__restart_each_rung=other
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        values = space.draw(study.ask())
        trial_config(values)
        assert space.draw(space.suggest_fixed(values)) == values


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"optimizer": "{choices: [adamw, adadelta]}", "momentum": "{choices: [null, 0.9]}"},
            "momentum is 0.9, but the optimizer adadelta",
        ),
        (
            {"schedule": "{choices: [exponential, linear]}", "decay": "{choices: [null, 0.9]}"},
            "decay is missing.*exponential|decay is 0.9, but the schedule linear",
        ),
        (
            {
                "loss": "{choices: {triplet: {}, softmax: {}}}",
                "optimizer": "{choices: {adamw: {label_smoothing: {low: 0.0, high: 0.1}}, sgd: {}}}",
            },
            "label_smoothing is 0.1, but the loss triplet",
        ),
    ],
)
def test_parameters_that_only_some_samples_allow_are_rejected(
    tmp_path: Path, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, MINIMAL, **{f"space__{name}": value for name, value in overrides.items()})


def test_the_default_rung_size_is_ignored_if_every_loss_sets_one(tmp_path: Path) -> None:
    text = MINIMAL.replace("  examples_per_rung: 2048\n", "")
    sizes = "{choices: {softmax: {examples_per_rung: 1000}, triplet: {examples_per_rung: 500}}}"
    read(tmp_path, text, space__loss=sizes, budget__examples_per_trial="3000")
    with pytest.raises(InputError, match=r"budget\.examples_per_trial is 3000; allowed: .*2048"):
        read(
            tmp_path,
            text,
            space__loss=sizes.replace("examples_per_rung: 500", ""),
            budget__examples_per_trial="3000",
        )


def test_a_parameter_that_exists_twice_is_rejected(tmp_path: Path) -> None:
    under_softmax = "{choices: {softmax: {learning_rate: 1e-5}, triplet: {}}}"
    outside = (
        r"space\.loss\.choices\.softmax\.learning_rate is also set outside this choice; allowed: "
    )
    with pytest.raises(InputError, match=outside):
        read(tmp_path, MINIMAL, space__loss=under_softmax)
    nested = "{choices: {true: {weight_decay: {low: 0.0, high: 0.1}}, false: {}}}"
    nested_twice = r"restart_each_rung\.choices\.True\.weight_decay is also set outside this choice"
    with pytest.raises(InputError, match=nested_twice):
        read(tmp_path, MINIMAL, space__freeze_output_dense=nested, space__restart_each_rung=nested)
    deeper = "{choices: {true: {optimizer: {choices: {adamw: {weight_decay: 0.1}, adamax: {}}}}, false: {}}}"
    with pytest.raises(InputError, match=r"adamw\.weight_decay is also set outside this choice"):
        read(tmp_path, MINIMAL, space__freeze_output_dense=deeper, space__weight_decay="0.2")
    under_each = "{choices: {true: {weight_decay: 0.1}, false: {weight_decay: 0.2}}}"
    assert set(
        read(tmp_path, MINIMAL, space__freeze_output_dense=under_each)[1].values("weight_decay")
    ) == {0.1, 0.2}


def test_every_trial_sees_the_same_number_of_examples(tmp_path: Path) -> None:
    text = MINIMAL.replace("examples_per_rung: 2048", "examples_per_rung: {choices: [1024, 2048]}")
    config, space = read(tmp_path, text, budget__examples_per_trial="8192")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = [trial_config(space.draw(study.ask())) for _ in range(20)]
    assert {
        config.budget.rungs_of(trial.examples_per_rung) * trial.examples_per_rung
        for trial in trials
    } == {8192}
    with pytest.raises(InputError, match=r"budget\.examples_per_trial is 5000; allowed: .*1024"):
        read(tmp_path, text, budget__examples_per_trial="5000")


def test_class_parameters_belong_to_softmax(tmp_path: Path) -> None:
    under_softmax = "{choices: {softmax: {label_smoothing: 0.1, consistency_weight: {choices: [0, 1.0]}}, triplet: {}}}"
    space = read(tmp_path, MINIMAL, space__loss=under_softmax)[1]
    assert set(space.values("label_smoothing")) == {0.1}
    both = "{choices: {softmax: {}, triplet: {}}}"
    message = r"space\.label_smoothing: the loss triplet has no label_smoothing; losses with this parameter: softmax"
    for value in ("0.1", "{choices: [0.0, 0.1]}", "{low: 0.0, high: 0.1}"):
        with pytest.raises(InputError, match=message):
            read(tmp_path, MINIMAL, space__loss=both, space__label_smoothing=value)
    read(tmp_path, MINIMAL, space__loss=both, space__label_smoothing="0.0")
    under_triplet = "{choices: {softmax: {}, triplet: {label_smoothing: 0.1}}}"
    with pytest.raises(
        InputError,
        match=r"space\.loss\.choices\.triplet\.label_smoothing: the loss triplet has no label_smoothing",
    ):
        read(tmp_path, MINIMAL, space__loss=under_triplet)


def test_searched_parameters_have_several_values(tmp_path: Path) -> None:
    _, space = read(tmp_path, MINIMAL)
    assert space.searched == ("loss", "margin", "learning_rate", "freezing")
    assert space.logarithmic == ("margin", "learning_rate")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{low: 1e-6, high: .inf, log: true}", "with high inf; allowed: a finite number"),
        ("{low: 1e-3, high: 1e-4, log: true}", "from 0.001 to 0.0001; allowed: low below high"),
    ],
)
def test_invalid_ranges_are_rejected(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"space\.learning_rate is a range {message}"):
        read(tmp_path, MINIMAL.replace("{low: 1e-6, high: 1e-4, log: true}", text))


def test_a_missing_learning_rate_names_the_branch(tmp_path: Path) -> None:
    text = MINIMAL.replace("  learning_rate: {low: 1e-6, high: 1e-4, log: true}\n", "")
    with pytest.raises(
        InputError, match=r"space: learning_rate is missing.*loss is triplet, margin is 0\.01"
    ):
        read(tmp_path, text)


def test_grid_rejects_ranges(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"line \d+: space\.loss\.choices\.triplet\.margin is the range 0.*; allowed with the sampler grid: .*choices",
    ):
        read(tmp_path, "sampler: grid\n" + MINIMAL)


@pytest.mark.parametrize("name", ["front", "front_large", "front_long"])
def test_front_spaces_have_many_points(name: str) -> None:
    document = Document.read(SPACES / f"{name}.yaml")
    values = configuration.parse(document).evaluation.points.class_concat
    assert len(set(values)) == len(values) >= 50
    assert values == sorted(values)


def test_largest_trial_of_a_branch_freezes_only_if_every_value_does(tmp_path: Path) -> None:
    optimizers = "{choices: {adamw: {freeze_output_dense: true}, sgd: {}}}"
    _, space = read(tmp_path, MINIMAL, space__optimizer=optimizers)
    frozen = {(trial.optimizer, trial.freeze_output_dense) for trial in space.largest()}
    assert frozen == {("adamw", True), ("sgd", False)}


@pytest.mark.parametrize(
    ("loss", "batch_size", "place"),
    [
        (
            "batch_all_triplet: {examples_per_class: 5}",
            "8",
            "space.loss.choices.batch_all_triplet.examples_per_class",
        ),
        ("batch_all_triplet: {}", "{choices: [64, 7]}", "space.batch_size"),
        ("batch_all_triplet: {examples_per_class: {low: 2, high: 33}}", "64", "examples_per_class"),
        (
            "batch_all_triplet: {examples_per_class: 8, batch_size: {low: 15, high: 64}}",
            None,
            "examples_per_class",
        ),
    ],
)
def test_groups_of_a_class_fill_at_most_half_a_batch(
    loss: str, batch_size: str | None, place: str, tmp_path: Path
) -> None:
    text = MINIMAL.replace("triplet: {margin: {low: 0.01, high: 1.0, log: true}}", loss)
    if batch_size is not None:
        text += f"  batch_size: {batch_size}\n"
    with pytest.raises(InputError, match=f"{place} is"):
        read(tmp_path, text)
    for old, new in (("5}", "4}"), (" 7]", " 8]"), ("33}", "32}"), ("low: 15", "low: 16")):
        text = text.replace(old, new)
    read(tmp_path, text)
