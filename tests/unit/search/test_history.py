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
        for left_out in points:
            others = np.concatenate([np.empty((0, 2)), *(points[other] for other in points if other != left_out)])
            expected = {tuple(point) for point in others[non_dominated(others)].tolist()}
            assert {tuple(point) for point in front.points_without(left_out).tolist()} == expected
        on_front = {tuple(point) for point in front.points.tolist()}
        owned = [
            {tuple(point) for point in own.tolist()} & on_front for trial, own in points.items() if front.has(trial)
        ]
        assert all(owned) and set().union(*owned) == on_front
