"""Watched data in a trial: values of its weights at its rungs, equal to brute force with stock models."""

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from raysweep.config.sides import Tower
from raysweep.config.sweep import EncoderConfig, EvaluationConfig, PointsConfig
from raysweep.config.watch import At
from raysweep.data.prepared import Prepared
from raysweep.data.relations import Relations, RelationsBuilder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.errors import InputError
from raysweep.evaluation.watched import WatchedRelations, measure_untuned, watched_encoder
from raysweep.results.watched import Watched
from raysweep.terminal import SilentDisplay
from raysweep.training import watching
from raysweep.training.trial import rungs, watch_last_rung
from raysweep.training.watching import WatchTask, most_changed
from raysweep.training.workbench import Workbench
from support.encoders import prepare_demo, trial

EVALUATION = EvaluationConfig(
    k=4, num_pool=80, points=PointsConfig(concat=[], query_concat=[], class_concat=[])
)
PROMPTS = {"query": "query: ", "document": "some longer passage: "}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Prepared:
    model = (
        f"{{name: {tiny_encoder}, prompt: {{query: 'query: ', document: 'some longer passage: '}}}}"
    )
    return prepare_demo(tmp_path_factory.mktemp("watching"), model, rows=300)


def made_relations(prepared: Prepared, name: str, first: int) -> Relations:
    """Return 12 queries with three positives and four negatives each, from the sentences of the sweep."""
    texts = prepared.sentences.texts(np.arange(first, first + 60))
    builder = RelationsBuilder(name, "retrieval")
    for query in range(12):
        group = builder.group(query, texts[query])
        for number in range(7):
            builder.add(
                group, texts[query], [texts[12 + (5 * query + number) % 48]], is_positive=number < 3
            )
    return builder.build()


@pytest.fixture(scope="module")
def relations(prepared: Prepared) -> WatchedRelations:
    return WatchedRelations(
        [made_relations(prepared, f"set {first}", first) for first in (0, 60, 120)], True, seed=0
    )


def bench(prepared: Prepared, relations: WatchedRelations, at: At = "last") -> Workbench:
    model = EncoderConfig(**prepared.model)
    towers: tuple[Tower, ...] = ("both", "query", "separate")
    untuned = {}
    for tower in towers:
        loaded = LoadedEncoder.load(watched_encoder(model, model, tower))
        _, untuned[tower] = measure_untuned(loaded, relations.relations, SilentDisplay())
    return Workbench(prepared, EVALUATION, watch=WatchTask(relations, untuned, at))


def pnd(
    queries: SentenceTransformer, documents: SentenceTransformer, relations: Relations
) -> float:
    """Return the mean PND over queries by cosine, by brute force."""
    encoded = {
        side: model.encode(relations.sentences, prompt=PROMPTS[side], normalize_embeddings=True)
        for side, model in (("query", queries), ("document", documents))
    }
    shares = []
    for group in range(relations.num_groups):
        rows = np.flatnonzero(relations.group == group)
        cosines = np.sum(
            encoded["query"][relations.first[rows]] * encoded["document"][relations.second[rows]],
            axis=1,
        )
        is_positive = relations.is_positive[rows]
        shares.append(float((cosines[is_positive][:, None] <= cosines[~is_positive]).mean()))
    return float(np.mean(shares))


@pytest.mark.parametrize("tower", ["both", "query", "separate"])
def test_values_are_those_of_stock_models(
    prepared: Prepared, relations: WatchedRelations, tower: Tower
) -> None:
    own = bench(prepared, relations)
    config = trial(tower=tower, learning_rate=2e-3)
    first, last = rungs(config, own, seed=0, num_rungs=2)
    assert first.watched is None
    watched = last.watched
    assert watched is not None and watched.target is not None
    base = SentenceTransformer(prepared.model["name"], device="cpu")
    documents, queries = copy.deepcopy(base), copy.deepcopy(base)
    documents.load_state_dict(own.model.state_dict())
    with own.trainable.weight_contexts.query():
        queries.load_state_dict(own.model.state_dict())
    for found, of_set in zip((watched.target, *watched.sets), relations.relations, strict=True):
        value = found.whole_by("cosine")
        assert value.base == pytest.approx(pnd(base, base, of_set), abs=1e-3)
        assert value.value == pytest.approx(
            pnd(queries, base if tower == "query" else documents, of_set), abs=1e-3
        )
        assert value.value != value.base
    expected = 1 - np.mean([found.whole_by("cosine").value for found in watched.sets])
    assert watched.score == pytest.approx(expected)
    assert watched.learning_rate == 2e-3


def test_measuring_changes_neither_weights_nor_scores(
    prepared: Prepared, relations: WatchedRelations
) -> None:
    config = trial(tower="query", learning_rate=2e-3)
    watched = list(rungs(config, bench(prepared, relations, "rung"), seed=0, num_rungs=2))
    without = list(rungs(config, Workbench(prepared, EVALUATION), seed=0, num_rungs=2))
    assert [rung.loss for rung in watched] == [rung.loss for rung in without]
    for rung, expected in zip(watched, without, strict=True):
        np.testing.assert_array_equal(rung.scores["similarity"], expected.scores["similarity"])
        assert rung.watched is not None and expected.watched is None


def test_stored_documents_are_embedded_once(
    prepared: Prepared, relations: WatchedRelations, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    embed = watching.embed_documents
    monkeypatch.setattr(
        watching, "embed_documents", lambda *arguments: calls.append(1) or embed(*arguments)
    )
    own = bench(prepared, relations, "rung")
    for seed in (0, 1):
        list(rungs(trial(tower="query"), own, seed=seed, num_rungs=2))
    assert len(calls) == 1
    list(rungs(trial(), own, seed=0, num_rungs=2))
    assert len(calls) == 3


def test_resumed_trial_measures_nothing_twice(
    prepared: Prepared, relations: WatchedRelations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trial(tower="query", learning_rate=2e-3)
    own = bench(prepared, relations, "rung")
    expected = [rung.watched for rung in rungs(config, own, seed=0, num_rungs=3)]
    interrupted = rungs(config, own, seed=0, num_rungs=3, checkpoints=tmp_path)
    found = [next(interrupted).watched, next(interrupted).watched]
    measured = []
    compare = WatchedRelations.compare

    def counted(self: WatchedRelations, *values: object) -> Watched:
        measured.append(1)
        return compare(self, *values)  # type: ignore[arg-type]

    monkeypatch.setattr(WatchedRelations, "compare", counted)
    own.reset()
    repeated, last = rungs(config, own, seed=0, num_rungs=3, checkpoints=tmp_path)
    assert repeated.watched == found[-1]
    assert [*found, last.watched] == expected
    assert len(measured) == 1


def planted() -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    yield "small", torch.ones(100, 100), torch.full((100, 100), 0.01)
    yield (
        "one element",
        torch.ones(100, 100),
        torch.zeros(100, 100).index_put((torch.tensor(3), torch.tensor(4)), torch.tensor(0.5)),
    )
    yield "from zero", torch.zeros(3), torch.tensor([0.0, -0.7, 0.1])
    yield "tiny", torch.full((4,), 1e-3), torch.full((4,), 2e-3)


def test_tensors_that_changed_most_by_both_measures() -> None:
    found = {tensor.name: (tensor.relative, tensor.maximum) for tensor in most_changed(planted())}
    assert found.keys() == {"tiny", "small", "from zero", "one element"}
    assert found["tiny"] == pytest.approx((2.0, 2e-3))
    assert found["small"] == pytest.approx((0.01, 0.01), rel=1e-5)
    assert found["one element"] == pytest.approx((0.005, 0.5), rel=1e-5)
    assert found["from zero"] == (None, pytest.approx(0.7))


def test_paused_trial_is_measured_from_its_checkpoint(
    prepared: Prepared, relations: WatchedRelations, tmp_path: Path
) -> None:
    config = trial(tower="query", learning_rate=2e-3)
    expected = next(
        iter(rungs(config, bench(prepared, relations, "rung"), seed=0, num_rungs=3))
    ).watched
    own = bench(prepared, relations)
    paused = next(iter(rungs(config, own, seed=0, num_rungs=3, checkpoints=tmp_path)))
    assert paused.watched is None
    own.reset()
    assert (
        watch_last_rung(config, own, step=1, seed=0, num_rungs=3, checkpoints=tmp_path) == expected
    )
    with pytest.raises(InputError, match="not from the end of rung 2"):
        watch_last_rung(config, own, step=2, seed=0, num_rungs=3, checkpoints=tmp_path)
    with pytest.raises(InputError, match="missing"):
        watch_last_rung(config, own, step=1, seed=0, num_rungs=3, checkpoints=tmp_path / "none")
