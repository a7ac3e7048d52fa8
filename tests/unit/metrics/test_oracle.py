"""The oracle front against a naive implementation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.metrics import oracle
from raysweep.metrics.oracle import DEFAULT_BONUSES, oracle_scores


def oracle_front(*args):
    """Return mean P and S, (bonuses, 2)."""
    return oracle_scores(*args).mean(axis=1)


def naive_oracle(cosines, same_label, weights, bonuses):
    rows = []
    for bonus in bonuses:
        polarity = similarity = 0.0
        for query in range(len(cosines)):
            sums = [c + bonus * s for c, s in zip(cosines[query], same_label[query], strict=True)]
            ranked = sorted(range(len(sums)), key=lambda j, sums=sums: (-sums[j], j))[
                : len(weights)
            ]
            polarity += sum(w * same_label[query][j] for w, j in zip(weights, ranked, strict=True))
            similarity += sum(w * cosines[query][j] for w, j in zip(weights, ranked, strict=True))
        rows.append((polarity / len(cosines), similarity / len(cosines)))
    return np.array(rows)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 12), st.data())
def test_oracle_equals_naive_loop(seed, num_queries, num_pool, data):
    k = data.draw(st.integers(1, num_pool))
    rng = np.random.default_rng(seed)
    # ties, also between a bonus and a cosine, are common
    cosines = rng.integers(-4, 5, (num_queries, num_pool)) / 4
    same_label = rng.random((num_queries, num_pool)) < data.draw(
        st.sampled_from([0.0, 0.1, 0.5, 1.0])
    )
    weights = rng.dirichlet(np.ones(k))
    bonuses = (0.0, 0.25, 0.5, 2.0)
    expected = naive_oracle(cosines, same_label, weights, bonuses)
    np.testing.assert_allclose(
        oracle_front(cosines, same_label, weights, bonuses), expected, atol=1e-12
    )


def test_oracle_is_monotone_saturates_and_does_not_depend_on_block_size(monkeypatch):
    rng = np.random.default_rng(1)
    cosines = rng.uniform(-1, 1, (50, 200)).astype(np.float32)
    same_label = rng.random((50, 200)) < 0.5
    weights = np.full(8, 1 / 8)
    front = oracle_front(cosines, same_label, weights)
    assert (np.diff(front[:, 0]) >= 0).all() and (np.diff(front[:, 1]) <= 1e-12).all()
    assert front[-1, 0] == pytest.approx(1) and DEFAULT_BONUSES[-1] == 2
    assert front[0, 1] == pytest.approx(np.sort(cosines, axis=1)[:, -8:].mean())
    monkeypatch.setattr(oracle, "BLOCK_ELEMENTS", 700)
    np.testing.assert_allclose(oracle_front(cosines, same_label, weights), front, rtol=1e-12)


def test_no_retrieval_exceeds_the_oracle():
    rng = np.random.default_rng(2)
    cosines = rng.uniform(-1, 1, (20, 60))
    same_label = rng.random((20, 60)) < 0.4
    bonuses = np.linspace(0, 2, 50)
    front = oracle_front(cosines, same_label, np.full(5, 0.2), tuple(bonuses))
    for _ in range(200):
        ranked = np.argsort(
            -(cosines * rng.random() + same_label * rng.random() + rng.normal(0, 0.2, (20, 60)))
        )[:, :5]
        point = [np.take_along_axis(a, ranked, 1).mean() for a in (same_label, cosines)]
        # A bonus b is the exact maximizer of S + b P.
        assert all(
            s + b * p >= point[1] + b * point[0] - 1e-12
            for b, (p, s) in zip(bonuses, front, strict=True)
        )


def test_oracle_rejects_k_above_pool_size():
    with pytest.raises(ValueError, match=r"k is 4.*\(2, 3\).*allowed"):
        oracle_front(np.zeros((2, 3)), np.zeros((2, 3), dtype=bool), np.full(4, 0.25))


def test_scores_of_a_query_do_not_depend_on_other_queries():
    rng = np.random.default_rng(3)
    cosines, same_label = rng.uniform(-1, 1, (7, 30)), rng.random((7, 30)) < 0.4
    weights = np.array([0.5, 0.3, 0.2])
    scores = oracle_scores(cosines, same_label, weights, (0.0, 0.3))
    assert scores.shape == (2, 7, 2)
    for query in range(7):
        own = oracle_scores(cosines[query, None], same_label[query, None], weights, (0.0, 0.3))
        np.testing.assert_allclose(scores[:, query], own[:, 0], rtol=1e-12)
