"""Per-query scores of a run's reference, oracle and probe points, one file per split."""

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from raysweep.metrics.retrieval import Scores
from raysweep.results.query_scores import PackedScores, PointName, baselines_file, joined, name_of_point
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage.folder import Folder


class BaselineScores:
    """Collector of baseline scores that merges them into those already stored in the run."""

    def __init__(self, run: Folder) -> None:
        self._run = run
        self._new: dict[ScoredSplit, dict[PointName, Scores]] = defaultdict(dict)

    def take(self, point: Point, scores: Scores) -> None:
        """Add the scores of a point on its split."""
        self._new[point.split][name_of_point(point)] = scores

    def lacking(self, points: Collection[Point]) -> list[Point]:
        """Return the points whose scores are missing or unreadable."""
        stored = {split: self._stored_names(split) for split in {point.split for point in points}}
        return [point for point in points if name_of_point(point) not in stored[point.split]]

    def keep(self) -> None:
        """Store the collected scores, replacing stored scores of the same points."""
        for split, scores in self._new.items():
            polarity = np.stack([each.polarity for each in scores.values()])
            similarity = np.stack([each.similarity for each in scores.values()])
            packed = PackedScores.pack(list(scores), polarity, similarity)
            stored = self._stored(split)
            if stored is not None and stored.num_queries == packed.num_queries:
                packed = joined([stored, packed])
            self._run.keep(baselines_file(split), packed.content())

    def _stored_names(self, split: ScoredSplit) -> tuple[PointName, ...]:
        stored = self._stored(split)
        return () if stored is None else stored.names

    def _stored(self, split: ScoredSplit) -> PackedScores | None:
        """Return the stored scores of a split, or None if the file is missing or damaged.

        A damaged file is then overwritten.
        """
        try:
            (content,) = self._run.read([baselines_file(split)])
            return PackedScores.read(content)
        except (FileNotFoundError, ValueError):
            return None
