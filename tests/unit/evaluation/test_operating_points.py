"""Operating points equal retrieval by explicit composite vectors."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.sweep import EvaluationConfig, PointsConfig
from raysweep.evaluation import operating_points
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import Encoded, Head
from raysweep.results.query_scores import PackedScores
from raysweep.training import trial as engine
from raysweep.training import workbench
from raysweep.training.trainable import TrainedWeights
from support.encoders import trial


def unit(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    vectors = rng.normal(size=(rows, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(queries: np.ndarray, pool: np.ndarray, dev: EvaluationSet) -> tuple[float, float]:
    polarity = similarity = 0.0
    for i, query in enumerate(queries):
        best = np.argsort(-(pool.astype(np.float64) @ query), kind="stable")[: dev.k]
        polarity += (dev.pool_labels[best] == dev.query_labels[i]).mean()
        similarity += (
            dev.reference_pool[best].astype(np.float64) @ dev.reference_queries[i]
        ).mean()
    return polarity / len(queries), similarity / len(queries)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.floats(0.01, 10.0))
def test_sums_of_cosines_are_inner_products_of_composite_vectors(
    seed: int, classes: int, weight: float
) -> None:
    rng = np.random.default_rng(seed)
    num_queries, num_pool = 9, 60
    ids = np.arange(num_queries + num_pool)
    dev = EvaluationSet(
        split="dev",
        queries=ids[:num_queries],
        pool=ids[num_queries:],
        query_labels=rng.integers(0, classes, num_queries),
        pool_labels=rng.integers(0, classes, num_pool),
        reference_queries=unit(rng, num_queries, 5),
        reference_pool=unit(rng, num_pool, 5),
        k=4,
        rank_weights="uniform",
    )
    head = Head(
        rng.normal(size=(classes, 7)).astype(np.float32),
        rng.normal(size=classes).astype(np.float32),
    )
    queries, pool = unit(rng, num_queries, 7), unit(rng, num_pool, 7)
    encoded = Encoded(queries, pool, head.probabilities(queries), head.probabilities(pool))
    keys = [("plain", None), ("concat", weight), ("class_concat", weight), ("labeled", weight)]
    scores = operating_points.score_encoded(encoded, dev, keys)
    root = weight**0.5
    composites = {
        "plain": (queries, pool),
        "concat": tuple(
            np.hstack([a, root * b])
            for a, b in ((dev.reference_queries, queries), (dev.reference_pool, pool))
        ),
        "class_concat": tuple(
            np.hstack([a, root * b])
            for a, b in (
                (dev.reference_queries, encoded.query_classes),
                (dev.reference_pool, encoded.pool_classes),
            )
        ),
        "labeled": (
            np.hstack([dev.reference_queries, root * encoded.query_classes]),
            np.hstack([dev.reference_pool, root * np.eye(classes)[dev.pool_labels]]),
        ),
    }
    for key in keys:
        expected = brute_force(*composites[key[0]], dev)
        means = (scores[key]["polarity"].mean(), scores[key]["similarity"].mean())
        assert means == pytest.approx(expected, abs=0.02)  # a near-tie may fall either way in fp32
        assert means[1] == pytest.approx(expected[1], abs=2e-3)


@pytest.mark.parametrize("num_queries", [7, 2100])  # in one block, and in several
def test_each_point_retrieves_by_its_own_sum(num_queries: int) -> None:
    """Results are equal to the bit; classes are nearly certain, as for training sentences, so that sums often tie."""
    rng = np.random.default_rng(num_queries)
    ids = np.arange(num_queries + 90)
    dev = EvaluationSet(
        split="dev",
        queries=ids[:num_queries],
        pool=ids[num_queries:],
        query_labels=rng.integers(0, 3, num_queries),
        pool_labels=rng.integers(0, 3, 90),
        reference_queries=np.round(unit(rng, num_queries, 5), 1),
        reference_pool=np.round(unit(rng, 90, 5), 1),
        k=4,
        rank_weights="linear",
    )
    head = Head(3 * rng.normal(size=(3, 7)).astype(np.float32), np.zeros(3, np.float32))
    encoded = Encoded(unit(rng, num_queries, 7), np.round(unit(rng, 90, 7), 1)).under(head)
    values = [*np.geomspace(0.02, 2, 50).tolist(), 0.01]
    keys = (
        [("class_concat", value) for value in values]
        + [("plain", None)]
        + [("concat", value) for value in values]
    )
    scores = operating_points.score_encoded(encoded, dev, keys)
    assert set(scores) == set(keys)
    step = operating_points.retrieval.QUERIES_PER_BLOCK
    for start in range(0, num_queries, step):
        block = slice(start, start + step)
        cosines = dev.reference_queries[block] @ dev.reference_pool.T
        added = {
            "concat": encoded.queries[block] @ encoded.pool.T,
            "class_concat": encoded.query_classes[block] @ encoded.pool_classes.T,
        }
        for kind, value in keys:
            ranked_by = (
                added["concat"] if value is None else cosines + np.float32(value) * added[kind]
            )
            retrieved = np.argsort(-ranked_by, axis=1, kind="stable")[:, :4]
            similarity = np.einsum(
                "qd,qkd->qk",
                dev.reference_queries[block].astype(float),
                dev.reference_pool[retrieved].astype(float),
            )
            polarity = dev.pool_labels[retrieved] == dev.query_labels[block, None]
            np.testing.assert_array_equal(
                scores[kind, value]["similarity"][block], similarity @ dev.weights
            )
            np.testing.assert_array_equal(
                scores[kind, value]["polarity"][block], polarity @ dev.weights
            )


def test_points_equal_retrieval_by_sentence_transformers(tiny_bench: workbench.Workbench) -> None:
    """The expected scores use sentence-transformers' ``encode`` and a head in double precision."""
    config = trial(loss="softmax", learning_rate=3e-4, examples_per_rung=80)
    (result,) = engine.rungs(config, tiny_bench, seed=0, num_rungs=1)
    dev, head, sentences = tiny_bench.dev, tiny_bench.head, tiny_bench.prepared.sentences
    assert head is not None
    sides = []
    for ids, reference in ((dev.queries, dev.reference_queries), (dev.pool, dev.reference_pool)):
        tuned = tiny_bench.model.encode(sentences.texts(ids), normalize_embeddings=True).astype(
            np.float64
        )
        powers = np.exp(8 * tuned @ head.weight.T + head.bias)  # 8 is the root of the width
        sides.append((reference, tuned, powers / powers.sum(axis=1, keepdims=True)))
    for kind, weight in result.points:
        root = 0 if weight is None else weight**0.5
        queries, pool = (
            {"plain": tuned, "concat": np.hstack([reference, root * tuned])}.get(
                kind, np.hstack([reference, root * classes])
            )
            for reference, tuned, classes in sides
        )
        best = np.argsort(-(queries @ pool.T), axis=1, kind="stable")[:, : dev.k]
        polarity = (dev.pool_labels[best] == dev.query_labels[:, None]).mean(axis=1)
        similarity = np.einsum("qd,qkd->q", dev.reference_queries, dev.reference_pool[best]) / dev.k
        point_scores = result.points[kind, weight]
        agree = (np.abs(point_scores["polarity"] - polarity) < 1e-6) & (
            np.abs(point_scores["similarity"] - similarity) < 1e-5
        )
        assert agree.mean() > 0.95, (kind, weight)  # near-ties may fall either way
    assert {kind for kind, _ in result.points} == {"plain", "concat", "class_concat"}


def test_probabilities_equal_softmax_of_torch() -> None:
    from raysweep.training.losses import SoftmaxLoss, logits

    torch.manual_seed(0)
    loss = SoftmaxLoss(torch.nn.Identity(), 8, 3)
    embeddings = torch.nn.functional.normalize(torch.randn(20, 8), dim=-1)
    head = Head(loss.head.weight.detach().numpy(), loss.head.bias.detach().numpy())
    expected = torch.softmax(logits(loss.head, 5 * embeddings), dim=-1)  # of any length
    np.testing.assert_allclose(
        head.probabilities(embeddings.numpy()), expected.detach().numpy(), atol=1e-6
    )


def test_available_points() -> None:
    grid = PointsConfig(concat=[0.5], class_concat=[0.1, 1.0], interpolate=[0.4])
    assert operating_points.wanted(grid, has_head=False) == [
        ("plain", None),
        ("concat", 0.5),
        ("interpolate", 0.4),
    ]
    assert operating_points.wanted(grid, has_head=True) == [
        *(
            ("plain", None),
            ("concat", 0.5),
            ("class_concat", 0.1),
            ("class_concat", 1.0),
            ("interpolate", 0.4),
        )
    ]


def test_labeled_points_are_separate(tiny_prepared: Any) -> None:
    grid = PointsConfig(concat=[], class_concat=[0.2], labeled=[0.2, 1.0])
    assert ("labeled", 0.2) not in operating_points.wanted(grid, has_head=True)
    assert operating_points.wanted_labeled(grid, has_head=True) == [
        ("labeled", 0.2),
        ("labeled", 1.0),
    ]
    assert operating_points.wanted_labeled(grid, has_head=False) == []
    bench = workbench.Workbench(tiny_prepared, EvaluationConfig(k=4, num_pool=60, points=grid))
    config = trial(loss="softmax", learning_rate=3e-4, examples_per_rung=80)
    (result,) = engine.rungs(config, bench, seed=0, num_rungs=1)
    assert set(result.points) == {("plain", None), ("class_concat", 0.2)}
    assert set(result.labeled) == {("labeled", 0.2), ("labeled", 1.0)}
    assert bench.head is not None
    dev = bench.dev
    texts = tiny_prepared.sentences.texts(dev.queries)
    classes = bench.head.probabilities(bench.model.encode(texts, normalize_embeddings=True))
    for query, row in enumerate(classes):
        ranked_by = dev.reference_pool @ dev.reference_queries[query] + row[dev.pool_labels]
        retrieved = np.argsort(-ranked_by, kind="stable")[:4]
        expected = (dev.pool_labels[retrieved] == dev.query_labels[query]).mean()
        # a near-tie
        assert result.labeled["labeled", 1.0]["polarity"][query] == pytest.approx(
            expected, abs=0.26
        )
    width = operating_points.width(("labeled", 1.0), bench.tuned(), dev)
    assert width == dev.reference_pool.shape[1] + classes.shape[1]


def test_interpolation_restores_the_tuned_weights(tiny_prepared: Any) -> None:
    evaluation = EvaluationConfig(
        k=4, num_pool=60, points=PointsConfig(concat=[], interpolate=[0.3])
    )
    bench = workbench.Workbench(tiny_prepared, evaluation)
    (result,) = engine.rungs(trial(learning_rate=1e-2, freezing="emb"), bench, seed=0, num_rungs=1)
    tuned = {name: value.clone() for name, value in bench.model.state_dict().items()}
    between = {
        name: bench.trainable.base[name] + 0.3 * (tuned[name] - bench.trainable.base[name])
        for name in tuned
    }
    bench.model.load_state_dict(between)
    expected = bench.measure(bench.dev, [("plain", None)])["plain", None]
    point_scores = result.points["interpolate", 0.3]
    np.testing.assert_allclose(point_scores["similarity"], expected["similarity"], atol=1e-5)
    assert (point_scores["similarity"] != result.scores["similarity"]).any()
    base = bench.trainable.base
    changed = {name: value for name, value in tuned.items() if not torch.equal(value, base[name])}
    bench.reset(TrainedWeights(changed), bench.head)
    again = bench.measure(bench.dev, [("plain", None), ("interpolate", 0.3)])
    np.testing.assert_array_equal(again["plain", None]["similarity"], result.scores["similarity"])
    np.testing.assert_array_equal(
        again["interpolate", 0.3]["similarity"], point_scores["similarity"]
    )
    for name, value in bench.model.state_dict().items():
        assert torch.equal(value, tuned[name]), name


def test_values_of_points_are_numbers_that_stored_scores_accept() -> None:
    grid = PointsConfig(interpolate=[0.5], truncate=[16])
    names = [(0, 1, *key) for key in operating_points.wanted(grid, has_head=True)]
    zeros = np.zeros((len(names), 3))
    packed = PackedScores.pack(names, {"polarity": zeros, "similarity": zeros})
    assert PackedScores.read(packed.content()).names == tuple(names)
