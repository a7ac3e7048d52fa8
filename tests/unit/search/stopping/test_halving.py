"""Who goes on: successive halving with revival, on the objective and on the front."""

import numpy as np
import pytest

from raysweep.search.stopping.base import EarlyStopper, Standing
from raysweep.search.stopping.halving import ParetoHalving, SuccessiveHalving


def at(objective: float) -> Standing:
    return Standing(((objective, 0.5),), objective, objective)


def next_to_resume(rule: EarlyStopper) -> int | None:
    """The trial to go on with, which then goes on."""
    trial = rule.next_to_resume(True)
    assert rule.next_to_resume(True) == trial, "asking changes nothing"
    if trial is not None:
        rule.set_running(trial, running=True)
    return trial


def test_milestones_are_the_first_budget_times_powers_of_the_factor() -> None:
    rule = SuccessiveHalving(100, 3)
    assert [budget for budget in range(1, 3000) if rule.is_milestone(budget)] == [100, 300, 900, 2700]


def test_a_trial_is_paused_outside_the_best_share_and_resumed_when_it_comes_to_belong() -> None:
    rule = SuccessiveHalving(10, 2)
    reason = rule.on_rung(0, 10, at(0.5), (40,), True)
    assert reason == "not among the best 1 in 2 of 1 trials (objective 50.00)"
    assert next_to_resume(rule) is None
    assert rule.on_rung(1, 10, at(0.4), (40,), True) is not None
    assert next_to_resume(rule) == 0, "the best of two"
    assert next_to_resume(rule) is None
    assert rule.on_rung(2, 10, at(0.6), (40,), True) is None, "the best of three goes on at once"
    assert rule.on_rung(3, 10, at(0.1), (40,), True) is not None
    assert next_to_resume(rule) is None, "of four, 0.6 and 0.5 went on"
    rule.on_rung(4, 10, at(0.2), (40,), True)
    rule.on_rung(5, 10, at(0.0), (40,), True)
    assert next_to_resume(rule) == 1
    assert next_to_resume(rule) is None


def test_a_trial_that_has_ended_is_a_measure_but_is_not_resumed() -> None:
    rule = SuccessiveHalving(10, 2)
    for trial, value in enumerate((0.9, 0.8, 0.1)):
        rule.on_rung(trial, 10, at(value), (40,), True)
    rule.end(0)
    rule.on_rung(3, 10, at(0.2), (40,), True)
    assert next_to_resume(rule) == 1, "of four the best two, but for the first, which has ended"


def test_budgets_are_never_compared_with_others() -> None:
    rule = SuccessiveHalving(10, 2)
    for trial, value in enumerate((0.9, 0.8, 0.7)):
        rule.on_rung(trial, 10, at(value), (40,), True)
    assert rule.on_rung(0, 15, at(0.0), (40,), True) is None, "between milestones nobody is judged"
    assert "1 trials" in (rule.on_rung(0, 20, at(0.1), (40,), True) or "")


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("kind", [SuccessiveHalving, ParetoHalving])
def test_one_in_the_factor_goes_on_and_they_are_the_best(factor: int, kind: type[SuccessiveHalving]) -> None:
    rule = kind(1, factor)
    values = np.random.default_rng(0).random(300)
    gone_on = set()
    for trial, value in enumerate(values):
        if rule.on_rung(trial, 1, at(value), (40,), True) is None:
            gone_on.add(trial)
        while (resumed := next_to_resume(rule)) is not None:
            gone_on.add(resumed)
    best = set(np.argsort(-values)[: 300 // factor].tolist())
    assert best <= gone_on, "with nothing left to wait for, all that belong have gone on"
    assert len(gone_on) < 300 / factor + 40, "early ones that were overtaken are few"


def test_a_front_of_many_points_ranks_by_its_best_layer_then_by_area() -> None:
    rule = ParetoHalving(1, 2)
    standings = {
        0: Standing(((0.9, 0.2),), 0.0, 0.1),  # an end of the front, whatever its objective
        1: Standing(((0.2, 0.9),), 0.0, 0.2),  # the other
        2: Standing(((0.1, 0.8), (0.8, 0.1)), 0.9, 0.9),  # dominated with both its points
        3: Standing(((0.1, 0.1), (0.6, 0.6)), 0.1, 0.3),  # on the front with one
    }
    assert rule.ranking(standings) == [3, 1, 0, 2]


def test_what_misses_the_constraints_comes_after_all_that_meet_them() -> None:
    """Areas below 0 are what a trial misses. Trial 3 is dominated, and the only one that is."""
    rule = ParetoHalving(10, 2)
    points = [(0.9, 0.15), (0.95, 0.12), (0.7, 0.4), (0.6, 0.3), (0.97, 0.11), (0.99, 0.1)]
    areas = [-0.2, -0.1, 0.02, 0.01, -0.3, -0.4]
    went_on = set()
    for trial, (point, area) in enumerate(zip(points, areas, strict=True)):
        if rule.on_rung(trial, 10, Standing((point,), 0.5, area), (40,), True) is None:
            went_on.add(trial)
        while (resumed := next_to_resume(rule)) is not None:
            went_on.add(resumed)
    assert {2, 3} <= went_on and not {4, 5} & went_on
