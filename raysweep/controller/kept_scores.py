"""Which per-query scores stay stored: those of points near the front, and of the other runs of their configurations.

Workers store a file for each rung before they report it. A rung's file goes as soon as none of its points is near the front;
at a session's end the points that are still near are packed into few files. A front only grows, so a point that is no
longer near it never will be again, and it does not matter when that is looked at.
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

Rung = tuple[int, int]  # its trial and step

PART_BYTES = 32 * 2**20  # of the scores that one file packs, before they are compressed

_PART = "part-"
_FILES_AT_ONCE = 32  # that are read, or removed
_SPLITS: tuple[ScoredSplit, ...] = get_args(ScoredSplit)


class KeptScores:
    """The scores of a run's points: which are near the front, and their files. ``num_queries`` are those of dev."""

    def __init__(self, run: Folder, num_queries: int) -> None:
        self._run, self._num_queries = run, num_queries
        self._near: dict[PointName, Pair] = {}  # by name P and S, three standard errors higher
        self._repeats: set[PointName] = (
            set()
        )  # points of replicates that are not near themselves, while their originals are
        self._original_of: dict[int, int] = {}  # of replicates
        self._rungs: dict[Rung, _RungScores] = {}  # of which a point stays
        self._front: list[Pair] = []  # that all points were last compared with

    @property
    def names(self) -> set[PointName]:
        """The points whose scores stay."""
        return {*self._near, *self._repeats}

    @property
    def num_bytes(self) -> int:
        """What the scores on dev take at most."""
        num_points = sum(rung.num_stored for rung in self._rungs.values())
        return num_points * self._num_queries * BYTES_PER_QUERY

    def restore(self, points: Sequence[Point], front: Sequence[Point], original_of: Mapping[int, int]) -> None:
        """Come to where these points of a ledger led, whose front this is. Files stay as they are until the end."""
        self._original_of.update(original_of)
        self._add(points)
        self._drop_far(points, front)

    def take(self, points: Sequence[Point], front: Sequence[Point], original: int | None = None) -> None:
        """Take in a rung's points, of a replicate of ``original`` if given, and remove files that are not needed now."""
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
        """Forget the points that are not near; the rungs of which none is left. Points that are not new were near before."""
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
        """The point that this one repeats with another seed."""
        trial, step, kind, value = name
        original = None if trial is None else self._original_of.get(trial)
        return None if original is None else (original, step, kind, value)

    def tidy(self) -> None:
        """Remove the files of rungs that are not needed, also of one that was cut off between its scores and its report."""
        needed = {location.name_of(rung_file("dev", trial, step)) for trial, step in self._rungs}
        for split in _SPLITS:
            files = self._files(split)
            self._remove(split, [file for file in files if not _is_part(file) and file not in needed])

    def pack(self, warn: Callable[[str], None]) -> None:
        """Put the scores that stay into few files. A kill within leaves some of them twice, which count once."""
        for split in _SPLITS:
            try:
                self._pack(split)
            except (OSError, InputError) as error:
                warn(f"run: the files of {FOLDER}/{split} stay as they are: {error}")

    def _pack(self, split: ScoredSplit) -> None:
        files = self._files(split)
        if all(_is_part(file) for file in files):  # nothing has come since they were packed
            return
        left = self.names  # that no part has yet
        batch: list[PackedScores] = []
        done: list[str] = []
        for file, packed in self._read(split, files):
            if batch and packed.num_queries != batch[0].num_queries:
                continue  # it is damaged, as whoever reads the scores is told
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
        # Parts first: as long as there are other files, they are packed again.
        self._remove(split, [file for file in done if _is_part(file)])
        self._remove(split, [file for file in done if not _is_part(file)])

    def _write_part(self, split: ScoredSplit, batch: Sequence[PackedScores]) -> None:
        name = f"{_PART}{uuid.uuid4().hex[:12]}"
        self._run.keep(scores_file(split, name), joined(batch).content())

    def _files(self, split: ScoredSplit) -> list[str]:
        """The stored files of a split but for the one of the points that no trial made."""
        baselines = location.name_of(baselines_file(split))
        names = self._run.names(f"{FOLDER}/{split}")
        return sorted(
            name for name in names if name != baselines and name.endswith(".npz") and not name.startswith(".")
        )

    def _read(self, split: ScoredSplit, files: Sequence[str]) -> Iterator[tuple[str, PackedScores]]:
        """The files with their scores, but for damaged ones."""
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
    """How many points of a rung were stored, and which of them stay."""

    num_stored: int = 0
    staying: set[PointName] = field(default_factory=set)


def _rung_of(name: PointName) -> Rung:
    trial, step, _, _ = name
    assert trial is not None and step is not None
    return trial, step


def _is_part(file: str) -> bool:
    """Whether a session packed a file, by its name; others hold one rung each."""
    return file.startswith(_PART)
