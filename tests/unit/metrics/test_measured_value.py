"""Relative improvement and verdicts, where lower PND is better."""

import math

import pytest

from raysweep.metrics.measured_value import MeasuredValue, relative_improvement


def test_relative_improvement_of_errors_and_of_scores() -> None:
    assert relative_improvement(0.2, 0.15, lower_is_better=True) == pytest.approx(0.25)
    assert relative_improvement(0.2, 0.15, lower_is_better=False) == pytest.approx(-0.25)
    assert math.isnan(relative_improvement(0.0, 0.1, lower_is_better=True))


@pytest.mark.parametrize(
    ("measure", "low", "high", "verdict"),
    [
        ("MRR", 0.05, 0.15, "improved"),
        ("PND", 0.05, 0.15, "worsened"),
        ("PND", -0.01, 0.2, "unchanged"),
        ("PND", None, None, None),
    ],
)
def test_verdicts_of_scores(
    measure: str, low: float | None, high: float | None, verdict: str | None
) -> None:
    assert MeasuredValue(measure, "cosine", 0.3, 0.2, low, high).verdict == verdict
