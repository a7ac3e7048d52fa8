"""Storage of per-query scores: those of points near the front and of the other runs of their configurations.

Workers store one file per rung before they report the rung. A rung's file is removed once all its points are dropped; at
the end of a session, the remaining points are packed into a few files. The front only grows, so a point that is no longer
near it never will be again, and the time of this check does not matter.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.metrics.pareto import dominated_by
from raysweep.results.query_scores import (
    BYTES_PER_QUERY,
    FOLDER,
    PackedScores,
    PointName,
    baselines_file,
    joined,
    name_of_point,
    raised_scores,
    rung_file,
    scores_file,
)
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage import location
from raysweep.storage.folder import Folder

Rung = tuple[int, int]  # trial and step

PART_BYTES = 32 * 2**20  # minimum size of a full part before compression

_PART = "part-"
_FILES_AT_ONCE = 32  # files read or removed at a time
_SPLITS: tuple[ScoredSplit, ...] = get_args(ScoredSplit)


class KeptScores:
    """The per-query scores that a run keeps, and their files. ``num_queries`` is the number of queries of dev."""

    def __init__(self, run: Folder, num_queries: int) -> None:
        self._run, self._num_queries = run, num_queries
        self._near: dict[PointName, Pair] = {}  # P and S by name, three standard errors higher
        self._repeats: set[PointName] = (
            set()
        )  # points of replicates that are far from the front while their originals are near it
        self._original_of: dict[int, int] = {}  # original trials by replicate
        self._rungs: dict[Rung, _RungScores] = {}  # rungs with at least one kept point
        self._front: list[Pair] = []  # the front of the last comparison with all points

    @property
    def names(self) -> set[PointName]:
        """Return the points whose scores are kept."""
        return {*self._near, *self._repeats}

    @property
    def num_bytes(self) -> int:
        """Return the maximum size in bytes of the scores on dev."""
        num_points = sum(rung.num_stored for rung in self._rungs.values())
        return num_points * self._num_queries * BYTES_PER_QUERY

    def restore(self, points: Sequence[Point], front: Sequence[Point], original_of: Mapping[int, int]) -> None:
        """Restore the state from the points and the front of a ledger. Files are not changed."""
        self._original_of.update(original_of)
        self._add(points)
        self._drop_far(points, front)

    def take(self, points: Sequence[Point], front: Sequence[Point], original: int | None = None) -> None:
        """Add a rung's points, those of a replicate if ``original`` is given, and remove files no longer needed."""
        if original is not None:
            self._original_of.update((point.trial, original) for point in points if point.trial is not None)
        self._add(points)
        for trial, step in self._drop_far(points, front):
            self._run.remove(rung_file("dev", trial, step))

    def _add(self, points: Sequence[Point]) -> None:
        raised = raised_scores(points, self._num_queries).tolist()
        for point, (polarity, similarity) in zip(points, raised, strict=True):
            name = name_of_point(point)
            self._near[name] = polarity, similarity
            rung = self._rungs.setdefault(_rung_of(name), _RungScores())
            rung.num_stored += 1
            rung.staying.add(name)

    def _drop_far(self, new: Sequence[Point], front: Sequence[Point]) -> list[Rung]:
        """Forget the points far from the front, and return the rungs without a remaining point.

        Points other than ``new`` were near the last front, so they are compared again only if the front changed.
        """
        pairs = [(point.polarity, point.similarity) for point in front]
        names = list(self._near) if pairs != self._front else [name_of_point(point) for point in new]
        self._front = pairs
        is_far = dominated_by([self._near[name] for name in names], pairs)
        far = [names[position] for position in np.flatnonzero(is_far)]
        for name in far:
            del self._near[name]
        doubtful = [*self._repeats, *far]
        self._repeats = {name for name in doubtful if self._original(name) in self._near}
        gone = []
        for name in set(doubtful) - self._repeats:
            rung = _rung_of(name)
            staying = self._rungs[rung].staying
            staying.remove(name)
            if not staying:
                del self._rungs[rung]
                gone.append(rung)
        return gone

    def _original(self, name: PointName) -> PointName | None:
        """Return the point that this one repeats with another seed, or None."""
        trial, step, kind, value = name
        original = None if trial is None else self._original_of.get(trial)
        return None if original is None else (original, step, kind, value)

    def tidy(self) -> None:
        """Remove the files of rungs without kept points, including rungs that were never reported."""
        needed = {location.name_of(rung_file("dev", trial, step)) for trial, step in self._rungs}
        for split in _SPLITS:
            files = self._files(split)
            self._remove(split, [file for file in files if not _is_part(file) and file not in needed])

    def pack(self, warn: Callable[[str], None]) -> None:
        """Pack the kept scores into a few files. If the process is killed here, duplicates are left, which count once."""
        for split in _SPLITS:
            try:
                self._pack(split)
            except (OSError, InputError) as error:
                warn(f"run: the files of {FOLDER}/{split} stay as they are: {error}")

    def _pack(self, split: ScoredSplit) -> None:
        files = self._files(split)
        if all(_is_part(file) for file in files):  # nothing new since the last time
            return
        left = self.names  # points not yet in a part
        batch: list[PackedScores] = []
        done: list[str] = []
        for file, packed in self._read(split, files):
            if batch and packed.num_queries != batch[0].num_queries:
                continue  # damaged; reported when the scores are read
            done.append(file)
            staying = packed.only(left)
            if staying.names:
                batch.append(staying)
                left.difference_update(staying.names)
            if sum(each.num_bytes for each in batch) >= PART_BYTES:
                self._write_part(split, batch)
                batch = []
        if batch:
            self._write_part(split, batch)
        # Old parts go first: as long as other files remain, the next session packs again.
        self._remove(split, [file for file in done if _is_part(file)])
        self._remove(split, [file for file in done if not _is_part(file)])

    def _write_part(self, split: ScoredSplit, batch: Sequence[PackedScores]) -> None:
        name = f"{_PART}{uuid.uuid4().hex[:12]}"
        self._run.keep(scores_file(split, name), joined(batch).content())

    def _files(self, split: ScoredSplit) -> list[str]:
        """Return the stored files of a split except the file of the baselines."""
        baselines = location.name_of(baselines_file(split))
        names = self._run.names(f"{FOLDER}/{split}")
        return sorted(
            name for name in names if name != baselines and name.endswith(".npz") and not name.startswith(".")
        )

    def _read(self, split: ScoredSplit, files: Sequence[str]) -> Iterator[tuple[str, PackedScores]]:
        """Yield the files with their scores, except damaged ones."""
        for start in range(0, len(files), _FILES_AT_ONCE):
            some = files[start : start + _FILES_AT_ONCE]
            contents = self._run.read([f"{FOLDER}/{split}/{file}" for file in some])
            for file, content in zip(some, contents, strict=True):
                with contextlib.suppress(ValueError):
                    yield file, PackedScores.read(content)

    def _remove(self, split: ScoredSplit, files: Sequence[str]) -> None:
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            list(pool.map(self._run.remove, [f"{FOLDER}/{split}/{file}" for file in files]))


@dataclass
class _RungScores:
    """The number of points stored for a rung and the points that are kept."""

    num_stored: int = 0
    staying: set[PointName] = field(default_factory=set)


def _rung_of(name: PointName) -> Rung:
    trial, step, _, _ = name
    assert trial is not None and step is not None
    return trial, step


def _is_part(file: str) -> bool:
    """Return whether a file is a packed part, by its name. Other files contain one rung each."""
    return file.startswith(_PART)
