"""The median rule, and no rule."""

from raysweep.search.stopping.base import KeepAll, Standing
from raysweep.search.stopping.median import Median


def at(objective: float) -> Standing:
    return Standing(((objective, 0.5),), objective, objective)


def test_the_median_rule_is_viziers() -> None:
    rule = Median(10, least=3)
    assert [rule.on_rung(t, 10, at(v), (40,), True) for t, v in enumerate((0.1, 0.2, 0.3))] == [None, None, None]
    assert rule.on_rung(3, 10, at(0.19), (40,), True) is not None
    assert rule.on_rung(4, 10, at(0.2), (40,), True) is None
    assert rule.on_rung(5, 5, at(0.0), (40,), True) is None, "before the first budget"
    assert rule.next_to_resume(True) is None


def test_without_a_policy_everything_goes_on() -> None:
    assert KeepAll().on_rung(0, 10, at(0.0), (40,), True) is None
