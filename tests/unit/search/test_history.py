"""The joint front of trials, compared with the front of all their points."""

import numpy as np
import pytest

from raysweep.metrics.pareto import non_dominated
from raysweep.search.history import JointFront


@pytest.mark.parametrize("seed", range(5))
def test_joint_front_after_replacing_points(seed: int) -> None:
    random = np.random.default_rng(seed)
    front = JointFront()
    points: dict[int, np.ndarray] = {}
    for _ in range(60):
        trial = int(random.integers(8))
        points[trial] = random.uniform(size=(3, 2)).round(1)
        front.put(trial, points[trial])
        all_points = np.concatenate(list(points.values()))
        expected = {tuple(point) for point in all_points[non_dominated(all_points)].tolist()}
        assert {tuple(point) for point in front.points.tolist()} == expected
        for point, owner in zip(front.points.tolist(), front.owners.tolist(), strict=True):
            assert point in points[owner].tolist()
