"""The policy ``growth``, and the ranking that it keeps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.metrics.pareto import hypervolume
from raysweep.search.stopping.base import Standing
from raysweep.search.stopping.growth import Growth, Ranking


def rung(
    policy: Growth, trial: int, seen: int, *pairs: tuple[float, float], can_start: bool = True
) -> bool:
    """Record a rung and return whether the trial continues; trials have four rungs of 10 examples."""
    standing = Standing(pairs, 0.0, hypervolume(pairs, (0.5, 0.2)), pairs)
    return policy.on_rung(trial, seen, standing, tuple(range(seen + 10, 41, 10)), can_start) is None


def next_to_resume(policy: Growth, can_start: bool = True) -> int | None:
    """Resume the next trial and return its number."""
    trial = policy.next_to_resume(can_start)
    assert policy.next_to_resume(can_start) == trial, "a query changes no state"
    if trial is not None:
        policy.set_running(trial, running=True)
    return trial


def test_best_of_the_first_three_trials_resumes() -> None:
    policy = Growth((0.5, 0.2), None)
    assert not rung(policy, 0, 10, (0.60, 0.45))
    assert next_to_resume(policy) is None
    assert not rung(policy, 1, 10, (0.55, 0.45))
    assert next_to_resume(policy) is None
    assert not rung(policy, 2, 10, (0.58, 0.45)), (
        "predictions need a trial with two rungs, so the best one resumes"
    )
    assert next_to_resume(policy) == 0


def test_moving_trial_continues_and_idle_trial_pauses() -> None:
    policy = Growth((0.5, 0.2), None)
    rung(policy, 0, 10, (0.60, 0.45))
    rung(policy, 1, 10, (0.60, 0.44))
    rung(policy, 2, 10, (0.52, 0.46))
    assert next_to_resume(policy) == 0
    assert rung(policy, 0, 20, (0.70, 0.44), can_start=False), (
        "it moved and is expected to extend the front"
    )
    assert not rung(policy, 0, 30, (0.70, 0.44), can_start=False), (
        "it has stopped moving, and others may still move"
    )


def test_trials_resume_while_they_have_an_expected_gain() -> None:
    """Trials 1 and 2 keep moving. Trial 0 is dominated and does not move, so it has no expected gain."""
    policy = Growth((0.5, 0.2), (0.5, 0.4))
    seen = dict.fromkeys(range(3), 10)
    slopes = {0: (0.0, -0.0001), 1: (0.004, -0.002), 2: (0.006, -0.004)}

    def points(trial: int) -> tuple[float, float]:
        return 0.5 + slopes[trial][0] * seen[trial], 0.4 + slopes[trial][1] * seen[trial]

    assert [rung(policy, trial, 10, points(trial)) for trial in seen] == [False, False, True]
    trial: int | None = 2
    while trial is not None:
        seen[trial] += 10
        if not rung(policy, trial, seen[trial], points(trial), can_start=False):
            trial = next_to_resume(policy, can_start=False)
    assert seen == {0: 10, 1: 40, 2: 40}


def test_ended_trial_does_not_resume() -> None:
    policy = Growth((0.5, 0.2), None)
    for trial in range(3):
        rung(policy, trial, 10, (0.6, 0.4))
    for trial in (0, 1):
        policy.end(trial)
    assert next_to_resume(policy, can_start=False) == 2
    assert next_to_resume(policy, can_start=False) is None


def test_each_stage_resumes_fewer_trials_while_new_ones_are_left() -> None:
    """Of 24 trials, 6 resume at 10 examples, 6 * 20 / 30 at 20 and 4 * 30 / 40 at 30.

    The last twelve trials are worthless, so that new trials have no expected gain. The others trade P for S.
    """
    policy = Growth((0.5, 0.2), (0.5, 0.35))
    seen = dict.fromkeys(range(24), 10)

    def continues(trial: int) -> bool:
        moved = 0.001 * seen[trial]
        point = (
            (0.70 - 0.01 * trial + moved, 0.40 + 0.01 * trial + moved) if trial < 12 else (0.4, 0.1)
        )
        return rung(policy, trial, seen[trial], point)

    running = [trial for trial in seen if continues(trial)]
    while running or (resumed := next_to_resume(policy)) is not None:
        trial = running.pop() if running else resumed
        seen[trial] += 10
        if continues(trial) and seen[trial] < 40:
            running.append(trial)
    assert [sum(examples >= budget for examples in seen.values()) for budget in (20, 30, 40)] == [
        6,
        4,
        3,
    ]


@pytest.mark.parametrize("seed", range(4))
def test_search_does_not_end_while_a_paused_trial_has_an_expected_gain(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first forty trials are weak, and win ties because they are earlier."""
    samples = np.random.default_rng(seed).uniform(size=(80, 2))
    samples[:40, 0] *= 0.3

    def points(trial: int, seen: int) -> tuple[float, float]:
        quality, place = samples[trial]
        grown = quality * (1 - math.exp(-seen / 15))
        return 0.5 + 0.4 * grown * place, 0.25 + 0.2 * grown * (1 - place)

    policy = Growth((0.5, 0.2), (0.5, 0.25))
    seen: dict[int, int] = {}
    trial: int | None = 0
    while trial is not None:
        seen[trial] = seen.get(trial, 0) + 10
        running = rung(
            policy, trial, seen[trial], points(trial, seen[trial]), can_start=len(seen) < 80
        )
        if seen[trial] == 40:
            policy.end(trial)
        elif running:
            continue
        trial = next_to_resume(policy, len(seen) < 80)
        if trial is None and len(seen) < 80:
            trial = len(seen)
    assert len(seen) == 80
    monkeypatch.setattr("raysweep.search.stopping.growth.NUM_CANDIDATES", 1000)
    policy.set_running(0, running=True)  # recomputes all expected gains
    policy.set_running(0, running=False)
    assert next_to_resume(policy, can_start=False) is None


def test_only_trials_with_an_expected_gain_resume_once_all_have_started() -> None:
    """Trials 1 to 6 are far behind, and no trial moves enough to catch up."""
    policy = Growth((0.5, 0.2), None)
    for trial in range(8):
        rung(policy, trial, 10, (0.6, 0.45) if trial in (0, 7) else (0.52, 0.25))
    rung(policy, 0, 20, (0.65, 0.46))
    resumed = [next_to_resume(policy, can_start=False) for _ in range(8)]
    assert 7 in resumed and {*resumed} <= {0, 7, None}


def test_good_trials_without_an_expected_gain_resume_before_the_search_ends() -> None:
    """The only trial with two rungs did not move, so no trial is expected to. The best two of eight resume."""
    policy = Growth((0.5, 0.2), None)
    for trial in range(8):
        rung(policy, trial, 10, (0.60 + 0.01 * trial, 0.40))
    rung(policy, 7, 20, (0.67, 0.40), can_start=False)
    assert policy.expected_gains(False)[6] == 0
    resumed = {next_to_resume(policy, can_start=False) for _ in range(8)}
    assert {6} <= resumed <= {6, 7, None}


def test_front_without_constraints_counts_until_a_point_is_feasible() -> None:
    policy, plain = Growth((0.9, 0.2), None, (0.5, 0.2)), Growth((0.5, 0.2), None)
    for growth in (policy, plain):
        for trial in range(4):
            rung(growth, trial, 10, (0.6 + 0.01 * trial, 0.4 - 0.01 * trial))
        rung(growth, 2, 20, (0.7, 0.39))
    first = next_to_resume(policy, can_start=False)
    assert first is not None and first == next_to_resume(plain, can_start=False)
    rung(policy, 2, 30, (0.95, 0.3), can_start=False)
    assert policy.reference_point == (0.9, 0.2)


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([-1.0, 0.0, 0.5, 2.0]))))
def test_ranking_is_sorted_by_falling_value_then_number(updates: list[tuple[int, float]]) -> None:
    ranking, values = Ranking(), dict[int, float]()
    for number, value in updates:
        ranking.put(number, value)
        values[number] = value
        assert list(ranking) == sorted(values, key=lambda number: (-values[number], number))
