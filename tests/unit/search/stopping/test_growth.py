"""The policy that spends the next rung where the front is expected to grow most."""

import math

import numpy as np
import pytest

from raysweep.metrics.pareto import hypervolume
from raysweep.search.stopping.base import Standing
from raysweep.search.stopping.growth import Growth


def rung(policy: Growth, trial: int, seen: int, *pairs: tuple[float, float], may_begin: bool = True) -> bool:
    """Whether the trial goes on at once; trials have four rungs of 10 examples."""
    standing = Standing(pairs, 0.0, hypervolume(pairs, (0.5, 0.2)), pairs)
    return policy.on_rung(trial, seen, standing, tuple(range(seen + 10, 41, 10)), may_begin) is None


def next_to_resume(policy: Growth, may_begin: bool = True) -> int | None:
    """The trial to go on with, which then goes on."""
    trial = policy.next_to_resume(may_begin)
    assert policy.next_to_resume(may_begin) == trial, "asking changes nothing"
    if trial is not None:
        policy.set_running(trial, running=True)
    return trial


def test_somebody_goes_on_as_soon_as_there_is_a_choice_and_it_is_the_best() -> None:
    policy = Growth((0.5, 0.2), None)
    assert not rung(policy, 0, 10, (0.60, 0.45))
    assert next_to_resume(policy) is None
    assert not rung(policy, 1, 10, (0.55, 0.45))
    assert next_to_resume(policy) is None
    assert not rung(policy, 2, 10, (0.58, 0.45)), "the third: now the best goes on, for there to be something to go by"
    assert next_to_resume(policy) == 0, "trial 0"


def test_what_moves_on_is_preferred_to_what_stands_still() -> None:
    policy = Growth((0.5, 0.2), None)
    rung(policy, 0, 10, (0.60, 0.45))
    rung(policy, 1, 10, (0.60, 0.44))
    rung(policy, 2, 10, (0.52, 0.46))
    assert next_to_resume(policy) == 0
    assert rung(policy, 0, 20, (0.70, 0.44), may_begin=False), "it moves, and would beat what is there again"
    assert not rung(policy, 0, 30, (0.70, 0.44), may_begin=False), "it has come to a stop; others may move as it did"


def test_with_nothing_new_to_begin_trials_go_on_while_their_expected_gain_is_higher() -> None:
    """Trials 1 and 2 move as they did; of trial 0, which is dominated and stands still, nothing is expected."""
    policy = Growth((0.5, 0.2), (0.5, 0.4))
    seen = dict.fromkeys(range(3), 10)
    slopes = {0: (0.0, -0.0001), 1: (0.004, -0.002), 2: (0.006, -0.004)}

    def points(trial: int) -> tuple[float, float]:
        return 0.5 + slopes[trial][0] * seen[trial], 0.4 + slopes[trial][1] * seen[trial]

    assert [rung(policy, trial, 10, points(trial)) for trial in seen] == [False, False, True]
    trial: int | None = 2
    while trial is not None:
        seen[trial] += 10
        if not rung(policy, trial, seen[trial], points(trial), may_begin=False):
            trial = next_to_resume(policy, may_begin=False)
    assert seen == {0: 10, 1: 40, 2: 40}


def test_a_trial_that_has_ended_is_not_resumed() -> None:
    policy = Growth((0.5, 0.2), None)
    for trial in range(3):
        rung(policy, trial, 10, (0.6, 0.4))
    for trial in (0, 1):
        policy.end(trial)
    assert next_to_resume(policy, may_begin=False) == 2
    assert next_to_resume(policy, may_begin=False) is None


def test_before_all_are_begun_ever_fewer_go_on() -> None:
    """Of 24 trials 6 from 10, of those 6 * 20 / 30 from 20 and of those 4 * 30 / 40 from 30.

    The second twelve are worthless, so that a new trial has no expected gain; the others are each the better in S the worse in P.
    """
    policy = Growth((0.5, 0.2), (0.5, 0.35))
    seen = dict.fromkeys(range(24), 10)

    def goes_on(trial: int) -> bool:
        moved = 0.001 * seen[trial]
        point = (0.70 - 0.01 * trial + moved, 0.40 + 0.01 * trial + moved) if trial < 12 else (0.4, 0.1)
        return rung(policy, trial, seen[trial], point)

    running = [trial for trial in seen if goes_on(trial)]
    while running or (resumed := next_to_resume(policy)) is not None:
        trial = running.pop() if running else resumed
        seen[trial] += 10
        if goes_on(trial) and seen[trial] < 40:
            running.append(trial)
    assert [sum(each >= budget for each in seen.values()) for budget in (20, 30, 40)] == [6, 4, 3]


@pytest.mark.parametrize("seed", range(4))
def test_the_search_does_not_end_while_a_held_trial_has_a_higher_expected_gain(seed: int) -> None:
    """The first forty trials are weak, and come first where nothing else tells trials apart."""
    draws = np.random.default_rng(seed).uniform(size=(80, 2))
    draws[:40, 0] *= 0.3

    def points(trial: int, seen: int) -> tuple[float, float]:
        quality, place = draws[trial]
        grown = quality * (1 - math.exp(-seen / 15))
        return 0.5 + 0.4 * grown * place, 0.25 + 0.2 * grown * (1 - place)

    policy = Growth((0.5, 0.2), (0.5, 0.25))
    seen: dict[int, int] = {}
    trial: int | None = 0
    while trial is not None:
        seen[trial] = seen.get(trial, 0) + 10
        running = rung(policy, trial, seen[trial], points(trial, seen[trial]), may_begin=len(seen) < 80)
        if seen[trial] == 40:
            policy.end(trial)
        elif running:
            continue
        trial = next_to_resume(policy, len(seen) < 80)
        if trial is None and len(seen) < 80:
            trial = len(seen)
    assert len(seen) == 80
    policy.num_candidates = 1000
    policy.set_running(0, running=True)  # to have the expected gains computed again, now all of them
    policy.set_running(0, running=False)
    assert next_to_resume(policy, may_begin=False) is None


def test_what_is_idle_when_the_last_trial_has_begun_takes_up_only_trials_with_an_expected_gain() -> None:
    """Trials 1 to 6 are far behind, and nothing moves enough to change that."""
    policy = Growth((0.5, 0.2), None)
    for trial in range(8):
        rung(policy, trial, 10, (0.6, 0.45) if trial in (0, 7) else (0.52, 0.25))
    rung(policy, 0, 20, (0.65, 0.46))
    resumed = [next_to_resume(policy, may_begin=False) for _ in range(8)]
    assert 7 in resumed and {*resumed} <= {0, 7, None}


def test_the_search_does_not_end_before_good_trials_without_an_expected_gain_went_on() -> None:
    """Eight trials; the one that went on did not move, so none is expected to. The best two go on all the same."""
    policy = Growth((0.5, 0.2), None)
    for trial in range(8):
        rung(policy, trial, 10, (0.60 + 0.01 * trial, 0.40))
    rung(policy, 7, 20, (0.67, 0.40), may_begin=False)
    assert policy.expected_gains(False)[6] == 0
    resumed = {next_to_resume(policy, may_begin=False) for _ in range(8)}
    assert {6} <= resumed <= {6, 7, None}


def test_where_no_point_meets_the_constraints_trials_go_on_for_the_front_without_them() -> None:
    policy, plain = Growth((0.9, 0.2), None, (0.5, 0.2)), Growth((0.5, 0.2), None)
    for each in (policy, plain):
        for trial in range(4):
            rung(each, trial, 10, (0.6 + 0.01 * trial, 0.4 - 0.01 * trial))
        rung(each, 2, 20, (0.7, 0.39))
    first = next_to_resume(policy, may_begin=False)
    assert first is not None and first == next_to_resume(plain, may_begin=False)
    rung(policy, 2, 30, (0.95, 0.3), may_begin=False)
    assert policy.reference_point == (0.9, 0.2), "as soon as one meets them, it is what meets them that counts"
