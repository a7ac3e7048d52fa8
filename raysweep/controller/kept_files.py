"""Cleanup of a run's weights and per-query scores.

Weights are kept for the front's points, up to a size limit. Scores are kept for points near the front and for the
corresponding points of replicates. Workers store one file of scores per rung before they report the rung. The file is
removed once all of the rung's points have been dropped. At the end of a session, the remaining scores are packed into a
few files. The front only advances, so a point that is no longer near it can be dropped at any time.
"""

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np

from raysweep.errors import InputError
from raysweep.metrics.pareto import dominated_by, hypervolume
from raysweep.metrics.scores import Goals, Pair
from raysweep.results.ledger import checkpoint_folder, point_name
from raysweep.results.query_scores import (
    FOLDER,
    PackedScores,
    PointName,
    baselines_file,
    bytes_per_query,
    join_scores,
    name_of_point,
    raised_scores,
    rung_file,
    scores_file,
)
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage import location
from raysweep.storage.folder import Folder

POINTS = "points"
CHECKPOINTS = "checkpoints"

PART_BYTES = 32 * 2**20  # minimum uncompressed size of each part except the last

_PART = "part-"
_FILES_AT_ONCE = 32  # number of files to read or remove at once
_SPLITS: tuple[ScoredSplit, ...] = get_args(ScoredSplit)

Rung = tuple[int, int]  # trial and step


class WeightStore:
    """The weights of a run's points, stored in one folder per rung.

    ``limit`` is the maximum total size of the weights and of ``others``, the run's other files. All sizes are in bytes.
    """

    def __init__(self, run: Folder, limit: int, goals: Goals) -> None:
        self._run = run
        self._limit = limit
        self._goals = goals
        self._sizes: dict[str, int] = {}  # in bytes, keyed by folder

    def select_stored(self, front: Sequence[Point]) -> list[Point]:
        """Return the points whose weights are stored."""
        stored = self._stored_folders(front)
        return [point for point in front if _folder_name(point) in stored]

    def keep_only(self, front: Sequence[Point], among: Sequence[Point] | None = None) -> None:
        """Remove the folders that no point of ``front`` needs.

        If ``among`` is given, only folders of these points are removed. Other folders may belong to rungs that have not
        been reported yet.
        """
        candidates = (
            self._run.names(POINTS) if among is None else {_folder_name(point) for point in among}
        )
        needed = {_folder_name(point) for point in front}
        for name in candidates - needed:
            self._run.remove(f"{POINTS}/{name}")

    def is_full(self, front: Sequence[Point], others: int) -> bool:
        """Return whether the front's weights and ``others`` together exceed the limit."""
        return self._num_bytes(self._stored_folders(front)) + others > self._limit

    def shrink(self, front: Sequence[Point], others: int) -> list[Point]:
        """Remove the weights with the smallest hypervolume contributions until the limit is met.

        At least one rung's weights are kept. Returns one point for each rung whose weights were removed.
        """
        stored = self._stored_folders(front)
        max_bytes = self._limit - others
        if len(stored) < 2 or self._num_bytes(stored) <= max_bytes:
            return []
        full_area = self._hypervolume(front)
        losses = {}  # hypervolume contribution of each folder's points
        for name in stored:
            remaining = [point for point in front if _folder_name(point) != name]
            losses[name] = full_area - self._hypervolume(remaining)
        cheapest_first = sorted(stored, key=lambda name: (losses[name], name))
        removed = []
        for name in cheapest_first[:-1]:
            if self._num_bytes(stored) <= max_bytes:
                break
            self._run.remove(f"{POINTS}/{name}")
            stored.remove(name)
            points = (point for point in front if _folder_name(point) == name)
            removed.append(next(points))
        return removed

    def checkpoint_bytes(self, trials: Collection[int]) -> int:
        """Return the total size of these trials' checkpoints, in bytes."""
        if not trials:
            return 0
        folders = {Path(checkpoint_folder(number)).name for number in trials}
        sizes = self._run.sizes(CHECKPOINTS)
        return sum(size for name, size in sizes.items() if name.partition("/")[0] in folders)

    def _stored_folders(self, front: Sequence[Point]) -> set[str]:
        """Return the names of the front's folders that exist."""
        return {_folder_name(point) for point in front} & self._run.names(POINTS)

    def _hypervolume(self, points: Sequence[Point]) -> float:
        return hypervolume([point.pair(self._goals) for point in points], (0.0, 0.0))

    def _num_bytes(self, folders: set[str]) -> int:
        # sizes are cached, because only test scores change a folder after it is written
        for name in folders - self._sizes.keys():
            self._sizes[name] = sum(self._run.sizes(f"{POINTS}/{name}").values())
        return sum(self._sizes[name] for name in folders)


def _folder_name(point: Point) -> str:
    assert point.trial is not None and point.step is not None
    return point_name(point.trial, point.step)


@dataclass
class _RungScores:
    """The number of points stored for a rung, and the names of the points to keep."""

    num_stored: int = 0
    names: set[PointName] = field(default_factory=set)


class KeptScores:
    """The per-query scores that a run keeps. ``num_queries`` is the number of dev queries."""

    def __init__(self, run: Folder, num_queries: int, goals: Goals) -> None:
        self._run = run
        self._num_queries = num_queries
        self._goals = goals
        self._near: dict[
            PointName, Pair
        ] = {}  # P and S raised by three standard errors, keyed by name
        # points of replicates that are kept only because their originals are near the front
        self._repeats: set[PointName] = set()
        self._original_of: dict[int, int] = {}  # the original trial of each replicate
        self._rungs: dict[Rung, _RungScores] = {}  # rungs with at least one kept point
        self._front: list[Pair] = []  # the front when all points were last compared with it

    @property
    def names(self) -> set[PointName]:
        """Return the names of the points whose scores are kept."""
        return {*self._near, *self._repeats}

    @property
    def num_bytes(self) -> int:
        """Return an upper bound on the size of the dev scores, in bytes."""
        num_points = sum(rung.num_stored for rung in self._rungs.values())
        return num_points * self._num_queries * bytes_per_query()

    def restore(
        self, points: Sequence[Point], front: Sequence[Point], original_of: Mapping[int, int]
    ) -> None:
        """Restore the state from a ledger's points and front. Files are not changed."""
        self._original_of.update(original_of)
        self._add(points)
        self._drop_far(points, front)

    def take(
        self, points: Sequence[Point], front: Sequence[Point], original: int | None = None
    ) -> None:
        """Add a rung's points, and remove files that are no longer needed.

        If the trial is a replicate, ``original`` is its original trial.
        """
        if original is not None:
            self._original_of.update(
                (point.trial, original) for point in points if point.trial is not None
            )
        self._add(points)
        for trial, step in self._drop_far(points, front):
            self._run.remove(rung_file("dev", trial, step))

    def _add(self, points: Sequence[Point]) -> None:
        raised = raised_scores(points, self._num_queries, self._goals).tolist()
        for point, (polarity, similarity) in zip(points, raised, strict=True):
            name = name_of_point(point)
            self._near[name] = polarity, similarity
            rung = self._rungs.setdefault(_rung_of(name), _RungScores())
            rung.num_stored += 1
            rung.names.add(name)

    def _drop_far(self, new: Sequence[Point], front: Sequence[Point]) -> list[Rung]:
        """Drop the points that are far from the front, and return the rungs that have no points left.

        If the front has not changed, only the points in ``new`` are compared with it.
        """
        pairs = [point.pair(self._goals) for point in front]
        has_changed = pairs != self._front
        self._front = pairs
        names = list(self._near) if has_changed else [name_of_point(point) for point in new]
        raised = [self._near[name] for name in names]
        is_far = dominated_by(raised, pairs)
        far = [names[position] for position in np.flatnonzero(is_far)]
        for name in far:
            del self._near[name]
        candidates = [*self._repeats, *far]
        self._repeats = set()
        for name in candidates:
            trial, step, kind, value = name
            original = None if trial is None else self._original_of.get(trial)
            if original is not None and (original, step, kind, value) in self._near:
                self._repeats.add(name)
        emptied = []
        for name in set(candidates) - self._repeats:
            rung = _rung_of(name)
            names_of_rung = self._rungs[rung].names
            names_of_rung.remove(name)
            if not names_of_rung:
                del self._rungs[rung]
                emptied.append(rung)
        return emptied

    def tidy(self) -> None:
        """Remove the files of rungs without kept points, including rungs that were never reported."""
        needed = {location.base_name(rung_file("dev", trial, step)) for trial, step in self._rungs}
        for split in _SPLITS:
            unneeded = [
                file for file in self._files(split) if not _is_part(file) and file not in needed
            ]
            self._remove(split, unneeded)

    def pack(self, warn: Callable[[str], None]) -> None:
        """Pack the kept scores into a few files. Duplicates that a killed process leaves behind are harmless."""
        for split in _SPLITS:
            try:
                self._pack(split)
            except (OSError, InputError) as error:
                warn(f"run: files not packed (folder={FOLDER}/{split}, reason={error})")

    def _pack(self, split: ScoredSplit) -> None:
        files = self._files(split)
        if all(_is_part(file) for file in files):  # nothing has been added since the last call
            return
        unpacked = self.names  # points that are not in a part yet
        batch: list[PackedScores] = []
        batch_bytes = 0
        packed_files: list[str] = []
        for file, scores in self._read(split, files):
            if batch and scores.num_queries != batch[0].num_queries:
                continue  # the file is damaged, which is reported when the scores are read
            packed_files.append(file)
            selected = scores.select(unpacked)
            if selected.names:
                batch.append(selected)
                batch_bytes += selected.num_bytes
                unpacked.difference_update(selected.names)
            if batch_bytes >= PART_BYTES:
                self._write_part(split, batch)
                batch = []
                batch_bytes = 0
        if batch:
            self._write_part(split, batch)
        # Remove old parts first, because the next session packs again only if other files remain.
        self._remove(split, [file for file in packed_files if _is_part(file)])
        self._remove(split, [file for file in packed_files if not _is_part(file)])

    def _write_part(self, split: ScoredSplit, batch: Sequence[PackedScores]) -> None:
        name = f"{_PART}{uuid.uuid4().hex[:12]}"
        self._run.keep(scores_file(split, name), join_scores(batch).content())

    def _files(self, split: ScoredSplit) -> list[str]:
        """Return a split's stored files, except the baselines' file."""
        baselines = location.base_name(baselines_file(split))
        names = self._run.names(f"{FOLDER}/{split}") - {baselines}
        return sorted(name for name in names if name.endswith(".npz") and not name.startswith("."))

    def _read(self, split: ScoredSplit, files: Sequence[str]) -> Iterator[tuple[str, PackedScores]]:
        """Yield each file and its scores, skipping damaged files."""
        for start in range(0, len(files), _FILES_AT_ONCE):
            batch = files[start : start + _FILES_AT_ONCE]
            contents = self._run.read([f"{FOLDER}/{split}/{file}" for file in batch])
            for file, content in zip(batch, contents, strict=True):
                with contextlib.suppress(ValueError):
                    yield file, PackedScores.read(content)

    def _remove(self, split: ScoredSplit, files: Sequence[str]) -> None:
        paths = [f"{FOLDER}/{split}/{file}" for file in files]
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            list(pool.map(self._run.remove, paths))


def _rung_of(name: PointName) -> Rung:
    trial, step, _, _ = name
    assert trial is not None and step is not None
    return trial, step


def _is_part(file: str) -> bool:
    """Return whether a file is a packed part, as opposed to the scores of a single rung."""
    return file.startswith(_PART)
