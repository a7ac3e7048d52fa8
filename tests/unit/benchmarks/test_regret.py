"""Statistics of searches against brute force: every step of a curve, every resample of a few seeds and tables."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import regret
from benchmarks.regret import LEVEL, SHARES
from raysweep.replay.recordings import RecordedRung, RecordedSweep, RecordedTrial
from raysweep.replay.simulator import Step, budget_to

TAIL = (1 - LEVEL) / 2
NUM_DEVIATIONS = 4  # of a share of resamples around its expectation


def table(num_trials: int, budget: int) -> RecordedSweep:
    """Trials of one rung each, of which the last has all the hypervolume, 0.25."""
    trials = []
    for number in range(num_trials):
        edge = 0.5 * (number + 1) / num_trials
        trials.append(RecordedTrial({"x": number}, (RecordedRung(budget, 1.0, ((edge, edge),)),)))
    return RecordedSweep(tuple(trials), (0.0, 0.0))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 0.25)), min_size=1, max_size=8))
def test_the_area_under_the_curve_is_the_mean_regret(rungs: list[tuple[int, float]]) -> None:
    recorded = table(10, 5)
    spent, best, steps, regrets = 0, 0.0, [], []
    for cost, area in rungs:
        regrets += [1 - best / 0.25] * cost  # while it is being spent, the rung has not ended
        spent, best = spent + cost, max(best, area)
        steps.append(Step(spent, 0.0, best))
    regrets += [1 - best / 0.25] * (recorded.total_budget - spent)
    found = regret.curve(recorded, steps)
    assert len(regrets) == 50 and found.area == pytest.approx(np.mean(regrets))
    assert found.budgets == tuple(budget_to(share, recorded, steps) for share in SHARES)


def share_below(values: Sequence[float], end: float) -> tuple[float, float]:
    """Of equally likely values those below an end, and those that are not above it."""
    each = np.asarray(values)
    equal = np.isclose(each, end, rtol=1e-9)
    below = (each < end) & ~equal
    return float(np.mean(below)), float(np.mean(below | equal))


def check_interval(found: tuple[float, float], every: Sequence[float]) -> None:
    """The ends are quantiles of all resamples, within the error of drawing NUM_RESAMPLES of them."""
    error = NUM_DEVIATIONS * (TAIL * (1 - TAIL) / regret.NUM_RESAMPLES) ** 0.5
    for end, quantile in zip(found, (TAIL, 1 - TAIL), strict=True):
        below, up_to = share_below(every, end)
        assert below <= quantile + error and up_to >= quantile - error


def resamples(values: Sequence[float]) -> list[tuple[float, ...]]:
    return list(itertools.product(values, repeat=len(values)))


def test_the_interval_of_a_mean() -> None:
    values = [0.10, 0.13, 0.19, 0.31, 0.42]
    check_interval(
        regret.mean_interval(values, 0), [float(np.mean(each)) for each in resamples(values)]
    )


def test_the_interval_of_a_median_may_be_infinite() -> None:
    values = [3.0, 5.0, 8.0, float("inf"), float("inf")]
    check_interval(
        regret.median_interval(values, 0), [regret.median(each) for each in resamples(values)]
    )
    assert regret.median(values) == 8.0 and regret.median([1.0, float("inf")]) == 1.0


ONE = {
    "ours": [0.10, 0.16, 0.13],
    "a": [0.12, 0.21, 0.2],
    "b": [0.15, 0.14, 0.16],
    "random": [0.01, 0.01, 0.01],
}
OTHER = {"ours": [0.30, 0.22, 0.26], "a": [0.28, 0.40, 0.31]}


def log_ratios(areas: dict[str, list[float]], best: str) -> list[float]:
    """Of every resample of one table's seeds."""
    rows = itertools.product(resamples(areas["ours"]), resamples(areas[best]))
    return [float(np.log(np.mean(own) / np.mean(other))) for own, other in rows]


def test_the_ratio_on_one_recording() -> None:
    found = regret.ratio(ONE, "ours", ["a", "b"], 0)
    assert found.value == pytest.approx(0.13 / 0.15)
    check_interval(found.interval, list(np.exp(log_ratios(ONE, "b"))))
    assert regret.best_of(ONE, ["a", "b"]) == "b"


def test_the_geometric_mean_ratio_resamples_recordings_and_seeds() -> None:
    found = regret.geometric_mean_ratio([ONE, OTHER], "ours", ["a", "b"], 0)
    assert found.value == pytest.approx((0.13 / 0.15 * 0.26 / 0.33) ** 0.5)
    logs = log_ratios(ONE, "b"), log_ratios(OTHER, "a")
    every = [
        (a + b) / 2
        for first, second in itertools.product(logs, repeat=2)
        for a in first
        for b in second
    ]
    check_interval(found.interval, list(np.exp(every)))


def test_a_missing_peer_is_not_the_best() -> None:
    found = regret.geometric_mean_ratio([OTHER], "ours", ["a", "b"], 0)
    assert found.value == pytest.approx(0.26 / 0.33)
