"""The paired bootstrap, compared with one that draws queries one by one; its moments, compared with closed forms."""

import numpy as np
import pytest

from raysweep.uncertainty import resamples
from raysweep.uncertainty.resamples import resampled_means

RNG = np.random.default_rng(0)
SCORES = RNG.uniform(size=(3, 2, 40))


def test_each_resample_is_a_mean_over_drawn_queries() -> None:
    """The means of the queries' indicators are their shares of the resample."""
    num_queries = 7
    indicators = np.eye(num_queries)[:, None, :].repeat(2, axis=1)
    counts = resampled_means(indicators, seed=3, resamples=500) * num_queries
    drawn = counts[:, :, 0]
    np.testing.assert_allclose(drawn, np.rint(drawn), atol=1e-9)
    np.testing.assert_allclose(drawn.sum(axis=1), num_queries)
    scores = RNG.uniform(size=(4, 2, num_queries))
    both = resampled_means(np.concatenate([indicators, scores]), seed=3, resamples=500)
    for row in range(20):
        queries = np.repeat(np.arange(num_queries), np.rint(drawn[row]).astype(int))
        np.testing.assert_allclose(both[row, num_queries:], scores[:, :, queries].mean(axis=-1))


def test_moments_are_those_of_the_mean() -> None:
    means = resampled_means(SCORES, seed=1, resamples=20_000)
    flat = means.reshape(len(means), -1)
    np.testing.assert_allclose(flat.mean(axis=0), SCORES.mean(axis=-1).ravel(), atol=3e-3)
    expected = np.cov(SCORES.reshape(6, -1), ddof=0) / SCORES.shape[-1]
    np.testing.assert_allclose(np.cov(flat.T), expected, atol=1e-4)


def test_resamples_are_determined_by_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    once = resampled_means(SCORES, seed=5, resamples=50)
    assert np.array_equal(once, resampled_means(SCORES, seed=5, resamples=50))
    assert not np.array_equal(once, resampled_means(SCORES, seed=6, resamples=50))
    monkeypatch.setattr(resamples, "_CELLS_AT_ONCE", 100)
    np.testing.assert_allclose(resampled_means(SCORES, seed=5, resamples=50), once, atol=1e-12)


def test_one_query_has_one_resample() -> None:
    np.testing.assert_allclose(
        resampled_means(SCORES[..., :1], seed=0, resamples=4), SCORES[None, :, :, 0].repeat(4, 0)
    )
