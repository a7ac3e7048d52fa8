"""Trials with one prompt for queries and another for documents, against the stock model with both prompts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from raysweep.config.losses import LOSSES
from raysweep.config.sweep import EvaluationConfig, PointsConfig
from raysweep.data.prepared import Prepared
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.validation import ValidationExamples
from raysweep.training.workbench import Workbench
from support.encoders import prepare_demo, trial
from support.resumed_trial import check_resumed_trial

PROMPTS = {"query": "query: ", "document": "some longer passage: "}
EVALUATION = EvaluationConfig(
    k=4, num_pool=80, points=PointsConfig(concat=[0.3], interpolate=[0.5])
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Prepared:
    model = json.dumps({"name": tiny_encoder, "prompt": PROMPTS})
    return prepare_demo(tmp_path_factory.mktemp("sides"), model, rows=300)


@pytest.fixture(scope="module")
def bench(prepared: Prepared) -> Workbench:
    return Workbench(prepared, EVALUATION)


def stock(bench: Workbench, share: float = 1.0) -> SentenceTransformer:
    """Return the stock model with both prompts, and with a share of the trained weights."""
    model = SentenceTransformer(bench.prepared.model["name"], prompts=PROMPTS, device="cpu")
    base, tuned = model.state_dict(), bench.model.state_dict()
    model.load_state_dict(
        {name: torch.lerp(base[name].float(), tuned[name].float(), share) for name in base}
    )
    return model


def texts(bench: Workbench, ids: Any) -> list[str]:
    return bench.prepared.sentences.texts(ids)


def products(model: SentenceTransformer, bench: Workbench) -> np.ndarray:
    queries = model.encode_query(texts(bench, bench.dev.queries))
    pool = model.encode_document(texts(bench, bench.dev.pool))
    return np.asarray(queries @ pool.T)


def test_scores_equal_those_of_the_stock_model(bench: Workbench) -> None:
    (result,) = rungs(trial(learning_rate=1e-3, examples_per_rung=40), bench, seed=1, num_rungs=1)
    reference, tuned = products(stock(bench, 0.0), bench), products(stock(bench), bench)
    expected = {
        ("plain", None): tuned,
        ("concat", 0.3): reference + 0.3 * tuned,
        ("interpolate", 0.5): products(stock(bench, 0.5), bench),
    }
    assert result.points.keys() == expected.keys()
    for key, ranked in expected.items():
        nearest = np.argsort(-ranked, axis=1, kind="stable")[:, :4]
        same = bench.dev.pool_labels[nearest] == bench.dev.query_labels[:, None]
        cosines = np.take_along_axis(reference, nearest, axis=1)
        assert result.points[key].mean("polarity") == pytest.approx(same.mean(), abs=1e-6)
        assert result.points[key].mean("similarity") == pytest.approx(cosines.mean(), abs=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_equal_those_of_the_stock_forward_pass(bench: Workbench, loss: str) -> None:
    training = Training(trial(loss=loss, dropout=0.0), bench, seed=0, num_rungs=1)
    ids, targets = training.order.take(8)
    columns = []
    for side, column in zip(training.sides, ids.T, strict=True):
        features = training.model.preprocess(texts(bench, column), prompt=PROMPTS[side])
        columns.append(training.model(features)["sentence_embedding"])
    training.own_loss(training.make_batch(columns, ids, targets)).backward()
    expected = {
        name: parameter.grad.clone()
        for name, parameter in training.parameters.items()
        if parameter.grad is not None
    }
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for recomputes in (False, True):
        training.optimizer.zero_grad()
        training.recomputes = recomputes
        training.add_gradient(ids, targets)
        for name, gradient in expected.items():
            computed = training.parameters[name].grad
            assert computed is not None
            torch.testing.assert_close(computed, gradient, rtol=1e-4, atol=1e-5 * largest, msg=name)


def test_reference_embeddings_of_a_batch_have_the_prompts_of_their_sides(bench: Workbench) -> None:
    training = Training(trial(), bench, seed=0, num_rungs=1)
    ids, targets = training.order.take(6)
    batch = training.make_batch([], ids, targets)
    base = stock(bench, 0.0)
    encoders = (base.encode_query, base.encode_document, base.encode_document)
    for column, encode, embeddings in zip(ids.T, encoders, batch.reference, strict=True):
        np.testing.assert_allclose(embeddings, encode(texts(bench, column)), atol=1e-5)


def test_validation_compares_queries_with_documents(bench: Workbench) -> None:
    config = trial(learning_rate=1e-3, margin=0.5, idle_rungs=3)
    training = Training(config, bench, seed=0, num_rungs=1)
    while not training.rung_is_full:
        training.step()
    training.evaluate()
    model = stock(bench)
    sentences = texts(bench, bench.dev.queries)
    queries, documents = model.encode_query(sentences), model.encode_document(sentences)
    examples = ValidationExamples.of(bench.prepared, "triplet", bench.dev.queries, (1.0, 0.0))
    anchor, positive, negative = examples.rows.T
    to_positive = (queries[anchor] * documents[positive]).sum(axis=1)
    to_negative = (queries[anchor] * documents[negative]).sum(axis=1)
    assert training.idle is not None
    expected_loss = np.maximum(to_negative - to_positive + 0.5, 0).mean()
    assert training.idle.least_loss == pytest.approx(float(expected_loss), abs=1e-5)
    assert training.idle.least_errors == (to_negative >= to_positive).sum()


def test_cached_states_change_nothing(prepared: Prepared, bench: Workbench) -> None:
    config = trial(freezing="emb+B0-1", examples_per_rung=200)
    cached = Training(config, bench, seed=2, num_rungs=2)
    assert cached.prefixes is not None and not cached.prefixes.is_shared
    without = Workbench(prepared, EVALUATION, cache_bytes=0)
    first, second = (list(rungs(config, each, seed=2, num_rungs=2)) for each in (bench, without))
    for rung, expected in zip(first, second, strict=True):
        assert rung.loss == pytest.approx(expected.loss, rel=1e-4)
        assert rung.similarity == pytest.approx(expected.similarity, abs=1e-4)


def test_resumed_trial_is_the_same_to_the_bit(bench: Workbench, tmp_path: Path) -> None:
    check_resumed_trial(
        trial(loss="multiple_negatives", learning_rate=1e-3, dropout=0.1), bench, tmp_path
    )
