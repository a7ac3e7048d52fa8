"""The probe equals scikit-learn and retrieval by explicit composite vectors."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from raysweep.evaluation import probe
from raysweep.evaluation.evaluation_set import EvaluationSet

WIDTH = 6
NUM_QUERIES, NUM_POOL = 15, 80


def unit(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Return embeddings whose classes overlap."""
    vectors = rng.normal(size=(len(labels), WIDTH))
    vectors[np.arange(len(labels)), labels] += 1.0
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def brute_force(queries: np.ndarray, pool: np.ndarray, test: EvaluationSet) -> tuple[float, float]:
    """Return mean P and S, computed query by query from inner products of composite vectors."""
    polarities, similarities = [], []
    for row, query in enumerate(queries):
        products = [float(np.dot(query, sentence)) for sentence in pool]
        nearest = sorted(range(len(pool)), key=lambda at: -products[at])[: test.k]
        polarities.append(
            np.mean([test.pool_labels[at] == test.query_labels[row] for at in nearest])
        )
        similarities.append(
            np.mean([test.reference_queries[row] @ test.reference_pool[at] for at in nearest])
        )
    return float(np.mean(polarities)), float(np.mean(similarities))


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_probe_points_equal_retrieval_with_scikit_learn_probabilities(
    num_classes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, 400)
    embeddings = unit(rng, labels)
    query_labels = rng.integers(0, num_classes, NUM_QUERIES)
    queries, pool = unit(rng, query_labels), embeddings[:NUM_POOL]
    test = EvaluationSet(
        split="test",
        queries=np.arange(NUM_QUERIES),
        pool=np.arange(NUM_POOL),
        query_labels=query_labels,
        pool_labels=labels[:NUM_POOL],
        reference_queries=queries,
        reference_pool=pool,
        k=5,
        rank_weights="uniform",
    )
    regression = LogisticRegression(max_iter=1000).fit(embeddings, labels)
    head = probe.fit(embeddings, labels)
    assert head is not None
    np.testing.assert_allclose(
        head.probabilities(queries), regression.predict_proba(queries), atol=2e-6
    )
    for value, scores in probe.score(head, test, [0.05, 0.7, 3.0]).items():
        sides = []
        for side in (queries, pool):
            doubles = side.astype(np.float64)
            sides.append(np.hstack([doubles, value**0.5 * regression.predict_proba(side)]))
        expected = brute_force(sides[0], sides[1], test)
        means = scores["polarity"].mean(), scores["similarity"].mean()
        # one near-tie may fall either way
        assert means == pytest.approx(expected, abs=1 / (NUM_QUERIES * test.k) + 1e-9)


def test_one_class_has_no_probe() -> None:
    assert probe.fit(np.eye(4, dtype=np.float32), np.ones(4, np.int64)) is None


def test_labels_may_be_any_integers() -> None:
    labels = np.array([3, 7] * 10)
    embeddings = unit(np.random.default_rng(0), labels // 7)
    head = probe.fit(embeddings, labels)
    assert head is not None and head.weight.shape == (2, WIDTH)


def test_probe_is_fitted_on_a_seeded_sample() -> None:
    assert probe.sample(100, 100, 0).tolist() == list(range(100))
    sampled = probe.sample(1000, 100, 0)
    assert len(set(sampled.tolist())) == 100 and sampled.max() >= 500
    assert (np.diff(sampled) > 0).all()
    assert (sampled == probe.sample(1000, 100, 0)).all() and (
        sampled != probe.sample(1000, 100, 1)
    ).any()


@pytest.mark.parametrize(
    ("width", "num_classes", "max_rows"),
    [(384, 2, 100_000), (1024, 128, 100_000), (4096, 2, 32_768), (384, 1024, 16_384)],
)
def test_sample_size_by_width_and_classes(width: int, num_classes: int, max_rows: int) -> None:
    assert probe.max_sentences(width, num_classes) == max_rows
