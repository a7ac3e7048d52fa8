"""The per-query scores of the reference, the oracle and the probe, as a run keeps them."""

from pathlib import Path

import numpy as np
import pytest

from raysweep.config.sweep import BaselinesConfig, EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.metrics.retrieval import Scores
from raysweep.ray_tune.baselines import Baselines, BaselineScores, limit_points
from raysweep.results.query_scores import PackedScores, baselines_file, name_of_point
from raysweep.results.types import Point
from raysweep.storage.folder import LocalFolder

CONFIG = BaselinesConfig(probe=[0.2, 2.0])


@pytest.fixture
def dev(tiny_prepared: Prepared) -> EvaluationSet:
    return EvaluationSet.of(tiny_prepared, "dev", EvaluationConfig(k=8, num_pool=200))


def stored(run: LocalFolder) -> PackedScores:
    return PackedScores.read((run.path / baselines_file("dev")).read_bytes())


def scored(prepared: Prepared, dev: EvaluationSet, scores: BaselineScores) -> list[Point]:
    baselines = Baselines(CONFIG, prepared, [dev], 0, print, on_scores=scores.add)
    return [*limit_points(dev, scores.add), *baselines.points()]


def test_means_of_stored_scores_equal_the_points(
    tiny_prepared: Prepared, dev: EvaluationSet, tmp_path: Path
) -> None:
    run = LocalFolder(tmp_path)
    scores = BaselineScores(run)
    points = scored(tiny_prepared, dev, scores)
    assert scores.find_missing(points) == points
    scores.store()
    assert scores.find_missing(points) == []
    stored_scores = stored(run)
    assert stored_scores.names == tuple(name_of_point(point) for point in points)
    assert len(stored_scores.names) == 1 + 22 + 2
    polarity, similarity = (
        stored_scores.named[name].unpack() for name in ("polarity", "similarity")
    )
    for row, point in enumerate(points):
        assert (polarity[row].mean(), similarity[row].mean()) == pytest.approx(
            (point["polarity"], point["similarity"]), abs=1e-5
        )
        if point.kind == "probe":
            assert (polarity[row].std(), similarity[row].std()) == pytest.approx(
                (point.std("polarity"), point.std("similarity")), abs=1e-5
            )


def test_oracle_with_bonus_0_equals_the_reference_per_query(
    dev: EvaluationSet, tmp_path: Path
) -> None:
    scores = BaselineScores(LocalFolder(tmp_path))
    list(limit_points(dev, scores.add))
    scores.store()
    named = stored(LocalFolder(tmp_path)).named
    polarity, similarity = named["polarity"].unpack(), named["similarity"].unpack()
    np.testing.assert_array_equal(polarity[0], polarity[1])
    np.testing.assert_allclose(similarity[0], similarity[1], atol=4e-5)
    assert (
        np.diff(polarity[1:], axis=0) >= 0
    ).all()  # a greater bonus never retrieves fewer sentences of the query's class


def test_new_scores_join_stored_ones_and_damaged_files_are_replaced(
    tiny_prepared: Prepared, dev: EvaluationSet, tmp_path: Path
) -> None:
    run = LocalFolder(tmp_path)
    first = BaselineScores(run)
    limits = list(limit_points(dev, first.add))
    first.store()
    second = BaselineScores(run)
    points = list(Baselines(CONFIG, tiny_prepared, [dev], 0, print, on_scores=second.add).points())
    second.add(
        limits[0], Scores(dict.fromkeys(("polarity", "similarity"), np.zeros(len(dev.queries))))
    )
    second.store()
    stored_scores = stored(run)
    assert set(stored_scores.names) == {name_of_point(point) for point in [*limits, *points]}
    assert (
        stored_scores.named["polarity"]
        .unpack()[stored_scores.names.index(name_of_point(limits[0]))]
        .max()
        == 0
    )
    BaselineScores(run).store()
    assert stored(run).names == stored_scores.names
    (tmp_path / baselines_file("dev")).write_bytes(b"damaged")
    third = BaselineScores(run)
    assert third.find_missing(limits) == limits
    list(limit_points(dev, third.add))
    third.store()
    assert third.find_missing(limits) == []
