"""Measures of pairs of rungs, against scikit-learn on the embeddings of a stock model."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from raysweep.config.sides import Sides
from raysweep.data.prepared import Prepared
from raysweep.evaluation.pair_measures import NUM_RANDOM, PairSet, reference_measures
from raysweep.metrics.pairs import cosine_divergence
from raysweep.training.trial import rungs
from raysweep.training.workbench import RungResult, Workbench
from support.encoders import EVALUATION, prepare_demo, trial


def with_experts(prepared: Prepared) -> Prepared:
    """Return artifacts of a sweep with experts. Measures of pairs do not read their scores."""
    return dataclasses.replace(prepared, scores_artifacts={"dev": prepared.sentences_artifact})


@pytest.fixture(
    scope="module", params=["''", "{query: 'query: ', document: 'some longer passage: '}"]
)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str
) -> Workbench:
    model = f"{{name: {tiny_encoder}, prompt: {request.param}}}"
    prepared = prepare_demo(tmp_path_factory.mktemp("pairs"), model, rows=300)
    return Workbench(with_experts(prepared), EVALUATION)


def measured(rung: RungResult) -> dict[str, float]:
    return {measure.name: measure.value for measure in rung.measures}


def cosines_of(bench: Workbench, pairs: np.ndarray) -> np.ndarray:
    """Return the cosines of pairs of dev sentences under the current weights, by the model's own ``encode``."""
    texts = bench.prepared.sentences.texts(bench.dev.queries)
    prompt = bench.prepared.model["prompt"]
    prompts = prompt if isinstance(prompt, dict) else {"query": prompt, "document": prompt}
    sides = [
        bench.model.encode(texts, prompt=prompts[side], normalize_embeddings=True)
        for side in ("query", "document")
    ]
    query, document = sides
    return (query[pairs[:, 0]] * document[pairs[:, 1]]).sum(axis=1)


@pytest.mark.parametrize(
    "values",
    [{}, {"freezing": "emb+B0", "average_decay": 0.5}, {"adapter": "lora", "lora_rank": 2}],
)
def test_measures_equal_those_of_the_stock_model(
    bench: Workbench, values: dict[str, object]
) -> None:
    pairs = PairSet.of(bench.prepared, bench.dev)
    bench.reset()
    before = cosines_of(bench, pairs.random)
    config = trial(learning_rate=1e-2, examples_per_rung=64, **values)
    for rung in rungs(config, bench, seed=0, num_rungs=2):
        area = average_precision_score(pairs.same_class, cosines_of(bench, pairs.neighbors))
        divergence = cosine_divergence(before, cosines_of(bench, pairs.random))
        values_of_rung = measured(rung)
        assert values_of_rung["average_precision"] == pytest.approx(area, rel=1e-4)
        assert values_of_rung["divergence"] == pytest.approx(divergence, rel=0.02)
        assert divergence > 0.005


def test_untuned_model_does_not_diverge(bench: Workbench) -> None:
    (rung,) = rungs(trial(learning_rate=1e-30, examples_per_rung=16), bench, seed=0, num_rungs=1)
    assert measured(rung)["divergence"] == 0
    by_reference = {
        measure.name: measure.value for measure in reference_measures(bench.prepared, bench.dev)
    }
    assert by_reference == {
        "average_precision": pytest.approx(measured(rung)["average_precision"], abs=1e-5)
    }


def test_tower_of_queries_is_compared_with_stored_documents(bench: Workbench) -> None:
    (rung,) = rungs(
        trial(tower="query", learning_rate=1e-2, examples_per_rung=64), bench, seed=0, num_rungs=1
    )
    pairs = PairSet.of(bench.prepared, bench.dev)
    query = bench.tuned().encoders.query.embed(bench.dev.queries)
    document = np.asarray(bench.prepared.reference_embeddings.document[bench.dev.queries])
    first, second = pairs.neighbors.T
    cosines = (query[first] * document[second]).sum(axis=1)
    assert measured(rung)["average_precision"] == pytest.approx(
        average_precision_score(pairs.same_class, cosines)
    )


def test_pairs(bench: Workbench) -> None:
    pairs = PairSet.of(bench.prepared, bench.dev)
    labels = bench.dev.query_labels
    np.testing.assert_array_equal(
        pairs.same_class, labels[pairs.neighbors[:, 0]] == labels[pairs.neighbors[:, 1]]
    )
    assert pairs.random.shape == (NUM_RANDOM, 2)
    assert (pairs.random[:, 0] != pairs.random[:, 1]).all()
    counts = np.bincount(pairs.random.ravel(), minlength=len(labels))
    assert counts.min() > 0.5 * counts.mean()
    np.testing.assert_array_equal(PairSet.of(bench.prepared, bench.dev).random, pairs.random)


def test_intervals_and_curve(bench: Workbench) -> None:
    pairs = PairSet.of(bench.prepared, bench.dev)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(bench.dev.queries), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    area, divergence = pairs.measure(
        Sides.same(vectors), np.zeros(NUM_RANDOM, np.float32), with_intervals=True
    )
    for measure in (area, divergence):
        assert measure.low is not None and measure.high is not None
        assert measure.low < measure.value < measure.high
    assert area.curve is not None and divergence.curve is None
    assert np.mean(area.curve) == pytest.approx(area.value, abs=0.02)


def test_sweeps_without_experts_have_no_measures(tiny_prepared: Prepared, tmp_path: Path) -> None:
    bench = Workbench(tiny_prepared, EVALUATION)
    (rung,) = rungs(trial(examples_per_rung=16), bench, seed=0, num_rungs=1, checkpoints=tmp_path)
    assert rung.measures == ()
    assert reference_measures(tiny_prepared, bench.dev) == ()


def test_measures_do_not_change_training(bench: Workbench) -> None:
    without = Workbench(dataclasses.replace(bench.prepared, scores_artifacts={}), EVALUATION)
    weights = []
    for each in (bench, without):
        list(rungs(trial(examples_per_rung=32), each, seed=0, num_rungs=2))
        weights.append(
            {name: value.clone() for name, value in each.trainable.trained().tensors.items()}
        )
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_measures_are_resumed_from_a_checkpoint(bench: Workbench, tmp_path: Path) -> None:
    config = trial(examples_per_rung=16)
    (rung,) = rungs(config, bench, seed=0, num_rungs=1, checkpoints=tmp_path)
    (resumed,) = rungs(config, bench, seed=0, num_rungs=1, checkpoints=tmp_path)
    assert resumed.measures == rung.measures
    assert len(rung.measures) == 2
