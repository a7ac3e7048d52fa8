"""Uncertainty of a front, compared with computations resample by resample."""

import dataclasses

import numpy as np
import pytest

from raysweep.metrics.hull import hull_area
from raysweep.metrics.pareto import hypervolume, knee, non_dominated
from raysweep.uncertainty.front import FrontQueryScores, FrontUncertainty, assess
from raysweep.uncertainty.interval import t_quantile
from raysweep.uncertainty.resamples import resampled_means

NUM_QUERIES = 60


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    """Return scores (points, 2, queries) of the reference, three oracle and two floor points, four members and a rival."""
    rng = np.random.default_rng(0)
    true = [(0.6, 0.47), (0.61, 0.47), (0.9, 0.46), (1.0, 0.44), (0.65, 0.465), (0.7, 0.45)]
    true += [(0.7, 0.46), (0.78, 0.45), (0.79, 0.448), (0.85, 0.40), (0.78, 0.449)]
    shared = rng.normal(size=(1, 2, NUM_QUERIES))
    noise = shared + 0.5 * rng.normal(size=(len(true), 2, NUM_QUERIES))
    return np.array(true)[:, :, None] + noise * np.array([[0.1], [0.02]])


MEMBERS = [6, 7, 8, 9]


def front_of(scores: np.ndarray, **others: object) -> FrontQueryScores:
    names = [(row, 1, "plain", None) for row in range(len(scores))]
    defaults: dict[str, object] = {
        "rivals": [*MEMBERS, 10],
        "reference": 0,
        "oracle": [1, 2, 3],
        "floor": [4, 5],
    }
    return FrontQueryScores(names, scores, MEMBERS, **{"feasible": MEMBERS, **defaults, **others})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def uncertainty(scores: np.ndarray) -> FrontUncertainty:
    return assess(front_of(scores), seed=4, resamples=300)


def test_stability_and_knee_are_counted_over_resamples(
    scores: np.ndarray, uncertainty: FrontUncertainty
) -> None:
    resampled = resampled_means(scores, seed=4, resamples=300)
    rivals = [*MEMBERS, 10]
    on_front = [{rivals[index] for index in non_dominated(row[rivals])} for row in resampled]
    knees = []
    for row in resampled:
        front = [MEMBERS[index] for index in non_dominated(row[MEMBERS])]
        knees.append(front[knee(row[front])])
    for member in MEMBERS:
        point = uncertainty.members[member, 1, "plain", None]
        assert point.stability == np.mean([member in front for front in on_front])
        assert point.knee_share == np.mean(np.array(knees) == member)
    assert 0 < uncertainty.members[8, 1, "plain", None].stability < 1
    region = [name[0] for name in uncertainty.knee_region]
    shares = [uncertainty.members[name].knee_share for name in uncertainty.knee_region]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) >= 0.9 > sum(shares[:-1])
    assert set(region) == {
        name[0] for name, point in uncertainty.members.items() if point.in_knee_region
    }
    assert uncertainty.num_compared == 5


def test_areas_are_bias_corrected_normal_intervals(
    scores: np.ndarray, uncertainty: FrontUncertainty
) -> None:
    resampled = resampled_means(scores, seed=4, resamples=300)

    def areas(means: np.ndarray) -> list[float]:
        begin = means[0, 0], means[0, 1] / 2
        front, limit = hypervolume(means[MEMBERS], begin), hull_area(means[[1, 2, 3]], begin)
        return [front, front / limit, front - hypervolume(means[[4, 5]], begin)]

    drawn, estimates = np.array([areas(row) for row in resampled]), areas(scores.mean(axis=-1))
    assert (
        uncertainty.floor is not None
        and uncertainty.hypervolume is not None
        and uncertainty.share is not None
    )
    for interval, values, estimate in zip(
        (uncertainty.hypervolume, uncertainty.share, uncertainty.floor.interval),
        drawn.T,
        estimates,
        strict=True,
    ):
        bias = values.mean() - estimate
        error = np.sqrt(values.var(ddof=1) * NUM_QUERIES / (NUM_QUERIES - 1) + bias**2)
        assert (interval.low + interval.high) / 2 == pytest.approx(estimate - bias)
        assert interval.half_width == pytest.approx(t_quantile(NUM_QUERIES - 1) * error)
    assert uncertainty.floor.gain == pytest.approx(estimates[2])
    assert uncertainty.floor.is_beaten == (uncertainty.floor.interval.low > 0)


def test_missing_scores_yield_no_intervals(scores: np.ndarray) -> None:
    bare = assess(front_of(scores, reference=None), seed=0, resamples=20)
    assert (bare.hypervolume, bare.share, bare.floor) == (None, None, None)
    assert all(point.retention is None for point in bare.members.values())
    only_reference = assess(front_of(scores, oracle=[], floor=[]), seed=0, resamples=20)
    assert only_reference.hypervolume is not None
    assert (only_reference.share, only_reference.floor) == (None, None)
    no_feasible = assess(front_of(scores, feasible=[]), seed=0, resamples=20)
    assert no_feasible.hypervolume is None and no_feasible.knee_region


def test_one_point_and_one_query(scores: np.ndarray) -> None:
    alone = dataclasses.replace(front_of(scores, rivals=[6], feasible=[6]), members=[6])
    uncertainty = assess(alone, seed=0, resamples=20)
    (point,) = uncertainty.members.values()
    assert (point.stability, point.knee_share, point.in_knee_region) == (1, 1, True)
    one_query = assess(front_of(scores[..., :1]), seed=0, resamples=20)
    assert one_query.hypervolume is not None and one_query.hypervolume.low == 0
    assert one_query.hypervolume.high == np.inf
