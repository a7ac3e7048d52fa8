"""Which trials pause and resume under the policies other than ``growth``."""

import numpy as np
import pytest

from raysweep.search.stopping.base import EarlyStopper, Standing
from raysweep.search.stopping.policies import KeepAll, Median, ParetoHalving, SuccessiveHalving


def standing_with(objective: float) -> Standing:
    return Standing(((objective, 0.5),), objective, objective)


def next_to_resume(rule: EarlyStopper) -> int | None:
    """Resume the next trial and return its number."""
    trial = rule.next_to_resume(True)
    assert rule.next_to_resume(True) == trial, "a query changes no state"
    if trial is not None:
        rule.set_running(trial, running=True)
    return trial


def test_milestones_are_the_first_budget_times_powers_of_the_factor() -> None:
    rule = SuccessiveHalving(100, 3)
    assert [budget for budget in range(1, 3000) if rule.is_milestone(budget)] == [
        100,
        300,
        900,
        2700,
    ]


def test_trial_outside_the_best_share_pauses_and_resumes_once_it_is_among_the_best() -> None:
    rule = SuccessiveHalving(10, 2)
    reason = rule.on_rung(0, 10, standing_with(0.5), (40,), True)
    assert (
        reason is not None
        and "top 1/2 at this budget (trials so far: 1," in reason
        and "50.00" in reason
    )
    assert next_to_resume(rule) is None
    assert rule.on_rung(1, 10, standing_with(0.4), (40,), True) is not None
    assert next_to_resume(rule) == 0, "the best of two"
    assert next_to_resume(rule) is None
    assert rule.on_rung(2, 10, standing_with(0.6), (40,), True) is None, (
        "the best of three continues"
    )
    assert rule.on_rung(3, 10, standing_with(0.1), (40,), True) is not None
    assert next_to_resume(rule) is None, "0.6 and 0.5 are the best two of four and continued"
    rule.on_rung(4, 10, standing_with(0.2), (40,), True)
    rule.on_rung(5, 10, standing_with(0.0), (40,), True)
    assert next_to_resume(rule) == 1
    assert next_to_resume(rule) is None


def test_ended_trial_counts_in_the_ranking_but_does_not_resume() -> None:
    rule = SuccessiveHalving(10, 2)
    for trial, value in enumerate((0.9, 0.8, 0.1)):
        rule.on_rung(trial, 10, standing_with(value), (40,), True)
    rule.end(0)
    rule.on_rung(3, 10, standing_with(0.2), (40,), True)
    assert next_to_resume(rule) == 1, "the best two of four are 0 and 1, and 0 has ended"


def test_trials_are_only_compared_at_equal_budgets() -> None:
    rule = SuccessiveHalving(10, 2)
    for trial, value in enumerate((0.9, 0.8, 0.7)):
        rule.on_rung(trial, 10, standing_with(value), (40,), True)
    assert rule.on_rung(0, 15, standing_with(0.0), (40,), True) is None, (
        "there is no decision between milestones"
    )
    assert "trials so far: 1," in (rule.on_rung(0, 20, standing_with(0.1), (40,), True) or "")


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("kind", [SuccessiveHalving, ParetoHalving])
def test_best_share_of_the_trials_continues(factor: int, kind: type[SuccessiveHalving]) -> None:
    rule = kind(1, factor)
    values = np.random.default_rng(0).random(300)
    continued = set()
    for trial, value in enumerate(values):
        if rule.on_rung(trial, 1, standing_with(value), (40,), True) is None:
            continued.add(trial)
        while (resumed := next_to_resume(rule)) is not None:
            continued.add(resumed)
    best = set(np.argsort(-values)[: 300 // factor].tolist())
    assert best <= continued, "all of the best trials have continued in the end"
    assert len(continued) < 300 / factor + 40, "only a few early trials were overtaken"


def test_fronts_rank_by_best_layer_then_by_area() -> None:
    rule = ParetoHalving(1, 2)
    standings = {
        0: Standing(((0.9, 0.2),), 0.0, 0.1),  # an end of the front
        1: Standing(((0.2, 0.9),), 0.0, 0.2),  # the other end
        2: Standing(((0.1, 0.8), (0.8, 0.1)), 0.9, 0.9),  # both points are dominated
        3: Standing(((0.1, 0.1), (0.6, 0.6)), 0.1, 0.3),  # one point is on the front
    }
    assert rule.ranking(standings) == [3, 1, 0, 2]


def test_infeasible_trials_rank_after_feasible_ones() -> None:
    """Infeasible trials have negative areas. Only trial 3 is dominated."""
    rule = ParetoHalving(10, 2)
    points = [(0.9, 0.15), (0.95, 0.12), (0.7, 0.4), (0.6, 0.3), (0.97, 0.11), (0.99, 0.1)]
    areas = [-0.2, -0.1, 0.02, 0.01, -0.3, -0.4]
    continued = set()
    for trial, (point, area) in enumerate(zip(points, areas, strict=True)):
        if rule.on_rung(trial, 10, Standing((point,), 0.5, area), (40,), True) is None:
            continued.add(trial)
        while (resumed := next_to_resume(rule)) is not None:
            continued.add(resumed)
    assert {2, 3} <= continued and not {4, 5} & continued


def test_median_rule_stops_trials_below_the_median_of_the_others() -> None:
    rule = Median(10)
    values = (0.1, 0.2, 0.3, 0.2)
    reasons = [
        rule.on_rung(trial, 10, standing_with(value), (40,), True)
        for trial, value in enumerate(values)
    ]
    assert reasons == [None, None, None, None], "too few others"
    assert rule.on_rung(4, 10, standing_with(0.19), (40,), True) is not None
    assert rule.on_rung(5, 10, standing_with(0.2), (40,), True) is None
    assert rule.on_rung(6, 5, standing_with(0.0), (40,), True) is None, "before the first budget"
    assert rule.next_to_resume(True) is None


def test_keep_all_continues_every_trial() -> None:
    assert KeepAll().on_rung(0, 10, standing_with(0.0), (40,), True) is None
