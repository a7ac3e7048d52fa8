"""Per-query scores and readings of invented runs, with the same means as their ledgers."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np

from raysweep.metrics.arrays import Float32Array, Float64Array
from raysweep.results.query_scores import PackedScores, PointName, name_of_point, scores_file
from raysweep.results.readings import FILE, REFERENCE, Readings, Retrieved
from raysweep.results.types import Point, Results, ScoredSplit
from raysweep.results.views import front_points
from raysweep.storage.folder import LocalFolder

TEXT = "sentence {} <b>&\u202e\x07"  # with markup and control characters


def scores_of(point: Point, num_queries: int, seed: int = 0) -> tuple[Float64Array, Float64Array]:
    """Return P and S of each query, shape (queries,), with the means of the point."""
    rng = np.random.default_rng([seed, len(point.kind), point.trial or 0, point.step or 0])
    spread = min(point["polarity"], 1 - point["polarity"])
    noise = rng.uniform(-0.5, 0.5, (2, num_queries))
    centered = noise - noise.mean(axis=1, keepdims=True)
    return point["polarity"] + spread * centered[0], point["similarity"] + 0.2 * centered[1]


def write_query_scores(
    folder: Path,
    results: Results,
    of: Callable[[Point, int], tuple[Float64Array, Float64Array]] = scores_of,
) -> None:
    """Write the scores of all points of a run as workers and driver do: for each split, a file per rung and one for the other points."""
    files: dict[str, list[Point]] = {}
    for point in results.points:
        if point.kind in ("setfit", "published"):
            continue
        file = (
            "baselines" if point.trial is None else f"trial-{point.trial:04d}-step-{point.step:03d}"
        )
        files.setdefault(scores_file(point.split, file), []).append(point)
    for name, points in files.items():
        scores = [of(point, results.info.num_queries[point.split]) for point in points]
        polarity = np.stack([polarity for polarity, _ in scores])
        similarity = np.stack([similarity for _, similarity in scores])
        named = {"polarity": polarity, "similarity": similarity}
        packed = PackedScores.pack([name_of_point(point) for point in points], named)
        LocalFolder(folder).put(name, packed.content())


def invented_readings(
    results: Results,
    split: ScoredSplit = "test",
    k: int = 4,
    num_shown: int = 3,
    *,
    with_texts: bool = True,
) -> Readings:
    """Return random readings of a run's reference and front members, retrieved from 50 sentences with two labels."""
    rng = np.random.default_rng(0)
    num_queries = results.info.num_queries[split]
    query_ids = 1000 + np.arange(num_queries)
    names: list[PointName] = [
        REFERENCE,
        *(name_of_point(point) for point in front_points(results.points)),
    ]
    retrieved = {name: _by_chance(rng, num_queries, k) for name in names}
    ids = {sentence for each in retrieved.values() for sentence in each.ids.ravel().tolist()}
    shown = tuple(range(num_shown))
    shown_ids = {
        sentence
        for each in retrieved.values()
        for sentence in each.ids[list(shown)].ravel().tolist()
    }
    shown_ids |= set(query_ids[list(shown)].tolist())
    texts = (
        {sentence: TEXT.format(sentence) for sentence in sorted(shown_ids)} if with_texts else {}
    )
    assert split in get_args(ScoredSplit)
    return Readings(
        split,
        query_ids,
        query_ids % 2,
        retrieved,
        {sentence: sentence % 2 for sentence in sorted(ids)},
        texts,
        shown,
    )


def _by_chance(rng: np.random.Generator, num_queries: int, k: int) -> Retrieved:
    ids = np.stack([rng.permutation(50)[:k] for _ in range(num_queries)])
    cosines: Float32Array = -np.sort(
        -rng.uniform(-0.2, 1, (num_queries, k)).astype(np.float32), axis=1
    )
    return Retrieved(ids, cosines)


def write_readings(folder: Path, readings: Readings) -> None:
    LocalFolder(folder).put(FILE, readings.content())
