"""The policy that spends the next rung where the front is expected to grow most."""

from hypothesis import given
from hypothesis import strategies as st

from raysweep.growth import Growth, Staircase
from raysweep.pareto import hypervolume
from raysweep.stopping import Standing

points = st.lists(st.tuples(st.integers(-1, 8), st.integers(-1, 8)), max_size=25)


@given(points, points)
def test_a_staircase_adds_up_to_the_exact_hypervolume(
    first: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    stairs = Staircase((0.0, 0.0), first)
    assert sum(stairs.add(point) for point in more) == hypervolume([*first, *more], (0, 0)) - hypervolume(first, (0, 0))
    assert [stairs.add(point) for point in (*first, *more)] == [0] * len([*first, *more])


def rung(policy: Growth, trial: int, seen: int, *pairs: tuple[float, float], may_begin: bool = True) -> bool:
    """Whether the trial goes on at once; trials have four rungs of 10 examples."""
    standing = Standing(pairs, 0.0, hypervolume(pairs, (0.5, 0.2)), pairs)
    return policy.judge(trial, seen, standing, tuple(range(seen + 10, 41, 10)), may_begin) is None


def revive(policy: Growth, may_begin: bool = True) -> int | None:
    """The trial to go on with, which then goes on."""
    trial = policy.revive(may_begin)
    assert policy.revive(may_begin) == trial, "asking changes nothing"
    if trial is not None:
        policy.settle(trial, goes_on=True)
    return trial


def test_somebody_goes_on_as_soon_as_there_is_a_choice_and_it_is_the_best() -> None:
    policy = Growth((0.5, 0.2), None)
    assert not rung(policy, 0, 10, (0.60, 0.45))
    assert revive(policy) is None
    assert not rung(policy, 1, 10, (0.55, 0.45))
    assert revive(policy) is None
    assert not rung(policy, 2, 10, (0.58, 0.45)), "the third: now the best goes on, for there to be something to go by"
    assert revive(policy) == 0, "trial 0"


def test_what_moves_on_is_preferred_to_what_stands_still() -> None:
    policy = Growth((0.5, 0.2), None)
    rung(policy, 0, 10, (0.60, 0.45))
    rung(policy, 1, 10, (0.60, 0.44))
    rung(policy, 2, 10, (0.52, 0.46))
    assert revive(policy) == 0
    assert rung(policy, 0, 20, (0.70, 0.44), may_begin=False), "it moves, and would beat what is there again"
    assert not rung(policy, 0, 30, (0.70, 0.44), may_begin=False), "it has come to a stop; others may move as it did"


def test_with_nothing_new_to_begin_trials_go_on_while_they_promise_more() -> None:
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
            trial = revive(policy, may_begin=False)
    assert seen == {0: 10, 1: 40, 2: 40}


def test_a_trial_that_has_ended_is_not_revived() -> None:
    policy = Growth((0.5, 0.2), None)
    for trial in range(3):
        rung(policy, trial, 10, (0.6, 0.4))
    for trial in (0, 1):
        policy.end(trial)
    assert revive(policy, may_begin=False) == 2
    assert revive(policy, may_begin=False) is None


def test_before_all_are_begun_only_the_best_quarter_at_a_budget_goes_on() -> None:
    """Eight trials, each the better in S the worse in P, that all move alike; two may go on from their first rung."""
    policy = Growth((0.5, 0.2), (0.5, 0.35))
    seen = dict.fromkeys(range(8), 10)

    def goes_on(trial: int) -> bool:
        moved = 0.001 * seen[trial]
        return rung(policy, trial, seen[trial], (0.60 - 0.01 * trial + moved, 0.40 + 0.02 * trial + moved))

    running = [trial for trial in seen if goes_on(trial)]
    while running or (revived := revive(policy)) is not None:
        trial = running.pop() if running else revived
        seen[trial] += 10
        if seen[trial] < 40 and goes_on(trial):
            running.append(trial)
        elif seen[trial] == 40:
            policy.end(trial)
    assert sum(each > 10 for each in seen.values()) == 2
