import pytest

from raysweep.halving import SuccessiveHalving


def test_milestones_are_the_first_budget_times_powers_of_the_factor() -> None:
    rule = SuccessiveHalving(100, 3)
    assert [budget for budget in range(1, 3000) if rule.is_milestone(budget)] == [100, 300, 900, 2700]


def test_a_trial_is_stopped_below_the_best_share_seen_before_it() -> None:
    rule = SuccessiveHalving(10, 2)
    assert rule.judge(10, 0.5) is None, "nothing to compare with"
    assert rule.judge(10, 0.6) is None
    reason = rule.judge(10, 0.54)  # the median of 0.5 and 0.6 is 0.55
    assert reason is not None
    assert "54.00 after 10 examples is below 55.00" in reason
    assert rule.judge(10, 0.54) is None, "now the median of 0.5, 0.54, 0.6"


def test_budgets_are_never_compared_with_others() -> None:
    rule = SuccessiveHalving(10, 2)
    for value in (0.9, 0.8, 0.7):
        rule.judge(10, value)
    assert rule.judge(20, 0.1) is None
    assert rule.judge(15, 0.0) is None, "between milestones nobody is judged"


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_about_one_in_the_factor_goes_on(factor: int) -> None:
    import numpy as np

    rule = SuccessiveHalving(1, factor)
    passed = sum(rule.judge(1, value) is None for value in np.random.default_rng(0).random(3000))
    assert passed / 3000 == pytest.approx(1 / factor, abs=0.03)
