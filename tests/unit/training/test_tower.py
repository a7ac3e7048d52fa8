"""Trials that tune only the encoder of queries, against an explicit pair of a trained and a frozen model."""

import copy
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from raysweep.config.losses import LOSSES
from raysweep.config.sweep import EvaluationConfig, PointsConfig
from raysweep.config.trial import has_documents, trial_config
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import width
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.workbench import Workbench
from support.encoders import prepare_demo, trial
from support.resumed_trial import check_resumed_trial
from support.sweep_files import MINIMAL, read

EVALUATION = EvaluationConfig(k=4, num_pool=80, points=PointsConfig(query_concat=[0.5, 2]))


@pytest.fixture(scope="module", params=["one prompt", "two prompts"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Workbench:
    prompt = "{query: 'query: ', document: 'some longer passage: '}" if request.param == "two prompts" else "''"
    model = f"{{name: {tiny_encoder}, prompt: {prompt}}}"
    return Workbench(prepare_demo(tmp_path_factory.mktemp("tower"), model, rows=300), EVALUATION)


def stock(bench: Workbench) -> SentenceTransformer:
    """Return the stock base model with the prompts of the sweep."""
    prompt = bench.prepared.model["prompt"]
    prompts = prompt if isinstance(prompt, dict) else {"query": prompt, "document": prompt}
    return SentenceTransformer(bench.prepared.model["name"], prompts=prompts, device="cpu")


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if has_documents(loss)])
def test_gradients_equal_those_of_a_trained_and_a_frozen_model(bench: Workbench, loss: str) -> None:
    config = trial(loss=loss, tower="query", dropout=0.0)
    training = Training(config, bench, seed=0, num_rungs=1)
    parameters = config.loss_parameters
    factor = max(1.0, float(parameters.get("scale", 1)), 1 / float(parameters.get("temperature", 1)))  # of cosines
    ids, targets = training.order.take(8)
    frozen = stock(bench)
    trained = copy.deepcopy(frozen)
    columns = []
    for side, column in zip(training.sides, ids.T, strict=True):
        model = trained if side == "query" else frozen
        features = model.preprocess(bench.prepared.sentences.texts(column), prompt=frozen.prompts[side])
        with torch.set_grad_enabled(side == "query"):
            columns.append(model(features)["sentence_embedding"])
    training.own_loss(training.make_batch(columns, ids, targets)).backward()
    for recomputes in (False, True):
        training.optimizer.zero_grad()
        training.recomputes = recomputes
        training.add_gradient(ids, targets)
        for name, parameter in trained.named_parameters():
            computed = training.parameters[name].grad
            if parameter.grad is None:
                assert computed is None or not computed.any()
            else:
                assert computed is not None
                largest = max(1.0, float(parameter.grad.abs().max()))
                assert (computed - parameter.grad).abs().max() <= 1e-6 * factor * largest, name


def test_scores_equal_brute_force(bench: Workbench, tmp_path: Path) -> None:
    folder = bench.prepared.reference_artifacts.document.folder
    before = {path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()}
    config = trial(tower="query", learning_rate=1e-3, examples_per_rung=40)
    (result,) = rungs(config, bench, seed=1, num_rungs=1)
    base = stock(bench)
    tuned = copy.deepcopy(base)
    tuned.load_state_dict(bench.model.state_dict())
    queries, pool = (bench.prepared.sentences.texts(ids) for ids in (bench.dev.queries, bench.dev.pool))
    documents = base.encode_document(pool)
    reference, own = base.encode_query(queries), tuned.encode_query(queries)
    assert np.abs(reference - own).max() > 1e-3
    points = {("query", None): own, **{("query_concat", value): reference + value * own for value in (0.5, 2.0)}}
    assert list(result.points) == list(points)
    cosines = reference @ documents.T
    for key, embeddings in points.items():
        nearest = np.argsort(-(embeddings @ documents.T), axis=1, kind="stable")[:, :4]
        same = bench.dev.pool_labels[nearest] == bench.dev.query_labels[:, None]
        retrieved = np.take_along_axis(cosines, nearest, axis=1)
        assert result.points[key].mean("polarity") == pytest.approx(same.mean(), abs=1e-6)
        assert result.points[key].mean("similarity") == pytest.approx(retrieved.mean(), abs=1e-5)
        assert width(key, bench.tuned(), bench.dev) == documents.shape[1]
    limits = bench.measure(bench.dev, [("query_concat", 1e-7), ("query_concat", 1e6)])
    for scores, limit in zip(limits.values(), (bench.dev.reference_scores, result.scores), strict=True):
        np.testing.assert_allclose(scores["similarity"], limit["similarity"], atol=1e-5)
    assert before == {path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()}


def test_resumed_trial_is_the_same_to_the_bit(bench: Workbench, tmp_path: Path) -> None:
    check_resumed_trial(trial(tower="query", learning_rate=1e-3, idle_rungs=3), bench, tmp_path)


def test_tower_both_is_neither_recorded_nor_part_of_the_seed() -> None:
    usual, same, query = (trial(**tower) for tower in ({}, {"tower": "both"}, {"tower": "query"}))
    assert usual.identity == same.identity and "tower" not in usual.recorded
    assert query.identity == {**usual.identity, "tower": "query"} and query.recorded["tower"] == "query"


@pytest.mark.parametrize("loss", ["softmax", "batch_hard_triplet"])
def test_losses_without_documents_are_rejected(tmp_path: Path, loss: str) -> None:
    with pytest.raises(InputError, match=f"tower is query, but the loss {loss} .*; allowed: both"):
        trial_config({"loss": loss, "learning_rate": 1e-5, "tower": "query"})
    text = (
        MINIMAL.replace("    choices:\n", f"    choices:\n      {loss}: {{}}\n", 1)
        + "  tower: {choices: [both, query]}\n"
    )
    with pytest.raises(
        InputError, match=rf"sweep.yaml: line \d+: space.tower is query, but the loss {loss} .*; allowed: both"
    ):
        read(tmp_path, text)


def test_another_reference_is_rejected(tmp_path: Path) -> None:
    text = MINIMAL + "  tower: query\n"
    read(tmp_path, text + "reference: {name: demo, prompt: 'passage: '}\n")
    with pytest.raises(
        InputError, match=r"sweep.yaml: line 14: reference is 'other'; allowed with space.tower query: "
    ):
        read(tmp_path, text + "reference: other\n")
