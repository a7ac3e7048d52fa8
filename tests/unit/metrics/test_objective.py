"""The objective for reference encoders with extreme scores."""

import pytest

from raysweep.metrics.objective import Objective


@pytest.mark.parametrize("reference", [(1.0, 0.5), (0.5, 0.0), (1.0, 0.0)])
def test_extreme_reference_scores_do_not_divide_by_zero(reference: tuple[float, float]) -> None:
    objective = Objective.of(0.5, "similarity", {}, reference)
    at_reference = objective.tchebycheff([reference], 0.5)
    assert objective.tchebycheff([(reference[0], reference[1] - 0.1)], 0.5) < at_reference <= 1
