"""Per-query scores of a run's points, stored in ``RUN/scores/SPLIT``.

On dev, scores are kept for the reference, the oracle, the probe, and points within three standard
errors of the front. For each of these points, the scores of the same point in replicates are also
kept. Each file is an ``.npz`` archive with the scores of several points:

``names``        JSON as bytes: a list with the trial, step, kind and value of each point
``SCORE``        (points, queries), one array per score. Continuous scores such as S are int16 multiples
                 of 1/32767, accurate to 1.5e-5. Other scores are indices into ``SCORE_values``, in the
                 smallest unsigned integer type.
``SCORE_values`` the distinct values of a score that is not continuous, float64 (values,)
"""

import io
import itertools
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from raysweep.errors import DamagedError, InputError
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import dominated_by
from raysweep.metrics.scores import SCORES, WATCHED, Goals, spec_of
from raysweep.results.ledger import point_name
from raysweep.results.types import Point, Results, ScoredSplit
from raysweep.results.views import front_points
from raysweep.storage import location
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import Folder

PointName = tuple[int | None, int | None, str, float | None]
"""A point's trial, step, kind and value. Trial and step are None for points outside trials."""

FOLDER = "scores"

STANDARD_ERRORS = 3.0
"""A point is near the front if raising its P and S by this many standard errors makes it non-dominated."""


def bytes_per_query() -> int:
    """Return an upper bound on the uncompressed bytes per point and query."""
    has_values = [
        spec for spec in SCORES.values() if spec.relative_to is None and spec.name != WATCHED
    ]
    num_of_relations = sum(spec.is_of_relations for spec in has_values)
    return 2 * max(num_of_relations, len(has_values) - num_of_relations)


_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    MemoryError,
    RuntimeError,  # flags and compression methods that zipfile does not support
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions that NumPy may raise for a damaged ``.npz`` file."""

_VALUES = "_values"
_STEPS = 32767  # number of steps from 0 to 1 in a stored continuous score
# maximum difference between the mean of stored scores and the mean in the ledger
_MAX_DIFFERENCE = 1e-3
_TRIES = 10  # attempts to read the files of a running sweep
_SPLITS: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
# kinds of points outside trials that have per-query scores
_SCORED = (
    "reference",
    "oracle",
    "probe",
)


def name_of_point(point: Point) -> PointName:
    """Return a point's name, which is unique within a run and split."""
    return point.trial, point.step, point.kind, point.value


@dataclass(frozen=True)
class QueryScores:
    """Per-query P and S of several points on one split.

    ``scores`` is (points, 2, queries), with points in the order of ``names``. The sweep's ``goals``
    are the scores that serve as P and S.
    """

    split: ScoredSplit
    names: tuple[PointName, ...]
    scores: Float64Array
    goals: Goals

    @cached_property
    def _rows(self) -> dict[PointName, int]:
        return {name: row for row, name in enumerate(self.names)}

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def index(self, name: PointName) -> int:
        """Return a point's row. Raise ``KeyError`` if its scores are not stored."""
        return self._rows[name]

    def rows(self, names: Iterable[PointName]) -> npt.NDArray[np.int64]:
        """Return the rows of several points. Raise ``KeyError`` if any scores are not stored."""
        return np.array([self._rows[name] for name in names], dtype=np.int64)


def scores_file(split: ScoredSplit, name: str) -> str:
    """Return the path of a score file, relative to the run folder."""
    return f"{FOLDER}/{split}/{name}.npz"


def rung_file(split: ScoredSplit, trial: int, step: int) -> str:
    """Return the path of a rung's score file, relative to the run folder."""
    return scores_file(split, point_name(trial, step))


def baselines_file(split: ScoredSplit) -> str:
    """Return the path of the score file for the reference, oracle and probe, relative to the run folder."""
    return scores_file(split, "baselines")


@dataclass(frozen=True)
class PackedArray:
    """One score for several points.

    ``codes`` (points, queries) are indices into ``values``, or multiples of 1/32767 if ``values`` is None.
    """

    codes: npt.NDArray[Any]
    values: Float64Array | None = None

    @classmethod
    def pack(cls, scores: Float64Array, *, is_continuous: bool) -> "PackedArray":
        if is_continuous:
            steps = np.rint(np.nan_to_num(scores) * _STEPS)
            clipped = np.clip(steps, -_STEPS, _STEPS)
            return cls(clipped.astype(np.int16))
        values, codes = np.unique(scores, return_inverse=True)
        smallest = _smallest_type(values)
        return cls(codes.reshape(scores.shape).astype(smallest), values)

    @classmethod
    def read(
        cls, arrays: Mapping[str, npt.NDArray[Any]], name: str, num_points: int
    ) -> "PackedArray":
        """Return the score ``name`` from a file's arrays. Raise ``ValueError`` if the data is damaged."""
        codes = arrays[name]
        has_rows = codes.ndim == 2 and len(codes) == num_points
        if codes.dtype == np.int16 and has_rows:
            return cls(codes)
        values = arrays.get(f"{name}{_VALUES}")
        if values is None:
            raise ValueError(f"array {name + _VALUES!r} is missing")
        has_values = values.ndim == 1 and values.dtype == np.float64
        if not (has_rows and has_values and codes.dtype.kind == "u"):
            raise ValueError("the shapes or types of its arrays are inconsistent")
        if codes.size and int(codes.max()) >= len(values):
            raise ValueError(f"{name} refers to values that {name}{_VALUES} does not contain")
        if not np.isfinite(values).all():
            raise ValueError(f"{name}{_VALUES} has values that are not finite")
        return cls(codes, values)

    def unpack(self, rows: Any = slice(None)) -> Float64Array:
        """Return the scores (points, queries), by default of all rows."""
        codes = self.codes[rows]
        scores: Float64Array = (
            codes / np.float64(_STEPS) if self.values is None else self.values[codes]
        )
        return scores

    def select(self, rows: Sequence[int]) -> "PackedArray":
        return PackedArray(self.codes[rows], self.values)


def _smallest_type(values: Float64Array) -> np.dtype[Any]:
    return np.min_scalar_type(max(len(values) - 1, 0))


@dataclass(frozen=True)
class PackedScores:
    """Scores of several points, packed as described in the module docstring and keyed by score."""

    names: tuple[PointName, ...]
    named: Mapping[str, PackedArray]

    @classmethod
    def pack(cls, names: Sequence[PointName], scores: Mapping[str, Float64Array]) -> "PackedScores":
        """Pack scores; each array is (points, queries)."""
        packed = {}
        for name, values in scores.items():
            packed[name] = PackedArray.pack(values, is_continuous=spec_of(name).is_continuous)
        return cls(tuple(names), packed)

    @classmethod
    def pack_points(cls, scores: Mapping[PointName, Mapping[str, Float64Array]]) -> "PackedScores":
        """Pack the scores that all points have; each array is (queries,)."""
        by_point = list(scores.values())
        stacked = {}
        for name in by_point[0]:
            if all(name in named for named in by_point):
                stacked[name] = np.stack([named[name] for named in by_point])
        return cls.pack(list(scores), stacked)

    @classmethod
    def read(cls, content: bytes) -> "PackedScores":
        """Parse a file's content. Raise ``ValueError`` if it is damaged."""
        arrays = read_archive(content)
        if "names" not in arrays:
            raise ValueError("array 'names' is missing")
        names = _parse_names(arrays.pop("names"))
        scores = [name for name in arrays if not name.endswith(_VALUES)]
        named = {name: PackedArray.read(arrays, name, len(names)) for name in scores}
        if len({packed.codes.shape for packed in named.values()}) != 1:
            raise ValueError("the shapes or types of its arrays are inconsistent")
        return cls(names, named)

    def content(self) -> bytes:
        """Encode the scores as the content of an ``.npz`` file."""
        names = json.dumps(self.names).encode()
        arrays: dict[str, npt.NDArray[Any]] = {"names": np.frombuffer(names, np.uint8)}
        for name, packed in self.named.items():
            arrays[name] = packed.codes
            if packed.values is not None:
                arrays[f"{name}{_VALUES}"] = packed.values
        sink = io.BytesIO()
        np.savez_compressed(sink, allow_pickle=False, **arrays)
        return sink.getvalue()

    @property
    def num_bytes(self) -> int:
        """Return the uncompressed size in bytes."""
        return sum(packed.codes.nbytes for packed in self.named.values())

    @property
    def num_queries(self) -> int:
        first = next(iter(self.named.values()))
        return int(first.codes.shape[1])

    def select(self, wanted: Container[PointName]) -> "PackedScores":
        """Return the scores of the points in ``wanted``, ignoring names that are not stored."""
        rows = [row for row, name in enumerate(self.names) if name in wanted]
        names = tuple(self.names[row] for row in rows)
        return PackedScores(
            names, {name: packed.select(rows) for name, packed in self.named.items()}
        )


def read_archive(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in an ``.npz`` file. Raise ``ValueError`` if it is damaged."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return dict(archive)
    except _UNREADABLE:
        # NumPy's own message may suggest loading the file with pickle.
        raise ValueError("the content is not a complete .npz archive") from None


def join_scores(parts: Sequence[PackedScores]) -> PackedScores:
    """Merge the points of one or more files with scores for the same queries.

    If several files contain a point, the last one wins. Scores that some files lack are omitted.
    """
    parts_and_rows: dict[PointName, tuple[int, int]] = {}
    for number, part in enumerate(parts):
        for row, point in enumerate(part.names):
            parts_and_rows[point] = number, row
    named = {}
    for score in parts[0].named:
        own_arrays = [part.named[score] for part in parts if score in part.named]
        if len(own_arrays) < len(parts):
            continue
        arrays = _with_common_values(own_arrays)
        codes = [arrays[number].codes[row] for number, row in parts_and_rows.values()]
        named[score] = PackedArray(np.stack(codes), arrays[0].values)
    return PackedScores(tuple(parts_and_rows), named)


def _with_common_values(arrays: Sequence[PackedArray]) -> Sequence[PackedArray]:
    """Recode arrays of the same score so that they share their values."""
    own_values = [packed.values for packed in arrays if packed.values is not None]
    if not own_values:
        return arrays
    values = np.unique(np.concatenate(own_values))
    smallest = _smallest_type(values)
    recoded = []
    for packed, old_values in zip(arrays, own_values, strict=True):
        positions = np.searchsorted(values, old_values)
        recoded.append(PackedArray(positions.astype(smallest)[packed.codes], values))
    return recoded


def _parse_names(array: npt.NDArray[Any]) -> tuple[PointName, ...]:
    if array.dtype != np.uint8:
        raise ValueError("its point names are invalid")
    try:
        rows = json.loads(array.tobytes())
        names = tuple((trial, step, kind, value) for trial, step, kind, value in rows)
    except (ValueError, TypeError, RecursionError):
        raise ValueError("its point names are invalid") from None
    for trial, step, kind, value in names:
        is_rung = isinstance(trial, int | None) and isinstance(step, int | None)
        is_kind = isinstance(kind, str) and isinstance(value, float | None)
        if not (is_rung and is_kind):
            raise ValueError("its point names are invalid")
    return names


def near_front(
    points: Sequence[Point], front: Sequence[Point], num_queries: int, goals: Goals
) -> npt.NDArray[np.bool_]:
    """Return a mask (points,) of the dev points that are within three standard errors of the front."""
    raised = raised_scores(points, num_queries, goals)
    return ~dominated_by(raised, [point.pair(goals) for point in front])


def raised_scores(points: Sequence[Point], num_queries: int, goals: Goals) -> Float64Array:
    """Return the points' P and S (points, 2), raised by three standard errors.

    The standard error is the standard deviation over queries divided by the square root of their number.
    """
    scores = np.array([point.pair(goals) for point in points], dtype=np.float64)
    deviations = np.array(
        [(point.std(goals.p), point.std(goals.s)) for point in points], dtype=np.float64
    )
    raised: Float64Array = scores + STANDARD_ERRORS * deviations / math.sqrt(max(num_queries, 1))
    return raised.reshape(-1, 2)


def kept_names(results: Results) -> set[PointName]:
    """Return the names of the trials' dev points whose scores are kept.

    These are the points near the front and the same points in replicates.
    """
    points = [point for point in results.points if point.split == "dev" and point.trial is not None]
    num_queries = results.info.num_queries.get("dev", 0)
    goals = results.info.goals
    is_near = near_front(points, front_points(points, goals), num_queries, goals)
    near_points = itertools.compress(points, is_near)
    near_names = {name_of_point(point) for point in near_points}
    original_of = {trial.trial: trial.replicate_of for trial in results.trials}
    repeats = set()
    for point in points:
        assert point.trial is not None
        original = original_of.get(point.trial)
        name_in_original = (original, point.step, point.kind, point.value)
        if original is not None and name_in_original in near_names:
            repeats.add(name_of_point(point))
    return near_names | repeats


def load_query_scores(run: Folder, results: Results) -> Mapping[ScoredSplit, QueryScores]:
    """Return a run's stored scores, keyed by split. ``results`` must be those of the same run.

    The rows are the reference, the oracle's points by bonus, the probe's points by value, and the
    trials' points by name. On test, only front members have scores among the trials' points.

    Raises:
        DamagedError: If a file is damaged, or its scores differ from those in the ledger.
    """
    names = kept_names(results)
    loaded = {}
    for split in _SPLITS:
        scores = _load_split(run, split, results, names)
        if scores is not None:
            loaded[split] = scores
    return loaded


def load_readable_scores(
    run: Folder, results: Results
) -> tuple[dict[ScoredSplit, QueryScores], dict[ScoredSplit, str]]:
    """Return the scores on undamaged splits and the error messages for damaged splits."""
    names = kept_names(results)
    readable: dict[ScoredSplit, QueryScores] = {}
    damage: dict[ScoredSplit, str] = {}
    for split in _SPLITS:
        try:
            scores = _load_split(run, split, results, names)
        except DamagedError as error:
            damage[split] = str(error)
            continue
        if scores is not None:
            readable[split] = scores
    return readable, damage


def _load_split(
    run: Folder, split: ScoredSplit, results: Results, trial_points: Container[PointName]
) -> QueryScores | None:
    """Return the scores on a split, or None if none are stored.

    Only the trials' points in ``trial_points`` are included.
    """
    points = {}
    for point in results.points:
        name = name_of_point(point)
        is_scored = point.kind in _SCORED if point.trial is None else name in trial_points
        if point.split == split and is_scored:
            points[name] = point
    num_queries = results.info.num_queries.get(split, 0)
    goals = results.info.goals
    files_and_rows: dict[
        PointName, tuple[PackedScores, int]
    ] = {}  # the last file with a point wins
    for file, content in _contents(run, f"{FOLDER}/{split}").items():
        place = location.join(run.location, FOLDER, split, file)
        packed = _read_packed(content, points, num_queries, place)
        if not set(goals) <= packed.named.keys():
            continue
        for row, name in enumerate(packed.names):
            files_and_rows[name] = packed, row
    if not files_and_rows:
        return None
    names = sorted(files_and_rows, key=_order)
    scores = np.empty((len(names), len(goals), num_queries))
    for index, name in enumerate(names):
        packed, row = files_and_rows[name]
        for number, goal in enumerate(goals):
            scores[index, number] = packed.named[goal].unpack(row)
    return QueryScores(split, tuple(names), scores, goals)


def _read_packed(
    content: bytes, points: Mapping[PointName, Point], num_queries: int, place: str
) -> PackedScores:
    """Return a file's scores for ``points``, which come from the ledger.

    Raise ``DamagedError`` if the file is damaged or its mean scores differ from those in the ledger.
    """
    try:
        packed = PackedScores.read(content).select(points)
    except ValueError as error:
        raise _damaged(place, str(error)) from None
    if packed.names and packed.num_queries != num_queries:
        raise _damaged(
            place, f"the number of queries is {packed.num_queries}; allowed: {num_queries}"
        )
    for score, array in packed.named.items():
        means = array.unpack().mean(axis=1)
        for name, mean in zip(packed.names, means.tolist(), strict=True):
            point = points[name]
            in_ledger = point.get(score)
            if in_ledger is not None and not abs(mean - in_ledger) <= _MAX_DIFFERENCE:
                raise _damaged(place, f"the scores of {point.name} differ from those in the ledger")
    return packed


def _order(name: PointName) -> tuple[int, int, int, str, float]:
    trial, step, kind, value = name
    group = _SCORED.index(kind) if trial is None else len(_SCORED)
    return group, trial or 0, step or 0, kind, -1.0 if value is None else value


def _contents(run: Folder, folder: str) -> dict[str, bytes]:
    """Return the contents of a folder's ``.npz`` files, keyed by name.

    Reading is retried if a running sweep removes a file in the meantime.
    """
    for attempt in range(_TRIES):
        names = sorted(
            name for name in run.names(folder) if name.endswith(".npz") and not name.startswith(".")
        )
        files = [f"{folder}/{name}" for name in names]
        try:
            return dict(zip(names, run.read(files), strict=True))
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                place = location.join(run.location, folder)
                raise InputError(
                    f"{place}: its files changed during each of {_TRIES} attempts to read them; try again"
                ) from None
        except StorageError:
            raise
        except OSError as error:
            raise DamagedError(f"{error.filename}: cannot be read: {error.strerror}") from None
    raise AssertionError("the last try returns or raises")


def _damaged(place: str, why: str) -> DamagedError:
    return DamagedError(
        f"{place}: is damaged: {why}; remove the file to continue without its scores"
    )
