"""The sampler ``mfgp`` in plain Optuna studies."""

import math
import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

import raysweep
from raysweep import MultiFidelitySampler
from raysweep.search.history import FRONTS

Objective = Callable[[optuna.Trial], float]


def study_with(seed: int, direction: str = "minimize", **arguments: object) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(
        direction=direction, sampler=MultiFidelitySampler(seed=seed), **arguments
    )  # type: ignore[arg-type]


def conditional(trial: optuna.Trial) -> float:
    """Return a loss with minimum 0 at the polynomial of degree 3 and x = 0.3."""
    kind = trial.suggest_categorical("kind", ["linear", "polynomial", "constant"])
    x = trial.suggest_float("x", 0, 1)
    if kind == "polynomial":
        return (x - 0.3) ** 2 + 0.1 * abs(trial.suggest_int("degree", 1, 5) - 3)
    if kind == "linear":
        return 0.2 + (trial.suggest_float("slope", -10, 10) / 20) ** 2 + (x - 0.3) ** 2
    return 0.5


def best_values(
    objective: Objective, direction: str, count: int, seeds: Sequence[int] = range(5)
) -> list[float]:
    values = []
    for seed in seeds:
        study = study_with(seed, direction)
        study.optimize(objective, n_trials=count)
        values.append(study.best_value)
    return values


def test_minimizes_over_an_undeclared_conditional_space() -> None:
    """Random search has a median of 0.02 after 40 trials."""
    assert np.median(best_values(conditional, "minimize", 40)) < 0.003


def test_maximizing_equals_minimizing_the_negative() -> None:
    minimizing, maximizing = study_with(3, "minimize"), study_with(3, "maximize")
    minimizing.optimize(conditional, n_trials=20)
    maximizing.optimize(lambda trial: -conditional(trial), n_trials=20)
    assert [trial.params for trial in minimizing.trials] == [
        trial.params for trial in maximizing.trials
    ]


def curve(trial: optuna.Trial) -> float:
    """Report a loss that falls fastest for a rate near 1e-2."""
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    gain = math.exp(-((math.log10(rate) + 2) ** 2))
    for step in range(8):
        loss = 1 - gain * (step + 1) / 8
        trial.report(loss, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


@pytest.mark.parametrize(
    "pruner",
    [
        optuna.pruners.MedianPruner(n_startup_trials=2),
        optuna.pruners.HyperbandPruner(1, 8),
        optuna.pruners.NopPruner(),
    ],
)
def test_learns_from_pruned_trials_and_steps_counted_from_0(
    pruner: optuna.pruners.BasePruner,
) -> None:
    """Random search has a median of 0.02 after 24 trials, and a tenth of its rates are within a factor of 2 of the best."""
    rates = []
    for seed in range(3):
        study = study_with(seed, pruner=pruner)
        study.optimize(curve, n_trials=24)
        rates += [trial.params["rate"] for trial in study.trials[-10:]]
    within = np.abs(np.log10(rates) + 2) < math.log10(2)
    assert within.mean() > 0.5


def test_learns_if_all_trials_were_pruned() -> None:
    def pruned(trial: optuna.Trial) -> float:
        trial.report(trial.suggest_float("x", 0, 1), 1)
        raise optuna.TrialPruned

    study = study_with(0)
    study.optimize(pruned, n_trials=20)
    assert np.median([trial.params["x"] for trial in study.trials[-6:]]) < 0.1


def test_failed_and_non_finite_regions_are_avoided() -> None:
    """Small x would have the lowest loss, but every such trial fails in one of four ways."""

    def failing(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        if x > 0.5:
            return x
        if trial.number % 4 == 0:
            raise FloatingPointError
        if trial.number % 4 == 1:
            trial.report(math.nan, 1)
            raise optuna.TrialPruned
        return math.nan if trial.number % 4 == 2 else math.inf

    tried = []
    for seed in range(5):
        study = study_with(seed)
        study.optimize(failing, n_trials=40, catch=FloatingPointError)
        tried.append([trial.params["x"] for trial in study.trials[-10:]])
    assert np.mean(np.array(tried) > 0.5) > 0.7, "random search has 0.5"


def test_learns_from_added_trials() -> None:
    study = study_with(0)
    for x in np.linspace(0, 1, 12):
        added = optuna.trial.create_trial(
            params={"x": x}, distributions={"x": FloatDistribution(0, 1)}, value=(x - 0.7) ** 2
        )
        study.add_trial(added)
    proposed = [study.ask({"x": FloatDistribution(0, 1)}).params["x"] for _ in range(3)]
    assert np.median(np.abs(np.array(proposed) - 0.7)) < 0.05


def test_enqueued_values_are_kept_and_the_others_chosen_by_the_model() -> None:
    """The best y is 0.3 for any x."""

    def bowl(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        return (trial.suggest_float("y", 0, 1) - 0.3) ** 2 + (x - 0.5) ** 2

    distances = []
    for seed in range(5):
        study = study_with(seed)
        study.optimize(bowl, n_trials=25)
        study.enqueue_trial({"x": 0.8})
        study.optimize(bowl, n_trials=1)
        assert study.trials[-1].params["x"] == 0.8
        distances.append(abs(study.trials[-1].params["y"] - 0.3))
    assert np.median(distances) < 0.1, "random values have 0.29"


def test_values_fixed_by_another_sampler_are_kept() -> None:
    study = study_with(0)
    study.optimize(conditional, n_trials=15)
    study.sampler = optuna.samplers.PartialFixedSampler({"x": 0.25}, study.sampler)
    study.optimize(conditional, n_trials=5)
    assert [trial.params["x"] for trial in study.trials[15:]] == [0.25] * 5


def test_concurrent_proposals_differ() -> None:
    """Ten trials that run at once have ten different configurations."""
    study = study_with(0)
    space = {"x": FloatDistribution(0, 1), "kind": CategoricalDistribution(["a", "b"])}
    for _ in range(12):
        trial = study.ask(space)
        study.tell(trial, (trial.params["x"] - 0.5) ** 2 + (trial.params["kind"] == "a"))
    proposed = [study.ask(space).params["x"] for _ in range(10)]
    assert len(set(proposed)) == 10


def test_two_processes_share_a_study(tmp_path: Path) -> None:
    """They share a storage on disk, and each has its own sampler."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    studies = [
        study_with(seed, study_name="shared", storage=url, load_if_exists=True) for seed in (0, 1)
    ]
    for _ in range(10):
        for study in studies:
            study.optimize(conditional, n_trials=1)
    values = [trial.value for trial in studies[0].trials]
    assert len(values) == 20 and min(values) < 0.1
    kinds = [trial.params["kind"] for trial in studies[1].trials[-8:]]
    assert kinds.count("polynomial") >= 4


def test_threads_share_a_study() -> None:
    study = study_with(0)
    study.optimize(conditional, n_trials=24, n_jobs=4)
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)
    assert len({str(trial.params) for trial in study.trials}) == 24


def test_seed_determines_proposals_until_reseeded() -> None:
    def params(seed: int, *, reseeded: bool = False) -> list[dict[str, object]]:
        study = study_with(seed)
        if reseeded:
            study.sampler.reseed_rng()
        study.optimize(conditional, n_trials=14)
        return [trial.params for trial in study.trials]

    assert params(1) == params(1) != params(2)
    assert params(1, reseeded=True) != params(1)


def test_pickled_sampler_continues_identically() -> None:
    study = study_with(0, study_name="shared")
    study.optimize(conditional, n_trials=14)
    copied_sampler = pickle.loads(pickle.dumps(study.sampler))
    copied_study = optuna.create_study(study_name="shared", sampler=copied_sampler)
    copied_study.add_trials(study.trials)
    study.optimize(conditional, n_trials=3)
    copied_study.optimize(conditional, n_trials=3)
    assert [trial.params for trial in study.trials] == [
        trial.params for trial in copied_study.trials
    ]


def test_sampler_serves_several_studies_in_turn() -> None:
    sampler = MultiFidelitySampler(seed=0)
    first = optuna.create_study(sampler=sampler)
    first.optimize(conditional, n_trials=12)
    second = optuna.create_study(sampler=sampler, direction="maximize")
    second.optimize(lambda trial: trial.suggest_float("z", 0, 1), n_trials=20)
    assert second.best_value > 0.95


def test_new_study_with_the_same_name_starts_from_scratch() -> None:
    sampler = MultiFidelitySampler(seed=0)
    for optimum in (0.2, 0.8):
        study = optuna.create_study(sampler=sampler, study_name="one")

        def distance(trial: optuna.Trial, optimum: float = optimum) -> float:
            return abs(trial.suggest_float("x", 0, 1) - optimum)

        study.optimize(distance, n_trials=20)
        last = [trial.params["x"] for trial in study.trials[-6:]]
        assert abs(np.median(last) - optimum) < 0.1


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_may_be_lists_with_conditional_parameters() -> None:
    """Optuna accepts them with a warning."""

    def layered(trial: optuna.Trial) -> float:
        layers = trial.suggest_categorical("layers", [[32], [64, 32]])
        x = trial.suggest_float("x", 0, 1) if len(layers) == 2 else 1.0
        return abs(x - 0.3)

    study = study_with(0)
    study.optimize(layered, n_trials=30)
    assert study.best_value < 0.05


def test_trials_that_fail_without_parameters_are_ignored() -> None:
    """The optimum is in the middle, where trials without parameters would be if they counted as poor ones."""

    def flaky(trial: optuna.Trial) -> float:
        if trial.number % 2:
            raise OSError("no disk")
        return sum((trial.suggest_float(name, 0, 1) - 0.5) ** 2 for name in "xy")

    bests = []
    for seed in range(3):
        study = study_with(seed)
        study.optimize(flaky, n_trials=60, catch=OSError)
        bests.append(study.best_value)
    assert np.median(bests) < 0.02


def test_parameter_that_appears_later_is_learned() -> None:
    """The objective has one parameter until trial 10, and two from then on."""

    def growing(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        return (x - 0.5) ** 2 + (
            (trial.suggest_float("y", 0, 1) - 0.2) ** 2 if trial.number >= 10 else 1
        )

    study = study_with(0)
    study.optimize(growing, n_trials=45)
    last = [trial.params["y"] for trial in study.trials[-8:]]
    assert abs(np.median(last) - 0.2) < 0.15


def test_several_objectives_are_rejected() -> None:
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=MultiFidelitySampler(seed=0)
    )
    with pytest.raises(ValueError, match="multi-objective"):
        study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=1)


def test_sampler_is_part_of_the_public_api() -> None:
    assert "MultiFidelitySampler" in raysweep.__all__
    assert issubclass(MultiFidelitySampler, optuna.samplers.BaseSampler)


@pytest.mark.parametrize(
    "point", [(1,), (math.nan, 0), (0, math.inf), (1, 2, 3), "ab", 1.0, (None, 0)], ids=repr
)
def test_invalid_reference_point_is_rejected(point: Any) -> None:
    with pytest.raises(ValueError, match="reference_point is .*allowed: .*finite"):
        MultiFidelitySampler(reference_point=point)


def test_invalid_space_is_rejected() -> None:
    space: Any = {"x": 1}
    with pytest.raises(ValueError, match=r"space is \{'x': 1\}.*allowed: .*ConditionalSpace"):
        MultiFidelitySampler(space)


def add_trials_with_points(study: optuna.Study, name: str, points: Any, count: int) -> None:
    for number in range(count):
        study.add_trial(
            optuna.trial.create_trial(
                value=1.0,
                params={"x": number / count},
                distributions={"x": FloatDistribution(0, 1)},
                intermediate_values={1: 1.0},
                user_attrs={name: points},
            )
        )


@pytest.mark.parametrize(
    "points",
    [
        [[1, 2]],
        {1: [[0.1]]},
        {1: [[1, 2, 3], [4, 5, 6]]},
        {1: [1, 2, 3, 4]},
        {1: [["a", "b"]]},
        {"one": [[1, 2]]},
        {1: 0.5},
    ],
    ids=repr,
)
def test_invalid_points_are_rejected(points: Any) -> None:
    study = optuna.create_study(
        direction="maximize", sampler=MultiFidelitySampler(seed=0, reference_point=(0, 0))
    )
    add_trials_with_points(study, FRONTS, points, 1)
    with pytest.raises(ValueError, match=r"trial 0: 'raysweep:fronts' is .*allowed: .*points"):
        study.ask().suggest_float("x", 0, 1)


def test_missing_points_cause_one_warning() -> None:
    study = optuna.create_study(
        direction="maximize", sampler=MultiFidelitySampler(seed=0, reference_point=(0, 0))
    )
    add_trials_with_points(study, "raysweep:front", {1: [[0.5, 0.5]]}, 5)
    with pytest.warns(UserWarning, match="raysweep:fronts.*none of 5"):
        study.ask().suggest_float("x", 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.ask().suggest_float("x", 0, 1)
