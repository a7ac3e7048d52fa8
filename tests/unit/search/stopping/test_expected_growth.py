"""The policy that spends the next rung where the front is expected to grow most."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from raysweep.metrics.pareto import hypervolume
from raysweep.search.stopping.base import Standing
from raysweep.search.stopping.expected_growth import MIN_EXPECTED_GAIN, ExpectedGrowth

ORIGIN = (0.5, 0.4)


NUM_RUNGS = 8


LAST = 10 * NUM_RUNGS


def rung(policy: ExpectedGrowth, trial: int, seen: int, *pairs: tuple[float, float], may_begin: bool = True) -> bool:
    """Whether the trial goes on at once; trials have eight rungs of 10 examples."""
    standing = Standing(pairs, 0.0, hypervolume(pairs, (0.5, 0.2)), pairs)
    return policy.on_rung(trial, seen, standing, tuple(range(seen + 10, LAST + 1, 10)), may_begin) is None


def next_to_resume(policy: ExpectedGrowth, may_begin: bool = True) -> int | None:
    """The trial to go on with, which then goes on."""
    trial = policy.next_to_resume(may_begin)
    assert policy.next_to_resume(may_begin) == trial, "asking changes nothing"
    if trial is not None:
        policy.set_running(trial, running=True)
    return trial


Curve = Callable[[int, int], tuple[float, float]]  # a trial's point after so many examples


def play(policy: ExpectedGrowth, curve: Curve, num_trials: int, budget: float = math.inf) -> dict[int, int]:
    """Examples that each of so many trials has seen when nothing is left to do, or so many rungs are spent."""
    seen: dict[int, int] = {}
    trial: int | None = 0
    while trial is not None and sum(seen.values()) < 10 * budget:
        seen[trial] = seen.get(trial, 0) + 10
        running = rung(policy, trial, seen[trial], curve(trial, seen[trial]), may_begin=len(seen) < num_trials)
        if seen[trial] == LAST:
            policy.end(trial)
        elif running:
            continue
        trial = next_to_resume(policy, len(seen) < num_trials)
        if trial is None and len(seen) < num_trials:
            trial = len(seen)
    return seen


def reached(seen: int, time_constant: float = 20.0) -> float:
    return 1 - math.exp(-seen / time_constant)


def test_nobody_goes_on_before_there_is_something_to_compare_with() -> None:
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)
    assert not rung(policy, 0, 10, (0.60, 0.40))
    assert next_to_resume(policy) is None
    assert not rung(policy, 1, 10, (0.55, 0.40))
    assert next_to_resume(policy) is None


def test_what_moves_is_preferred_to_what_stands_still() -> None:
    """Of equal points in the end, after four rungs: one trial was there from its second rung on, the other still moves."""
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)
    for trial in range(6):
        for seen in range(10, LAST + 1, 10):
            rung(policy, trial, seen, (0.5 + 0.1 * reached(seen), 0.4 - 0.03 * reached(seen)))
        policy.end(trial)
    for seen in range(10, 50, 10):
        rung(policy, 6, seen, (0.62, 0.37))
        policy.set_running(6, running=False)
        rung(policy, 7, seen, (0.5 + 0.03 * seen / 10, 0.37))
        policy.set_running(7, running=False)
    promises = policy.promises()
    assert promises[7] > 2 * promises[6]


@pytest.mark.parametrize("place", [0, 4, 9])
def test_a_trial_that_extends_only_an_end_goes_on_while_new_ones_wait(place: int) -> None:
    """Its P is the greatest, and of ten trials most have a larger area of their own."""
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)

    def curve(trial: int, seen: int) -> tuple[float, float]:
        if trial == place:
            return 0.5 + 0.36 * reached(seen), 0.4 - 0.15 * reached(seen)
        quality = 0.3 + 0.06 * (trial % 10)
        return 0.5 + 0.3 * quality * reached(seen), 0.4 - 0.05 * reached(seen)

    def own_area(trial: int) -> float:
        return hypervolume([curve(trial, LAST)], (0.5, 0.2))

    assert sum(own_area(trial) > own_area(place) for trial in range(10)) >= 6
    seen = play(policy, curve, num_trials=1000, budget=100)
    assert seen[place] >= LAST / 2
    others = [seen[trial] for trial in seen if trial not in (place, 9)]
    assert np.median(others) == 10


def test_a_trial_that_has_ended_is_not_revived() -> None:
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)
    for trial in range(4):
        rung(policy, trial, 10, (0.60 + 0.01 * trial, 0.39))
        policy.set_running(trial, running=False)
    for trial in (0, 1, 3):
        policy.end(trial)
    assert next_to_resume(policy, may_begin=False) == 2
    assert next_to_resume(policy, may_begin=False) is None


def test_what_a_failed_trial_was_expected_to_add_may_be_added_by_others() -> None:
    """Two trials score the same. While one of them runs on, the other promises less."""
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)
    for trial in range(6):
        rung(policy, trial, 10, (0.52, 0.39))
    for seen in (10, 20):
        for trial in (6, 7):
            rung(policy, trial, seen, (0.5 + 0.004 * seen, 0.4 - 0.001 * seen), may_begin=False)
            policy.set_running(trial, running=False)
    before = policy.promises()[7]
    policy.set_running(6, running=True)
    meanwhile = policy.promises()[7]
    policy.end(6)
    after = policy.promises()[7]
    assert meanwhile < 0.9 * before
    assert after == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_does_not_end_while_a_held_trial_promises_more(seed: int) -> None:
    """The first twenty trials are weak. When the search has ended, all promises are worked out anew, and none is great."""
    draws = np.random.default_rng(seed).uniform(size=(40, 2))
    draws[:20, 0] *= 0.3

    def curve(trial: int, seen: int) -> tuple[float, float]:
        quality, place = draws[trial]
        return 0.5 + 0.4 * quality * reached(seen) * place, 0.4 - 0.15 * quality * reached(seen) * (1 - place)

    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)
    seen = play(policy, curve, num_trials=40)
    assert len(seen) == 40
    for _ in seen:
        policy.set_running(0, running=True)
        policy.set_running(0, running=False)
    gain_of_area = max(policy.expected_gains().values(), default=0.0)
    assert gain_of_area < 2 * MIN_EXPECTED_GAIN


def test_a_slow_starter_is_found_though_new_trials_never_run_out() -> None:
    """Trial 5 moves only after three rungs, and ends far above the others, which are quick."""
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)

    def curve(trial: int, seen: int) -> tuple[float, float]:
        if trial == 5:
            late = 1 - math.exp(-((seen / 45) ** 3))
            return 0.5 + 0.4 * late, 0.4 - 0.02 * late
        quality = 0.3 + 0.6 * (trial * 0.37 % 1)
        return 0.5 + 0.2 * quality * reached(seen, 12), 0.4 - 0.06 * quality * reached(seen, 12)

    seen = play(policy, curve, num_trials=100_000, budget=300)
    assert seen[5] == LAST
    assert len(seen) > 50


def test_where_no_point_meets_the_constraints_trials_go_on_for_the_front_without_them() -> None:
    policy, plain = ExpectedGrowth((0.9, 0.2), None, (0.5, 0.2)), ExpectedGrowth((0.5, 0.2), None)
    for each in (policy, plain):
        for trial in range(4):
            rung(each, trial, 10, (0.6 + 0.01 * trial, 0.4 - 0.01 * trial))
        rung(each, 2, 20, (0.7, 0.39))
    first = next_to_resume(policy, may_begin=False)
    assert first is not None and first == next_to_resume(plain, may_begin=False)
    rung(policy, 2, 30, (0.95, 0.3), may_begin=False)
    assert policy.reference_point == (0.9, 0.2), "as soon as one meets them, it is what meets them that counts"


@pytest.mark.parametrize("origin", [None, ORIGIN])
@pytest.mark.parametrize("point", [ORIGIN, (0.7, 0.3), (0.1, 0.1)])
def test_where_all_trials_score_the_same_the_search_ends(
    origin: tuple[float, float] | None, point: tuple[float, float]
) -> None:
    seen = play(ExpectedGrowth((0.5, 0.2), origin), lambda trial, seen: point, num_trials=30)
    assert len(seen) == 30


def test_trials_of_one_rung_and_trials_that_fail_at_once() -> None:
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)
    for trial in range(20):
        policy.set_running(trial, running=True)
        if trial % 3 == 0:
            policy.end(trial)
            continue
        standing = Standing(((0.6, 0.4),), 0.5, 0.02, ((0.6, 0.4),))
        policy.on_rung(trial, 10, standing, (), True)
        policy.end(trial)
    assert policy.next_to_resume(True) is None
    assert policy.next_to_resume(False) is None


def _with_a_leader(seen_by_leader: int) -> ExpectedGrowth:
    """Three weak trials and one far above them, which has stood still since its first rung."""
    policy = ExpectedGrowth((0.5, 0.2), ORIGIN)
    for seen in range(10, seen_by_leader + 1, 10):
        rung(policy, 0, seen, (0.8, 0.39))
    for trial in (1, 2, 3):
        rung(policy, trial, 10, (0.52 + 0.01 * trial, 0.39))
    for trial in range(4):
        policy.set_running(trial, running=False)
    return policy


@pytest.mark.parametrize("seen", range(LAST // 2, LAST, 10))
def test_the_trial_of_most_area_is_run_to_its_end_from_half_of_its_rungs_on(seen: int) -> None:
    policy = _with_a_leader(seen)
    assert next_to_resume(policy) == 0


def test_before_it_has_half_of_its_rungs_it_has_to_promise_something() -> None:
    assert next_to_resume(_with_a_leader(LAST // 2 - 10)) != 0


def test_a_leader_that_has_failed_or_is_surpassed_is_not_gone_on_with() -> None:
    failed, surpassed = _with_a_leader(LAST // 2), _with_a_leader(LAST // 2)
    failed.end(0)
    rung(surpassed, 4, 10, (0.9, 0.39))
    surpassed.set_running(4, running=False)
    for policy in (failed, surpassed):
        assert next_to_resume(policy) != 0


def test_a_trial_that_misses_the_constraints_does_not_lead_once_another_meets_them() -> None:
    policy = ExpectedGrowth((0.9, 0.2), ORIGIN, (0.5, 0.2))
    for seen in range(10, LAST // 2 + 1, 10):
        rung(policy, 0, seen, (0.8, 0.39))
    for trial in (1, 2):
        rung(policy, trial, 10, (0.55, 0.39))
    assert next_to_resume(policy) == 0
    policy.set_running(0, running=False)
    rung(policy, 3, 10, (0.95, 0.25))
    policy.set_running(3, running=False)
    assert next_to_resume(policy) != 0
