"""The objective at the edges of the scores."""

import pytest

from raysweep.metrics.objective import Objective


@pytest.mark.parametrize("reference", [(1.0, 0.5), (0.5, 0.0), (1.0, 0.0)])
def test_a_reference_encoder_at_an_edge_divides_by_nothing(reference: tuple[float, float]) -> None:
    objective = Objective.of(0.5, "similarity", {}, reference)
    at_reference = objective.tchebycheff([reference], 0.5)
    assert objective.tchebycheff([(reference[0], reference[1] - 0.1)], 0.5) < at_reference <= 1
