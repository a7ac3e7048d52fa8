"""Intervals of measures of pairs, on made embeddings whose true values are known from many samples."""

import numpy as np
import pytest

from raysweep.metrics.pairs import average_precision, cosine_divergence
from raysweep.uncertainty import pairs as intervals

NUM_SENTENCES = 60


def sample(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return all pairs of random sentences, whether both have the same class, and cosines before and after tuning."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=NUM_SENTENCES)
    base = rng.normal(size=(NUM_SENTENCES, 6))
    tuned = base.copy()
    tuned[:, 0] += 1.5 * (2 * labels - 1)
    first, second = np.triu_indices(NUM_SENTENCES, 1)
    cosines = []
    for vectors in (base, tuned):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines.append((unit[first] * unit[second]).sum(axis=1))
    return (
        np.stack([first, second], axis=1),
        labels[first] == labels[second],
        cosines[0],
        cosines[1],
    )


def test_width_of_intervals_is_that_of_many_samples() -> None:
    samples = [sample(seed) for seed in range(200)]
    spread = np.std([average_precision(same, after) for _, same, _, after in samples])
    half_widths = []
    for positions, same, _, after in samples[:20]:
        interval = intervals.of_average_precision(positions, same, after)
        assert interval.contains(average_precision(same, after))
        half_widths.append(interval.half_width)
    assert np.mean(half_widths) == pytest.approx(1.645 * spread, rel=0.15)


def test_intervals_of_divergence_contain_it() -> None:
    positions, _, before, after = sample(0)
    divergence = cosine_divergence(before, after)
    interval = intervals.of_divergence(positions, before, after)
    assert 0 < interval.low < divergence < interval.high
    same = intervals.of_divergence(positions, before, before)
    assert (same.low, same.high) == pytest.approx((0, 0))
