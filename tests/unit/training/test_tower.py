"""Trials that tune only the encoder of queries, or that of documents too, against an explicit pair of models."""

import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from raysweep.config.losses import LOSSES
from raysweep.config.sweep import EvaluationConfig, PointsConfig
from raysweep.config.trial import has_documents, trial_config
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import width
from raysweep.training.trainable import TrainedWeights
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.weights import read_point, save_point
from raysweep.training.workbench import Workbench
from support.encoders import prepare_demo, trial
from support.resumed_trial import check_resumed_trial
from support.sweep_files import MINIMAL, read

EVALUATION = EvaluationConfig(k=4, num_pool=80, points=PointsConfig(query_concat=[0.5, 2]))


@pytest.fixture(scope="module", params=["one prompt", "two prompts"])
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str
) -> Workbench:
    prompt = (
        "{query: 'query: ', document: 'some longer passage: '}"
        if request.param == "two prompts"
        else "''"
    )
    model = f"{{name: {tiny_encoder}, prompt: {prompt}}}"
    return Workbench(prepare_demo(tmp_path_factory.mktemp("tower"), model, rows=300), EVALUATION)


def stock(bench: Workbench) -> SentenceTransformer:
    """Return the stock base model with the prompts of the sweep."""
    prompt = bench.prepared.model["prompt"]
    prompts = prompt if isinstance(prompt, dict) else {"query": prompt, "document": prompt}
    return SentenceTransformer(bench.prepared.model["name"], prompts=prompts, device="cpu")


@pytest.mark.parametrize("tower", ["query", "separate"])
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if has_documents(loss)])
def test_gradients_equal_those_of_a_pair_of_models(bench: Workbench, loss: str, tower: str) -> None:
    """Both models are trained under ``separate``; under ``query``, that of documents is frozen."""
    config = trial(loss=loss, tower=tower, dropout=0.0)
    training = Training(config, bench, seed=0, num_rungs=1)
    parameters = config.loss_parameters
    # of cosines
    factor = max(
        1.0, float(parameters.get("scale", 1)), 1 / float(parameters.get("temperature", 1))
    )
    ids, targets = training.order.take(8)
    documents = stock(bench)
    models = {"query": copy.deepcopy(documents), "document": documents}
    trained = (
        [("query.", models["query"]), ("", documents)]
        if tower == "separate"
        else [("", models["query"])]
    )
    columns = []
    for side, column in zip(training.sides, ids.T, strict=True):
        features = models[side].preprocess(
            bench.prepared.sentences.texts(column), prompt=documents.prompts[side]
        )
        with torch.set_grad_enabled(side == "query" or tower == "separate"):
            columns.append(models[side](features)["sentence_embedding"])
    training.own_loss(training.make_batch(columns, ids, targets)).backward()
    expected = {
        prefix + name: value
        for prefix, model in trained
        for name, value in model.named_parameters()
    }
    assert expected.keys() == {name for name in training.parameters if not name.startswith("loss.")}
    for recomputes in (False, True):
        training.optimizer.zero_grad()
        training.recomputes = recomputes
        training.add_gradient(ids, targets)
        for name, parameter in expected.items():
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
    queries, pool = (
        bench.prepared.sentences.texts(ids) for ids in (bench.dev.queries, bench.dev.pool)
    )
    documents = base.encode_document(pool)
    reference, own = base.encode_query(queries), tuned.encode_query(queries)
    assert np.abs(reference - own).max() > 1e-3
    points = {
        ("query", None): own,
        **{("query_concat", value): reference + value * own for value in (0.5, 2.0)},
    }
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
    for scores, limit in zip(
        limits.values(), (bench.dev.reference_scores, result.scores), strict=True
    ):
        np.testing.assert_allclose(scores["similarity"], limit["similarity"], atol=1e-5)
    assert before == {
        path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()
    }


def pair_of(
    bench: Workbench, weights: TrainedWeights, share: float = 1.0
) -> dict[str, SentenceTransformer]:
    """Return stock models of queries and documents, with a share of a trial's weights."""
    models = {side: stock(bench) for side in ("query", "document")}
    for name, tensor in weights.tensors.items():
        model = models["query" if name.startswith("query.") else "document"]
        parameter = model.get_parameter(name.removeprefix("query."))
        parameter.data = parameter.data.lerp(tensor, share)
    return models


def test_scores_of_separate_encoders_equal_brute_force(bench: Workbench, tmp_path: Path) -> None:
    """The stored weights of a rung give the same scores in a new process."""
    points = PointsConfig(concat=[0.5], interpolate=[0.3], truncate=[16])
    bench = Workbench(bench.prepared, EVALUATION.model_copy(update={"points": points}))
    (result,) = rungs(
        trial(tower="separate", learning_rate=1e-3, examples_per_rung=40),
        bench,
        seed=1,
        num_rungs=1,
    )
    save_point(tmp_path / "point", bench.trainable.trained(), None)
    weights, _ = read_point(tmp_path / "point")
    queries, pool = (
        bench.prepared.sentences.texts(ids) for ids in (bench.dev.queries, bench.dev.pool)
    )

    def products(share: float, width: int | None = None) -> np.ndarray:
        models = pair_of(bench, weights, share)
        embeddings = models["query"].encode_query(queries), models["document"].encode_document(pool)
        of_queries, of_pool = (
            vectors[:, :width] / np.linalg.norm(vectors[:, :width], axis=1, keepdims=True)
            for vectors in embeddings
        )
        return np.asarray(of_queries @ of_pool.T)

    cosines, tuned = products(0.0), products(1.0)
    own_texts = pair_of(bench, weights)
    assert (
        np.abs(own_texts["query"].encode(pool[:5]) - own_texts["document"].encode(pool[:5])).max()
        > 1e-3
    )
    expected = {
        ("plain", None): tuned,
        ("concat", 0.5): cosines + 0.5 * tuned,
        ("interpolate", 0.3): products(0.3),
        ("truncate", 16.0): products(1.0, 16),
    }
    assert list(result.points) == list(expected)
    for key, ranked in expected.items():
        nearest = np.argsort(-ranked, axis=1, kind="stable")[:, :4]
        same = bench.dev.pool_labels[nearest] == bench.dev.query_labels[:, None]
        assert result.points[key].mean("polarity") == pytest.approx(same.mean(), abs=1e-6)
        retrieved = np.take_along_axis(cosines, nearest, axis=1)
        assert result.points[key].mean("similarity") == pytest.approx(retrieved.mean(), abs=1e-5)
    new = Workbench(bench.prepared, bench.evaluation)
    new.reset(weights)
    for key, scores in new.measure(new.dev, list(expected)).items():
        np.testing.assert_array_equal(scores["similarity"], result.points[key]["similarity"])


@pytest.mark.parametrize("values", [{}, {"freezing": "emb+B0-1"}, {"adapter": "lora"}])
def test_separate_encoders_start_equal_and_share_frozen_weights(
    bench: Workbench, values: Mapping[str, Any]
) -> None:
    config = trial(tower="separate", learning_rate=1e-2, warmup_fraction=0.0, **values)
    if config.lora:
        pytest.importorskip("peft")
    training = Training(config, bench, seed=0, num_rungs=1)
    names = [name for name in training.parameters if not name.startswith("query.")]
    assert [f"query.{name}" for name in names] == list(training.parameters)[len(names) :]
    assert all(
        torch.equal(training.parameters[name], training.parameters[f"query.{name}"])
        for name in names
    )
    num_frozen = sum(1 for _ in bench.model.parameters()) - len(names)
    with bench.trainable.weight_contexts.query():
        within = dict(bench.model.named_parameters())
        assert all(within[name] is training.parameters[f"query.{name}"] for name in names)
    after = dict(bench.model.named_parameters())
    assert all(after[name] is training.parameters[name] for name in names)
    assert sum(within[name] is after[name] for name in after) == num_frozen
    training.step()
    assert any(
        not torch.equal(training.parameters[name], training.parameters[f"query.{name}"])
        for name in names
    )


def test_checkpointed_blocks_of_separate_encoders_have_the_same_gradients(bench: Workbench) -> None:
    """With dropout, whose masks are drawn again in the backward pass."""
    gradients = []
    for checkpoints in (False, True):
        own_bench = Workbench(bench.prepared, EVALUATION, checkpoints_blocks=checkpoints)
        training = Training(trial(tower="separate", dropout=0.2), own_bench, seed=0, num_rungs=1)
        training.model.train()
        training.add_gradient(*training.order.take(8))
        gradients.append(
            {
                name: value.grad
                for name, value in training.parameters.items()
                if value.grad is not None
            }
        )
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_next_trial_of_a_process_is_unaffected_by_separate_encoders(bench: Workbench) -> None:
    both, separate = (trial(tower=tower, learning_rate=1e-3) for tower in ("both", "separate"))
    new = Workbench(bench.prepared, EVALUATION)
    expected = [next(iter(rungs(both, new, seed=1, num_rungs=1)))]
    results = [next(iter(rungs(config, new, seed=1, num_rungs=1))) for config in (separate, both)]
    assert results[1].loss == expected[0].loss != results[0].loss
    np.testing.assert_array_equal(results[1].scores["similarity"], expected[0].scores["similarity"])


@pytest.mark.parametrize("tower", ["query", "separate"])
def test_resumed_trial_is_the_same_to_the_bit(bench: Workbench, tmp_path: Path, tower: str) -> None:
    config = trial(
        tower=tower, learning_rate=1e-3, idle_rungs=3, average_decay=0.7, layer_decay=0.8
    )
    check_resumed_trial(config, bench, tmp_path)


def test_tower_both_is_neither_recorded_nor_part_of_the_seed() -> None:
    usual, same = (trial(**tower) for tower in ({}, {"tower": "both"}))
    assert usual.identity == same.identity and "tower" not in usual.recorded
    for tower in ("query", "separate"):
        other = trial(tower=tower)
        assert (
            other.identity == {**usual.identity, "tower": tower}
            and other.recorded["tower"] == tower
        )


@pytest.mark.parametrize("tower", ["query", "separate"])
@pytest.mark.parametrize("loss", ["softmax", "batch_hard_triplet"])
def test_losses_without_documents_are_rejected(tmp_path: Path, loss: str, tower: str) -> None:
    with pytest.raises(
        InputError, match=f"tower is {tower}, but the loss {loss} .*; allowed: both"
    ):
        trial_config({"loss": loss, "learning_rate": 1e-5, "tower": tower})
    text = (
        MINIMAL.replace("    choices:\n", f"    choices:\n      {loss}: {{}}\n", 1)
        + f"  tower: {{choices: [both, {tower}]}}\n"
    )
    with pytest.raises(
        InputError,
        match=rf"sweep.yaml: line \d+: space.tower is {tower}, but the loss {loss} .*; allowed: both",
    ):
        read(tmp_path, text)


def test_another_reference_is_rejected(tmp_path: Path) -> None:
    text = MINIMAL + "  tower: query\n"
    read(tmp_path, text + "reference: {name: demo, prompt: 'passage: '}\n")
    with pytest.raises(
        InputError,
        match=r"sweep.yaml: line 14: reference is 'other'; allowed with space.tower query: ",
    ):
        read(tmp_path, text + "reference: other\n")
