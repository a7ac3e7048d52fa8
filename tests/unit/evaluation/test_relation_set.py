"""Scores of trials on retrieval data, against the stock model and brute force over documents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EvaluationConfig, PointsConfig
from raysweep.metrics.retrieval import Scores
from raysweep.prepare.build import prepare_here
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.validation import ValidationExamples
from raysweep.training.workbench import Workbench
from support.encoders import trial
from support.relations import DEV, SWEEP, write_data
from support.resumed_trial import check_resumed_trial
from support.sweep_files import read

POINTS = PointsConfig(concat=[0.5], query_concat=[0.5, 2], interpolate=[0.5])
WHOLE = [row for row in DEV if row["positives"] and row["negatives"]]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Workbench:
    folder = tmp_path_factory.mktemp("relations")
    model = f"{{name: {tiny_encoder}, prompt: {{query: 'query: ', document: ''}}}}"
    prepared = prepare_here(*read(folder, SWEEP, **write_data(folder), model=model))
    return Workbench(prepared, EvaluationConfig(points=POINTS))


def embed(model: SentenceTransformer, texts: list[str], prompt: str) -> np.ndarray:
    embeddings: np.ndarray = model.encode(texts, prompt=prompt, normalize_embeddings=True).astype(
        np.float64
    )
    return embeddings


def expected(
    queries: SentenceTransformer, documents: SentenceTransformer, base: Any, weight: float | None
) -> Iterator:
    """Yield 1 - PND and Spearman's correlation with the base model's cosines for each query with both kinds."""
    for row in WHOLE:
        texts = [*row["positives"], *row["negatives"]]
        query, of_base = (embed(model, [row["query"]], "query: ")[0] for model in (queries, base))
        reference = embed(base, texts, "") @ of_base
        cosines = embed(documents, texts, "") @ query
        values = cosines if weight is None else reference + weight * cosines
        split = len(row["positives"])
        in_order = values[:split, None] > values[None, split:]
        yield in_order.mean(), spearmanr(values, reference).statistic


def check(scores: Scores, expected_scores: Iterator) -> None:
    ranking, agreement = zip(*expected_scores, strict=True)
    np.testing.assert_allclose(scores["ranking"], ranking, atol=1e-9)
    np.testing.assert_allclose(scores["agreement"], agreement, atol=1e-9)


@pytest.mark.parametrize("tower", ["both", "query"])
def test_points_equal_brute_force(bench: Workbench, tower: str) -> None:
    training = Training(trial(tower=tower, learning_rate=3e-3), bench, seed=0, num_rungs=1)
    while not training.rung_is_full:
        training.step()
    points = training.evaluate().points
    kinds = {
        "both": ["plain", "concat", "interpolate"],
        "query": ["query", "query_concat", "query_concat"],
    }
    assert [kind for kind, _ in points] == kinds[tower]
    base = SentenceTransformer(bench.prepared.model["name"], device="cpu")
    documents = bench.model if tower == "both" else base
    for (kind, value), scores in points.items():
        if kind != "interpolate":
            check(scores, expected(bench.model, documents, base, value))
    reference = bench.dev.reference_scores
    check(reference, expected(base, base, base, None))
    assert reference["agreement"].tolist() == [1, 1, 1]
    tuned = next(iter(points.values()))
    assert not np.array_equal(tuned["agreement"], reference["agreement"])


@pytest.mark.parametrize("tower", ["both", "query", "separate"])
def test_every_kind_of_examples_trains_and_resumes(
    bench: Workbench, tower: str, tmp_path: Path
) -> None:
    for loss in ("triplet", "contrastive", "cosine_similarity", "gist"):
        config = trial(loss=loss, tower=tower, idle_rungs=3)
        check_resumed_trial(config, bench, tmp_path / loss)


def test_validation_counts_the_errors_of_dev(bench: Workbench) -> None:
    examples = ValidationExamples.of_relations(bench.dev.pairs, "triplet", (1.0, 0.0))
    queries, positives, negatives = examples.triplets.T
    sentences = bench.prepared.sentences
    ids = (bench.dev.queries[queries], bench.dev.pool[positives], bench.dev.pool[negatives])
    triplets = list(zip(*(sentences.texts(column) for column in ids), strict=True))
    assert sorted(triplets) == sorted(
        (row["query"], positive, negative)
        for row in WHOLE
        for positive in row["positives"]
        for negative in row["negatives"]
    )


def test_a_trial_stops_when_dev_no_longer_improves(bench: Workbench) -> None:
    config = trial(tower="query", learning_rate=1e-12, idle_rungs=2)
    results = list(rungs(config, bench, seed=0, num_rungs=6))
    assert len(results) < 6 and "idle for 2 rungs" in str(results[-1].stop)
