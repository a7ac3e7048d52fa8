"""Baselines and limits: their kinds, splits and scores. No Ray is started."""

import dataclasses
import re
import statistics
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from raysweep.config.sweep import BaselinesConfig, EncoderConfig, EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation import probe
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.relation_set import scored_set
from raysweep.evaluation.sequence_set import SequenceSet
from raysweep.paper import published_scores
from raysweep.paper.published_scores import TABLES, digest
from raysweep.ray_tune import baselines
from raysweep.ray_tune.baselines import Baselines
from raysweep.results.events import PointsScored, read_event
from raysweep.results.types import BASELINES, Point, ScoredSplit


@pytest.fixture
def dev(tiny_prepared: Prepared) -> EvaluationSet:
    return EvaluationSet.of(tiny_prepared, "dev", EvaluationConfig(k=8, num_pool=200))


def fail(text: str) -> None:
    raise AssertionError(text)


def points(
    prepared: Prepared, dev: EvaluationSet, stored: list[Point] | None = None, **config: Any
) -> list[Point]:
    return list(
        Baselines(BaselinesConfig(**config), prepared, [dev], 0, fail, stored or []).points()
    )


def at_best_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The temperature of least log loss, by a search that knows nothing of its slope."""

    def loss(log_temperature: float) -> float:
        return float(log_loss(labels, tempered(probabilities, np.exp(log_temperature))))

    return float(
        np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9}).x)
    )


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    powers = probabilities ** (1 / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def polarity_bounds(scores: np.ndarray, is_hit: np.ndarray, k: int) -> tuple[float, float]:
    """The least and the most P of the k nearest, where scores that rounding to fp32 may swap may take the last places."""
    last = np.sort(scores, axis=1)[:, -k, None]
    is_sure, is_tied = scores > last + 1e-5, np.abs(scores - last) <= 1e-5
    num_open = k - is_sure.sum(axis=1)
    sure_hits, tied_hits = (is_sure & is_hit).sum(axis=1), (is_tied & is_hit).sum(axis=1)
    tied_misses = (is_tied & ~is_hit).sum(axis=1)
    lowest = sure_hits + np.maximum(0, num_open - tied_misses)
    highest = sure_hits + np.minimum(num_open, tied_hits)
    return float(lowest.mean() / k), float(highest.mean() / k)


@pytest.mark.parametrize("calibrate", [False, True])
def test_probe_is_fitted_on_train_and_scored_at_each_value(
    tiny_prepared: Prepared, dev: EvaluationSet, calibrate: bool
) -> None:
    config = BaselinesConfig(probe=[0.2, 2.0])
    scored = list(Baselines(config, tiny_prepared, [dev], 0, fail, calibrate=calibrate).points())
    assert [
        (point.kind, point.value, point.split, point.trial, point.step) for point in scored
    ] == [
        ("probe", 0.2, "dev", None, None),
        ("probe", 2.0, "dev", None, None),
    ]
    sentences = tiny_prepared.sentences
    train = sentences.ids("train")
    embeddings = np.asarray(tiny_prepared.reference_embeddings.document[train])
    regression = LogisticRegression(max_iter=1000).fit(embeddings, sentences.labels[train])
    temperature = 1.0
    if calibrate:
        temperature = at_best_temperature(
            regression.predict_proba(dev.reference_queries), dev.query_labels
        )
        assert abs(np.log(temperature)) > 0.1
    for point in scored:
        assert point.value is not None
        sides = [
            np.hstack(
                [side, point.value**0.5 * tempered(regression.predict_proba(side), temperature)]
            )
            for side in (dev.reference_queries, dev.reference_pool)
        ]
        scores = sides[0] @ sides[1].T
        nearest = np.argsort(-scores, axis=1, kind="stable")[:, : dev.k]
        lowest, highest = polarity_bounds(
            scores, dev.pool_labels == dev.query_labels[:, None], dev.k
        )
        similarity = np.einsum(
            "qd,qkd->qk", dev.reference_queries, dev.reference_pool[nearest]
        ).mean()
        assert lowest - 1e-9 <= point["polarity"] <= highest + 1e-9
        assert highest - lowest <= 0.01, "few neighbors are near ties"
        assert point["similarity"] == pytest.approx(similarity, abs=2e-3)
        assert point.width == embeddings.shape[1] + 2
        assert point["accuracy"] is not None and point.label is None


def test_probe_is_skipped_with_too_many_classes(
    tiny_prepared: Prepared, dev: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "MAX_CLASSES", 1)
    warnings: list[str] = []
    assert (
        list(Baselines(BaselinesConfig(), tiny_prepared, [dev], 0, warnings.append).points()) == []
    )
    assert warnings == ["baselines.probe: not scored; there are 2 classes; allowed: at most 1"]


def test_ledger_round_trip(
    tiny_prepared: Prepared, dev: EvaluationSet, tiny_encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = dataclasses.replace(
        TABLES["sst2"],
        num_queries=len(dev.queries),
        queries_digest=digest(tiny_prepared.sentences.texts(dev.queries)),
    )
    monkeypatch.setitem(published_scores.TABLES, "sst2", table)
    monkeypatch.setattr(baselines, "MAX_DIFFERENCE", 2.0)
    config = {"probe": [0.5], "setfit": EncoderConfig(name=tiny_encoder), "published": "sst2"}
    scored = points(tiny_prepared, dev, **config)
    assert tuple(dict.fromkeys(point.kind for point in scored)) == BASELINES
    event = PointsScored(points=tuple(scored))
    assert read_event(event.to_json()) == event
    assert points(tiny_prepared, dev, scored, **config) == [], "stored points are not scored again"
    new_points = points(tiny_prepared, dev, scored, **{**config, "probe": [0.5, 0.7]})
    assert [(point.kind, point.value) for point in new_points] == [("probe", 0.7)]


def test_untuned_setfit_model_scores_like_the_reference(
    tiny_prepared: Prepared, dev: EvaluationSet, tiny_encoder: str
) -> None:
    (point,) = points(tiny_prepared, dev, probe=[], setfit=EncoderConfig(name=tiny_encoder))
    assert (point.kind, point.value, point.label, point.width) == ("setfit", None, "encoder", 64)
    reference = dev.reference_scores
    assert point["polarity"] == pytest.approx(reference["polarity"].mean(), abs=5e-3)
    assert point["similarity"] == pytest.approx(reference["similarity"].mean(), abs=1e-3)


def test_published_scores_of_other_queries_are_not_shown(
    tiny_prepared: Prepared, dev: EvaluationSet
) -> None:
    warnings: list[str] = []
    config = BaselinesConfig(probe=[], published="sst2")
    assert list(Baselines(config, tiny_prepared, [dev], 0, warnings.append).points()) == []
    (warning,) = warnings
    assert re.search("872 .*sst2 .*dev or test", warning)


def test_published_scores_under_another_reference_are_not_shown(
    tiny_prepared: Prepared, dev: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tiny_prepared.sentences.texts(dev.queries)
    table = dataclasses.replace(
        TABLES["sst2"], num_queries=len(texts), queries_digest=digest(texts)
    )
    monkeypatch.setitem(published_scores.TABLES, "sst2", table)
    warnings: list[str] = []
    config = BaselinesConfig(probe=[], published="sst2")
    assert (
        list(baselines.Baselines(config, tiny_prepared, [dev], 0, warnings.append).points()) == []
    )
    (warning,) = warnings
    assert re.search("on dev .*46.6 .*all-MiniLM-L6-v2 in sst2", warning)


def test_missing_setfit_model_is_rejected_early(tmp_path: Any) -> None:
    Baselines.check(BaselinesConfig())
    with pytest.raises(InputError, match="no such folder"):
        Baselines.check(BaselinesConfig(setfit=EncoderConfig(name=str(tmp_path / "gone"))))


def test_each_data_set_of_a_sequence_has_a_probe(sequence_prepared: Prepared) -> None:
    settings = EvaluationConfig(k=4)
    config = BaselinesConfig(probe=[0.3, 1.0])
    splits: tuple[ScoredSplit, ...] = ("dev", "test")
    evaluations = [scored_set(sequence_prepared, split, settings) for split in splits]
    points = list(Baselines(config, sequence_prepared, evaluations, 0, print).points())
    assert [(point.split, point.value) for point in points] == [
        ("dev", 0.3),
        ("dev", 1.0),
        ("test", 0.3),
        ("test", 1.0),
    ]
    for evaluation in evaluations:
        assert isinstance(evaluation, SequenceSet)
        alone = []
        for name, part in sequence_prepared.parts.items():
            sets = [each.tasks[name] for each in evaluations if isinstance(each, SequenceSet)]
            alone.append(list(Baselines(config, part, sets, 0, print).points()))
        for position, point in enumerate(points):
            means = [of_part[position]["polarity"] for of_part in alone]
            assert point["polarity"] == pytest.approx(statistics.fmean(means))
