"""Samplers and policies without useful data to learn from."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from raysweep.config.space import Choices, Fixed, Space
from raysweep.config.sweep import Aim
from raysweep.results.types import TrialStatus
from support.landscape import (
    AHEAD,
    ANY_SAMPLER,
    CHOICES,
    NUM_RUNGS,
    POLICIES,
    RANGES,
    Player,
    landscape,
    make,
)

POINT = (0.7, 0.4)
Points = list[tuple[float, float]]
Landscape = Callable[[dict[str, Any], int], Points]

every = pytest.mark.parametrize(
    ("sampler", "policy", "aim"),
    [
        *((sampler, "pareto", "area") for sampler in ANY_SAMPLER),
        *(("mfgp", policy, "area") for policy in POLICIES if policy != "pareto"),
        *(("mfgp", policy, "front") for policy in POLICIES),
    ],
)


def all_equal(values: dict[str, Any], step: int) -> Points:
    return [POINT]


def all_at_the_reference(values: dict[str, Any], step: int) -> Points:
    """Return points with hypervolume 0."""
    return [(0.6, 0.235)]


def some_not_finite(bad: float) -> Landscape:
    """Return a landscape in which one call in three has the score ``bad``."""
    calls = itertools.count()

    def points_of(values: dict[str, Any], step: int) -> Points:
        points = landscape(values, step)
        return [*points, (0.7, bad)] if next(calls) % 3 == 0 else points

    return points_of


def only_the_first(bad: float) -> Landscape:
    """Return a landscape in which all scores except the first are ``bad``."""
    calls = itertools.count()
    return lambda values, step: landscape(values, step) if next(calls) == 0 else [(bad, bad)]


@every
@pytest.mark.parametrize(
    "points_of",
    [
        all_equal,
        all_at_the_reference,
        *(
            pytest.param(some_not_finite(bad), id=f"some {bad}")
            for bad in (math.nan, math.inf, -math.inf)
        ),
        pytest.param(only_the_first(math.nan), id="one value"),
        pytest.param(lambda values, step: [(math.nan, math.nan)], id="all failed"),
    ],
)
def test_each_trial_comes_to_rest_for_any_scores(
    sampler: str, policy: str, aim: Aim, points_of: Landscape
) -> None:
    """A trial with scores that are not finite has failed, and these scores are not recorded."""
    player = Player(make(sampler, policy, aim, num_trials=14), 3, points_of=points_of).play()
    scheduler = player.scheduler
    assert len(scheduler.trials) == 14
    failed = {number for kind, number, _ in player.events if kind == "fail"}
    for number, trial in scheduler.trials.items():
        assert trial.status in ("completed", "paused", "failed")
        assert (trial.status == "failed") == (number in failed)
        space = CHOICES if sampler == "grid" else RANGES
        space.suggest_fixed(trial.values)  # ValueError if outside
        assert all(math.isfinite(score) for point in trial.front for score in point)
    assert all(math.isfinite(score) for point in scheduler.front for score in point)


ONE_POINT = (
    Space({"loss": Fixed("a"), "learning_rate": Fixed(1e-4)}),
    Space({"loss": Choices({"a": {}}), "learning_rate": Choices({1e-4: {}})}),
)


@every
@pytest.mark.parametrize("space", ONE_POINT, ids=["fixed", "one choice"])
def test_space_of_one_point_fills_the_budget(
    sampler: str, policy: str, aim: Aim, space: Space
) -> None:
    scheduler = Player(make(sampler, policy, aim, num_trials=12, space=space), 3).play().scheduler
    assert len(scheduler.trials) == (1 if sampler == "grid" else 12)
    assert all(
        trial.values == {"loss": "a", "learning_rate": 1e-4} for trial in scheduler.trials.values()
    )
    assert all(trial.status in ("completed", "paused") for trial in scheduler.trials.values())


@pytest.mark.parametrize(
    ("sampler", "aim"), [*((sampler, "area") for sampler in ANY_SAMPLER), ("mfgp", "front")]
)
def test_proposals_after_a_thousand_equal_configurations(sampler: str, aim: Aim) -> None:
    equal = {"loss": "a", "margin": 0.1, "learning_rate": 1e-4}
    proposer = make(sampler, "none", aim).proposer
    for number in range(1000):
        proposer.adopt(number, equal)
        proposer.report(number, 10, (POINT,))
        proposer.tell(number, TrialStatus.COMPLETED)
    proposed = [proposer.ask(number) for number in (1000, 1001, 1002)]
    # tpe exploits the only known value; grid proposes all combinations
    if sampler not in (
        "tpe",
        "grid",
    ):
        assert equal not in proposed
    for values in proposed:
        proposer.space.suggest_fixed(values)  # ValueError if outside


@pytest.mark.parametrize("policy", POLICIES)
def test_better_trial_continues_after_many_equal_trials(policy: str) -> None:
    scheduler = make("random", policy, num_trials=301)
    for number in range(300):
        scheduler.propose()
        for step in range(1, NUM_RUNGS + 1):
            if scheduler.rung(number, 10 * step, [POINT], AHEAD[step:]):
                scheduler.pause(number)
                break
        else:
            scheduler.end(number, TrialStatus.COMPLETED)
    scheduler.propose()
    assert scheduler.rung(300, 10, [(0.9, 0.45)], AHEAD[1:]) is None
