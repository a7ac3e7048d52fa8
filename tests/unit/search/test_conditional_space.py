"""Conditional spaces: random configurations, and spaces inferred from the trials of a study."""

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.search.conditional_space import Above, OneOf, infer_space, make_conditional_space
from support.landscape import MIXED, RANGES

SPACES = (RANGES, MIXED)
SEEDS = st.integers(0, 1000)
Objective = Callable[[optuna.Trial], float]


@settings(deadline=None)
@given(st.sampled_from(SPACES), SEEDS, st.floats(0.001, 3.0))
def test_samples_are_within_the_space(space: Any, seed: int, size: float) -> None:
    """The sweep's space checks the names of the parameters and that none is missing."""
    space_to_sample, random = make_conditional_space(space), np.random.default_rng(seed)
    known = space_to_sample.draw(random, {})
    for params in (known, space_to_sample.draw_near(known, size, random, {})):
        values = {name.rpartition(".")[2]: value for name, value in params.items()}
        fixed = {"optimizer": "adamw"} if space is MIXED else {}
        assert space.suggest_fixed(values | fixed).params == params


@settings(deadline=None)
@given(st.sampled_from(SPACES), SEEDS)
def test_given_values_are_kept(space: Any, seed: int) -> None:
    space_to_sample, random = make_conditional_space(space), np.random.default_rng(seed)
    known, fixed = space_to_sample.draw(random, {}), space_to_sample.draw(random, {})
    assert space_to_sample.draw_near(known, 0.3, random, fixed) == fixed
    given_rate = space_to_sample.draw_near(known, 0.3, random, {"learning_rate": 2e-5})
    assert given_rate["learning_rate"] == 2e-5


def test_two_values_change_on_average() -> None:
    space_to_sample, random = make_conditional_space(MIXED), np.random.default_rng(0)
    known = space_to_sample.draw(random, {"loss": "a"})
    copies = [space_to_sample.draw_near(known, 0.05, random, {"loss": "a"}) for _ in range(1000)]
    numbers = ["loss=a.margin", "learning_rate"]  # a changed value always differs
    num_changed = np.mean([sum(copy[name] != known[name] for name in numbers) for copy in copies])
    assert num_changed == pytest.approx(2 * 2 / 5, rel=0.1)


def trials_of(objective: Objective, count: int = 40) -> list[optuna.trial.FrozenTrial]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=count)
    return study.trials


def by_choice(trial: optuna.Trial) -> float:
    if trial.suggest_categorical("loss", ["a", "b", "c"]) in ("a", "b"):
        trial.suggest_float("margin", 0, 1)
        if trial.suggest_categorical("kind", [True, False]):
            trial.suggest_int("power", 1, 3)
    return trial.suggest_float("rate", 1e-6, 1e-3, log=True)


def by_number(trial: optuna.Trial) -> float:
    for layer in range(trial.suggest_int("layers", 1, 4)):
        trial.suggest_int(f"units_{layer}", 8, 64, log=True)
    if trial.suggest_float("dropout", 0, 0.5) < 0.2:
        trial.suggest_float("noise", 0, 1)
    return 0.0


def test_conditions_on_choices_are_inferred() -> None:
    space = infer_space(trials_of(by_choice))
    conditions = {parameter.name: parameter.condition for parameter in space.parameters}
    assert conditions["loss"] is conditions["rate"] is None
    assert isinstance(margin := conditions["margin"], OneOf)
    assert (margin.parent, set(margin.choices)) == ("loss", {"a", "b"})
    assert conditions["kind"] == margin or conditions["kind"] == OneOf("loss", ("b", "a"))
    assert conditions["power"] == OneOf("kind", (True,))
    assert not space.unexplained


def test_conditions_on_numbers_are_inferred() -> None:
    space = infer_space(trials_of(by_number))
    conditions = {parameter.name: parameter.condition for parameter in space.parameters}
    assert conditions["units_0"] is None
    for layer in (1, 2, 3):
        assert conditions[f"units_{layer}"] == Above("layers", layer + 0.5)
    assert isinstance(noise := conditions["noise"], Above)
    assert noise.below and noise.parent == "dropout" and noise.limit == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize("objective", [by_choice, by_number])
def test_samples_from_an_inferred_space_match_the_objective(objective: Objective) -> None:
    trials = trials_of(objective, 200)
    space, random = infer_space(trials), np.random.default_rng(0)
    assert all(map(space.explains, trials))
    has_matched = []
    for _ in range(100):
        params = space.draw(random, {})
        trial = optuna.trial.FixedTrial(params)
        try:
            objective(trial)
        except ValueError:  # the objective suggests a parameter that the sample lacks
            has_matched.append(False)
        else:
            has_matched.append(trial.params == params)
    assert np.mean(has_matched) > 0.97  # limits on numbers are only known approximately


def test_parameter_that_depends_on_two_others_is_unexplained() -> None:
    def both(trial: optuna.Trial) -> float:
        first, second = (
            trial.suggest_categorical(name, [True, False]) for name in ("first", "second")
        )
        return trial.suggest_float("x", 0, 1) if first and second else 0.0

    space = infer_space(trials_of(both))
    assert [parameter.name for parameter in space.parameters] == ["first", "second"]
    assert space.unexplained == {"x"}


def test_ranges_that_differ_between_trials_are_joined() -> None:
    def moving(trial: optuna.Trial) -> float:
        high = 1 + trial.number % 3
        return trial.suggest_float("x", -trial.number % 2, high) + trial.suggest_int(
            "n", 2, 2 + 2 * high, step=2
        )

    trials = trials_of(moving, 12)
    space = infer_space(trials)
    assert space.distributions["x"] == optuna.distributions.FloatDistribution(0, 3)
    assert space.distributions["n"].low == 2 and space.distributions["n"].high == 8  # type: ignore[attr-defined]
    assert all(map(space.explains, trials))


def test_trial_with_other_parameters_is_not_explained() -> None:
    trials = trials_of(by_choice)
    only_a = [trial for trial in trials if trial.params["loss"] == "a"]
    others = [trial for trial in trials if trial.params["loss"] != "a"]
    space = infer_space(only_a)
    assert all(map(space.explains, only_a))
    assert not any(space.explains(trial) for trial in others if trial.params["loss"] == "c")
