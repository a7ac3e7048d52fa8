"""Per-query scores of a run's points, stored in ``RUN/scores/SPLIT``, and the selection of points to keep.

Scores are kept for every point within three standard errors of the front on dev, all runs of such a point's configuration,
the reference, the oracle at each of its bonuses, and the probe. A file is an ``.npz`` archive of several points:

``names``            JSON as bytes: a list of trial, step, kind and value for each point
``polarity_values``  distinct values of P, float64 (values,); with k neighbors there are few
``polarity``         (points, queries) indices into ``polarity_values``, in the smallest sufficient unsigned integer type
``similarity``       (points, queries) S in multiples of 1/32767, int16, accurate to 1.5e-5
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
from raysweep.results.ledger import point_name
from raysweep.results.types import Point, Results, ScoredSplit
from raysweep.results.views import front_points
from raysweep.storage import location
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import Folder

PointName = tuple[int | None, int | None, str, float | None]
"""A point's trial, step, kind and value; trial and step are None for the reference, the oracle and the probe."""

FOLDER = "scores"

STANDARD_ERRORS = 3.0
"""A point is near the front if raising its P and S by this many standard errors makes it non-dominated."""

BYTES_PER_QUERY = 4  # maximum for one point, before compression

_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    MemoryError,
    RuntimeError,  # for flags and compression methods unknown to zipfile
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions that NumPy raises for a damaged ``.npz`` file."""

_STEPS = 32767  # of S, from 0 to 1
_MAX_DIFFERENCE = 1e-3  # maximum difference between the mean of stored scores and the ledger's
_TRIES = 10  # attempts to list and read the files of a running sweep
_SPLITS: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
_SCORED = ("reference", "oracle", "probe")  # kinds of points without a trial that have per-query scores


def name_of_point(point: Point) -> PointName:
    """Return the name of a point, which is unique within its run and split."""
    return point.trial, point.step, point.kind, point.value


@dataclass(frozen=True)
class QueryScores:
    """Per-query scores on a split: ``polarity`` in [0, 1] and ``similarity``, both (points, queries).

    Rows are in the order of ``names``. Queries are the same and in the same order in all rows.
    """

    split: ScoredSplit
    names: tuple[PointName, ...]
    polarity: Float64Array
    similarity: Float64Array

    @cached_property
    def _rows(self) -> dict[PointName, int]:
        return {name: row for row, name in enumerate(self.names)}

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def index(self, name: PointName) -> int:
        """Return the row of a point. Raise ``KeyError`` if its scores are not stored."""
        return self._rows[name]

    def rows(self, names: Iterable[PointName]) -> npt.NDArray[np.int64]:
        """Return the rows of several points. Raise ``KeyError`` like :meth:`index`."""
        return np.array([self._rows[name] for name in names], dtype=np.int64)


def scores_file(split: ScoredSplit, name: str) -> str:
    """Return the path of a file of scores on a split, relative to the run."""
    return f"{FOLDER}/{split}/{name}.npz"


def rung_file(split: ScoredSplit, trial: int, step: int) -> str:
    """Return the path of the file with the scores of a rung's points, relative to the run."""
    return scores_file(split, point_name(trial, step))


def baselines_file(split: ScoredSplit) -> str:
    """Return the path of the file with the scores of the reference, the oracle and the probe, relative to the run."""
    return scores_file(split, "baselines")


@dataclass(frozen=True)
class PackedScores:
    """Scores of several points in the file format described in the module's docstring."""

    names: tuple[PointName, ...]
    polarity_values: Float64Array
    polarity: npt.NDArray[np.unsignedinteger[Any]]
    similarity: npt.NDArray[np.int16]

    @classmethod
    def pack(cls, names: Sequence[PointName], polarity: Float64Array, similarity: Float64Array) -> "PackedScores":
        """Pack ``polarity`` and ``similarity``, both (points, queries)."""
        values, codes = np.unique(polarity, return_inverse=True)
        smallest = np.min_scalar_type(max(len(values) - 1, 0))
        steps = np.rint(np.nan_to_num(similarity) * _STEPS)
        clipped = np.clip(steps, -_STEPS, _STEPS)
        positions = codes.reshape(polarity.shape).astype(smallest)
        return cls(tuple(names), values, positions, clipped.astype(np.int16))

    @classmethod
    def read(cls, content: bytes) -> "PackedScores":
        """Parse the content of a file. Raise ``ValueError`` with the reason if it is damaged."""
        arrays = read_archive(content)
        try:
            stored_names, values = arrays["names"], arrays["polarity_values"]
            codes, similarity = arrays["polarity"], arrays["similarity"]
        except KeyError as error:
            raise ValueError(f"array {error.args[0]!r} is missing") from None
        names = _parse_names(stored_names)
        has_rows = codes.ndim == 2 and len(codes) == len(names)
        has_shapes = has_rows and similarity.shape == codes.shape
        has_types = codes.dtype.kind == "u" and similarity.dtype == np.int16
        has_values = values.ndim == 1 and values.dtype == np.float64
        if not (has_shapes and has_types and has_values):
            raise ValueError("the shapes or types of its arrays are inconsistent")
        if codes.size and int(codes.max()) >= len(values):
            raise ValueError("polarity refers to values that polarity_values does not have")
        if not np.isfinite(values).all():
            raise ValueError("polarity_values has values that are not finite")
        return cls(names, values, codes, similarity)

    def content(self) -> bytes:
        """Return the content of a file with these scores."""
        names = json.dumps(self.names).encode()
        sink = io.BytesIO()
        np.savez_compressed(
            sink,
            names=np.frombuffer(names, np.uint8),
            polarity_values=self.polarity_values,
            polarity=self.polarity,
            similarity=self.similarity,
        )
        return sink.getvalue()

    @property
    def num_bytes(self) -> int:
        """Return the size of the arrays in bytes before compression."""
        return self.polarity.nbytes + self.similarity.nbytes

    @property
    def num_queries(self) -> int:
        return int(self.polarity.shape[1])

    def scores(self) -> tuple[Float64Array, Float64Array]:
        """Return P and S, each (points, queries)."""
        polarity: Float64Array = self.polarity_values[self.polarity]
        similarity: Float64Array = self.similarity / np.float64(_STEPS)
        return polarity, similarity

    def select(self, wanted: Container[PointName]) -> "PackedScores":
        """Return the scores of the ``wanted`` points, which may be empty."""
        rows = [row for row, name in enumerate(self.names) if name in wanted]
        names = tuple(self.names[row] for row in rows)
        return PackedScores(names, self.polarity_values, self.polarity[rows], self.similarity[rows])


def read_archive(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an ``.npz`` file, without unpickling. Raise ``ValueError`` if it is damaged."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return dict(archive)
    except _UNREADABLE:
        # NumPy's own message may suggest unpickling the file.
        raise ValueError("the content is not a complete .npz archive") from None


def join_scores(parts: Sequence[PackedScores]) -> PackedScores:
    """Join the points of at least one file over the same queries. The last file with a point takes precedence."""
    all_values = np.concatenate([part.polarity_values for part in parts])
    values = np.unique(all_values)
    smallest = np.min_scalar_type(max(len(values) - 1, 0))
    polarity: dict[PointName, npt.NDArray[Any]] = {}
    similarity: dict[PointName, npt.NDArray[Any]] = {}
    for part in parts:
        positions = np.searchsorted(values, part.polarity_values)
        codes = positions.astype(smallest)[part.polarity]
        polarity |= zip(part.names, codes, strict=True)
        similarity |= zip(part.names, part.similarity, strict=True)
    return PackedScores(
        names=tuple(polarity),
        polarity_values=values,
        polarity=np.stack(list(polarity.values())),
        similarity=np.stack(list(similarity.values())),
    )


def _parse_names(array: npt.NDArray[Any]) -> tuple[PointName, ...]:
    """Parse the names of a file's points. Raise ``ValueError`` if they are invalid."""
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


def near_front(points: Sequence[Point], front: Sequence[Point], num_queries: int) -> npt.NDArray[np.bool_]:
    """Return a mask (points,) of the points within three standard errors of the front, all on dev.

    The standard error of a score is its standard deviation over queries divided by the square root of their number.
    """
    raised = raised_scores(points, num_queries)
    return ~dominated_by(raised, [(point.polarity, point.similarity) for point in front])


def raised_scores(points: Sequence[Point], num_queries: int) -> Float64Array:
    """Return P and S of the points (points, 2), raised by three standard errors."""
    scores = np.array([(point.polarity, point.similarity) for point in points], dtype=np.float64)
    deviations = np.array([(point.polarity_std, point.similarity_std) for point in points], dtype=np.float64)
    raised: Float64Array = scores + STANDARD_ERRORS * deviations / math.sqrt(max(num_queries, 1))
    return raised.reshape(-1, 2)


def kept_names(results: Results) -> set[PointName]:
    """Return the trials' points whose scores a run keeps: those near the front and their replicates."""
    points = [point for point in results.points if point.split == "dev" and point.trial is not None]
    num_queries = results.info.num_queries.get("dev", 0)
    is_near = near_front(points, front_points(points), num_queries)
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
    """Return the stored scores of a run, keyed by split. ``results`` are the run's own.

    The rows of a split are the reference, the oracle's points sorted by bonus, the probe's points sorted by value, and
    the trials' points sorted by name, if they are stored. On test, only members of the front have scores.

    Raises:
        DamagedError: If a file is damaged or its scores differ from those in the ledger.
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
    """Return the scores of the undamaged splits, and the error message for each damaged split."""
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
    """Return the scores on a split, or None if none are stored. Only ``trial_points`` are read from those of trials."""
    points = _scored_points(results, split, trial_points)
    num_queries = results.info.num_queries.get(split, 0)
    files_and_rows: dict[PointName, tuple[PackedScores, int]] = {}  # the last file with a point takes precedence
    for file, content in _contents(run, f"{FOLDER}/{split}").items():
        place = location.join(run.location, FOLDER, split, file)
        packed = _read_packed(content, points, num_queries, place)
        for row, name in enumerate(packed.names):
            files_and_rows[name] = packed, row
    if not files_and_rows:
        return None
    names = sorted(files_and_rows, key=_order)
    polarity = np.empty((len(names), num_queries))
    similarity = np.empty((len(names), num_queries))
    for row, name in enumerate(names):
        packed, row_in_file = files_and_rows[name]
        codes = packed.polarity[row_in_file]
        polarity[row] = packed.polarity_values[codes]
        similarity[row] = packed.similarity[row_in_file] / _STEPS
    return QueryScores(split, tuple(names), polarity, similarity)


def _read_packed(content: bytes, points: Mapping[PointName, Point], num_queries: int, place: str) -> PackedScores:
    """Return the scores of the ledger's points in a file, which may be none. Raise ``DamagedError`` if it is damaged."""
    try:
        packed = PackedScores.read(content).select(points)
    except ValueError as error:
        raise _damaged(place, str(error)) from None
    if packed.names and packed.num_queries != num_queries:
        raise _damaged(place, f"the number of queries is {packed.num_queries}; allowed: {num_queries}")
    _check_means(packed, points, place)
    return packed


def _scored_points(results: Results, split: ScoredSplit, trial_points: Container[PointName]) -> dict[PointName, Point]:
    """Return the ledger's points on a split whose scores may be stored, keyed by name."""
    points = {}
    for point in results.points:
        name = name_of_point(point)
        is_scored = point.kind in _SCORED if point.trial is None else name in trial_points
        if point.split == split and is_scored:
            points[name] = point
    return points


def _order(name: PointName) -> tuple[int, int, int, str, float]:
    trial, step, kind, value = name
    group = _SCORED.index(kind) if trial is None else len(_SCORED)
    return group, trial or 0, step or 0, kind, -1.0 if value is None else value


def _contents(run: Folder, folder: str) -> dict[str, bytes]:
    """Return the contents of a folder's files, keyed by name; a running sweep may replace the files meanwhile."""
    for attempt in range(_TRIES):
        names = sorted(name for name in run.names(folder) if name.endswith(".npz") and not name.startswith("."))
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


def _check_means(packed: PackedScores, points: Mapping[PointName, Point], place: str) -> None:
    """Raise ``DamagedError`` if the mean scores of a point differ from those in the ledger."""
    polarity, similarity = packed.scores()
    for name, own_polarity, own_similarity in zip(packed.names, polarity, similarity, strict=True):
        point = points[name]
        differences = own_polarity.mean() - point.polarity, own_similarity.mean() - point.similarity
        if not max(map(abs, differences)) <= _MAX_DIFFERENCE:
            raise _damaged(place, f"the scores of {point.name} differ from those in the ledger")


def _damaged(place: str, why: str) -> DamagedError:
    return DamagedError(f"{place}: is damaged: {why}; remove the file to continue without its scores")
