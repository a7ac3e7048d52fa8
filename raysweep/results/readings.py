"""Readings, the sentences that the reference and the front retrieve for queries.

The queries are from test, or from dev if the run has no test split. At most ``MAX_QUERIES`` evenly
spaced queries are stored. ``RUN/readings/front.npz`` contains these arrays:

``meta``                              JSON as bytes: the split, and each point's trial, step, kind and value
``query_ids``, ``query_labels``       (queries,) sentence ids, and indices into the run's label names
``shown``                             indices of the queries with stored texts
``sentence_ids``, ``sentence_labels`` (sentences,) ids and label indices of all retrieved sentences
``positions``                         (points, queries, k) indices into ``sentence_ids``, best first
``cosines``                           (points, queries, k) cosines under the reference, int16 multiples of 1/32767
``texts``                             JSON as bytes: texts keyed by sentence id; empty if ``report.texts`` is false
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from raysweep.errors import DamagedError
from raysweep.metrics.arrays import Float32Array
from raysweep.results.query_scores import PointName, name_of_point, read_archive
from raysweep.results.types import Results, ScoredSplit
from raysweep.results.views import front_points
from raysweep.storage import location
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import Folder

FOLDER = "readings"

FILE = f"{FOLDER}/front.npz"

REFERENCE_FILE = f"{FOLDER}/reference.npz"
"""The reference's :class:`Reading` file, relative to the run folder."""

REFERENCE: PointName = (None, None, "reference", None)

MAX_SHOWN = 48

MAX_QUERIES = 5000
"""The maximum number of queries with stored readings."""

_STEPS = 32767  # number of steps from 0 to 1 in a stored cosine


@dataclass(frozen=True)
class Retrieved:
    """A point's retrieved sentences, best first."""

    ids: npt.NDArray[np.integer[Any]]  # (queries, k)
    cosines: Float32Array  # (queries, k) under the reference


@dataclass(frozen=True)
class Readings:
    """The sentences that the reference and the front's members retrieve for a split's queries.

    ``query_labels`` (queries,) and the values of ``labels`` are indices into the run's label names.
    ``shown`` holds the indices of at most 48 queries, starting with those whose readings differ
    most. ``texts`` holds the texts of these queries and of the sentences retrieved for them; it is
    empty if the run stores no texts. ``labels`` and ``texts`` are keyed by sentence id.
    """

    split: ScoredSplit
    query_ids: npt.NDArray[np.integer[Any]]
    query_labels: npt.NDArray[np.integer[Any]]
    retrieved: Mapping[PointName, Retrieved]
    labels: Mapping[int, int]
    texts: Mapping[int, str]
    shown: tuple[int, ...]

    def without_texts(self) -> "Readings":
        return replace(self, texts={})

    def content(self) -> bytes:
        """Encode the readings as the content of an ``.npz`` file."""
        names = list(self.retrieved)
        meta = {"split": self.split, "names": names}
        retrieved = list(self.retrieved.values())
        shape = (0, len(self.query_ids), 0)
        ids = np.empty(shape, np.int64)
        cosines = np.empty(shape, np.float32)
        if retrieved:
            ids = np.stack([sentences.ids for sentences in retrieved])
            cosines = np.stack([sentences.cosines for sentences in retrieved])
        sentence_ids, positions = np.unique(ids, return_inverse=True)
        labels = [self.labels[sentence] for sentence in sentence_ids.tolist()]
        sentence_labels = np.array(labels, np.int64)
        max_position = max(len(sentence_ids) - 1, 0)
        smallest = np.min_scalar_type(max_position)
        positions = positions.reshape(ids.shape).astype(smallest)
        sink = io.BytesIO()
        np.savez_compressed(
            sink,
            meta=_as_bytes(meta),
            query_ids=self.query_ids,
            query_labels=self.query_labels,
            shown=np.array(self.shown, np.int64),
            sentence_ids=sentence_ids,
            sentence_labels=sentence_labels,
            positions=positions,
            cosines=_packed(cosines),
            texts=_as_bytes(dict(self.texts)),
        )
        return sink.getvalue()


@dataclass(frozen=True)
class Reading:
    """The sentences that several points retrieve for the same queries.

    Workers write readings, which are combined into :class:`Readings` when a session ends.
    """

    names: tuple[PointName, ...]
    ids: npt.NDArray[np.integer[Any]]  # (points, queries, k) sentence ids
    cosines: Float32Array  # (points, queries, k) under the reference

    def content(self) -> bytes:
        """Encode the reading as the content of an ``.npz`` file."""
        sink = io.BytesIO()
        smallest = np.min_scalar_type(int(self.ids.max(initial=0)))
        np.savez_compressed(
            sink,
            meta=_as_bytes(self.names),
            ids=self.ids.astype(smallest),
            cosines=_packed(self.cosines),
        )
        return sink.getvalue()

    @classmethod
    def read(cls, content: bytes) -> "Reading":
        """Parse a file's content. Raise ``ValueError`` if it is damaged."""
        arrays = read_archive(content)
        try:
            meta, ids, cosines = arrays["meta"], arrays["ids"], arrays["cosines"]
        except KeyError as error:
            raise ValueError(f"{error.args[0]} is missing") from None
        names = _names(_value(meta))
        has_shapes = ids.ndim == 3 and len(ids) == len(names) and cosines.shape == ids.shape
        has_types = ids.dtype.kind in "iu" and cosines.dtype == np.int16
        if not (has_shapes and has_types):
            raise ValueError("the shapes or types of the arrays are inconsistent")
        return cls(names, ids, _unpacked(cosines))

    @property
    def retrieved(self) -> dict[PointName, Retrieved]:
        """Return the retrieved sentences of each point."""
        rows = zip(self.names, self.ids, self.cosines, strict=True)
        return {name: Retrieved(ids, cosines) for name, ids, cosines in rows}


def readable_rows(num_queries: int) -> npt.NDArray[np.int64]:
    """Return the rows of at most ``MAX_QUERIES`` evenly spaced queries."""
    return np.linspace(0, num_queries - 1, min(num_queries, MAX_QUERIES)).astype(np.int64)


def reading_file(split: ScoredSplit) -> str:
    """Return the name of a rung's :class:`Reading` file, which is stored next to its weights."""
    return f"retrieved-{split}.npz"


def load_readings(run: Folder, results: Results) -> Readings | None:
    """Return the stored readings of the reference and the front, or None if the file does not exist.

    ``results`` must be those of the same run.

    Raises:
        DamagedError: If the file is damaged.
    """
    readings = stored_readings(run)
    if readings is None:
        return None
    members = {name_of_point(point) for point in front_points(results.points, results.info.goals)}
    known = members | {REFERENCE}
    retrieved = {name: sentences for name, sentences in readings.retrieved.items() if name in known}
    return replace(readings, retrieved=retrieved)


def stored_readings(run: Folder) -> Readings | None:
    """Return all stored readings, or None if the file does not exist.

    They may include points that are no longer on the front.

    Raises:
        DamagedError: If the file is damaged.
    """
    try:
        (content,) = run.read([FILE])
    except FileNotFoundError:
        return None
    except StorageError:
        raise
    except OSError as error:
        raise DamagedError(f"{error.filename}: cannot be read: {error.strerror}") from None
    try:
        return _readings(read_archive(content))
    except ValueError as error:
        place = location.join(run.location, FILE)
        raise DamagedError(
            f"{place}: is damaged: {error}; remove it to continue without readings"
        ) from None


def _readings(arrays: Mapping[str, npt.NDArray[Any]]) -> Readings:
    """Build readings from a file's arrays. Raise ``ValueError`` if they are invalid."""
    try:
        meta = _value(arrays["meta"])
        split, names = meta["split"], _names(meta["names"])
        query_ids, query_labels, shown = (
            arrays["query_ids"],
            arrays["query_labels"],
            arrays["shown"],
        )
        sentence_ids, sentence_labels = arrays["sentence_ids"], arrays["sentence_labels"]
        positions, cosines = arrays["positions"], arrays["cosines"]
        texts = _texts(_value(arrays["texts"]))
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None
    except TypeError:
        raise ValueError("meta is not a JSON object") from None
    integers = (query_ids, query_labels, shown, sentence_ids, sentence_labels, positions)
    has_types = cosines.dtype == np.int16 and all(array.dtype.kind in "iu" for array in integers)
    has_shapes = (
        query_ids.ndim == sentence_ids.ndim == shown.ndim == 1
        and query_labels.shape == query_ids.shape
        and sentence_labels.shape == sentence_ids.shape
        and positions.ndim == 3
        and positions.shape[:2] == (len(names), len(query_ids))
        and cosines.shape == positions.shape
    )
    is_valid = split in get_args(ScoredSplit) and has_types and has_shapes
    if (
        not is_valid
        or not _in_range(positions, len(sentence_ids))
        or not _in_range(shown, len(query_ids))
    ):
        raise ValueError("the shapes or types of the arrays are inconsistent")
    return Readings(
        split=split,
        query_ids=query_ids,
        query_labels=query_labels,
        retrieved=Reading(names, sentence_ids[positions], _unpacked(cosines)).retrieved,
        labels=dict(zip(sentence_ids.tolist(), sentence_labels.tolist(), strict=True)),
        texts=texts,
        shown=tuple(shown.tolist()),
    )


def _in_range(positions: npt.NDArray[Any], length: int) -> bool:
    return not positions.size or (int(positions.min()) >= 0 and int(positions.max()) < length)


def _as_bytes(value: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _value(array: npt.NDArray[Any]) -> Any:
    try:
        return json.loads(array.tobytes())
    except (ValueError, RecursionError):
        raise ValueError("meta or texts is not valid JSON") from None


def _names(values: Any) -> tuple[PointName, ...]:
    try:
        names = tuple((trial, step, kind, value) for trial, step, kind, value in values)
        hash(names)  # fails if any part of a name is a list or a mapping
        return names
    except (TypeError, ValueError):
        raise ValueError("the names of points in meta are invalid") from None


def _texts(values: Any) -> dict[int, str]:
    try:
        texts = {int(key): text for key, text in values.items()}
    except (AttributeError, ValueError):
        raise ValueError("texts does not map sentence ids to strings") from None
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("texts does not map sentence ids to strings")
    return texts


def _packed(cosines: npt.NDArray[np.floating]) -> npt.NDArray[np.int16]:
    """Convert cosines to int16, accurate to 1.5e-5."""
    steps: npt.NDArray[np.int16] = np.rint(np.clip(cosines, -1, 1) * _STEPS).astype(np.int16)
    return steps


def _unpacked(steps: npt.NDArray[np.int16]) -> Float32Array:
    cosines: Float32Array = (steps / np.float32(_STEPS)).astype(np.float32)
    return cosines
