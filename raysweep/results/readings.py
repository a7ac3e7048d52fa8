"""What the reference and the front's members retrieve for each query, and the texts of some: ``RUN/readings/front.npz``.

On test, or on dev where a run has no test split. Of a split with very many queries some stand for all, evenly spaced.

``meta``                              JSON as bytes: the split, and trial, step, kind and value of each point
``query_ids``, ``query_labels``       (queries,) sentence ids, and positions among the run's label names
``shown``                             positions of the queries whose texts are stored
``sentence_ids``, ``sentence_labels`` (sentences,) of all that was retrieved
``positions``                         (points, queries, k) positions among them, best first
``cosines``                           (points, queries, k) under the reference in multiples of 1/32767, int16
``texts``                             JSON as bytes: texts by sentence id, ``{}`` where ``report.texts`` is false
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
from raysweep.results.query_scores import NO_ARCHIVE, UNREADABLE, PointName, name_of_point
from raysweep.results.types import Results, ScoredSplit
from raysweep.results.views import front_members
from raysweep.storage import location
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import Folder

FOLDER = "readings"

FILE = f"{FOLDER}/front.npz"

REFERENCE_FILE = f"{FOLDER}/reference.npz"
"""What the reference retrieves, by its name within the run; a file of :class:`Reading`, as each rung of the front has."""

REFERENCE: PointName = (None, None, "reference", None)

MOST_SHOWN = 48

MOST_QUERIES = 5000
"""Of a split that readings are stored of; of more some stand for all."""

_STEPS = 32767  # of a cosine, from 0 to 1


@dataclass(frozen=True)
class Retrieved:
    """What a point retrieves, best first: sentence ``ids`` (queries, k), ``cosines`` (queries, k) under the reference."""

    ids: npt.NDArray[np.integer[Any]]
    cosines: Float32Array


@dataclass(frozen=True)
class Readings:
    """What the reference and members of the front retrieve for the queries of a split.

    ``query_labels`` (queries,) and ``labels``, by sentence id, are positions among the run's label names. ``shown`` are
    positions of queries, at most 48, those first whose readings differ most. ``texts`` are those of the queries that are
    shown and of all that was retrieved for them, by sentence id, as they stand in the data; empty where the run has none.
    """

    split: ScoredSplit
    query_ids: npt.NDArray[np.integer[Any]]
    query_labels: npt.NDArray[np.integer[Any]]
    retrieved: Mapping[PointName, Retrieved]
    labels: Mapping[int, int]
    texts: Mapping[int, str]
    shown: tuple[int, ...]

    def without_texts(self) -> "Readings":
        """The same, but for its texts."""
        return replace(self, texts={})

    def content(self) -> bytes:
        """What the file of these readings holds."""
        names = list(self.retrieved)
        shape = (0, len(self.query_ids), 0)
        ids = np.stack([each.ids for each in self.retrieved.values()]) if names else np.empty(shape, np.int64)
        cosines = np.stack([each.cosines for each in self.retrieved.values()]) if names else np.empty(shape, np.float32)
        sentence_ids, positions = np.unique(ids, return_inverse=True)
        smallest = np.min_scalar_type(max(len(sentence_ids) - 1, 0))
        sink = io.BytesIO()
        np.savez_compressed(
            sink,
            meta=_as_bytes({"split": self.split, "names": names}),
            query_ids=self.query_ids,
            query_labels=self.query_labels,
            shown=np.array(self.shown, np.int64),
            sentence_ids=sentence_ids,
            sentence_labels=np.array([self.labels[each] for each in sentence_ids.tolist()], np.int64),
            positions=positions.reshape(ids.shape).astype(smallest),
            cosines=_packed(cosines),
            texts=_as_bytes(dict(self.texts)),
        )
        return sink.getvalue()


@dataclass(frozen=True)
class Reading:
    """What a worker stores of what points retrieve for the same queries, before a session's end puts it together."""

    names: tuple[PointName, ...]
    ids: npt.NDArray[np.integer[Any]]  # (points, queries, k) of sentences
    cosines: Float32Array  # (points, queries, k) under the reference

    def content(self) -> bytes:
        """What a file of it holds."""
        sink = io.BytesIO()
        smallest = np.min_scalar_type(int(self.ids.max(initial=0)))
        np.savez_compressed(
            sink, meta=_as_bytes(self.names), ids=self.ids.astype(smallest), cosines=_packed(self.cosines)
        )
        return sink.getvalue()

    @classmethod
    def read(cls, content: bytes) -> "Reading":
        """ValueError says how a file of this content is damaged."""
        arrays = _arrays(content)
        try:
            names, ids, cosines = _names(_value(arrays["meta"])), arrays["ids"], arrays["cosines"]
        except KeyError as error:
            raise ValueError(f"there is no {error.args[0]!r}") from None
        fits = ids.ndim == 3 and cosines.shape == ids.shape and len(names) == len(ids)
        if not (fits and ids.dtype.kind in "iu" and cosines.dtype == np.int16):
            raise ValueError("its arrays do not fit together")
        return cls(names, ids, _unpacked(cosines))

    @property
    def retrieved(self) -> dict[PointName, Retrieved]:
        """By point."""
        rows = zip(self.names, self.ids, self.cosines, strict=True)
        return {name: Retrieved(ids, cosines) for name, ids, cosines in rows}


def readable_rows(num_queries: int) -> npt.NDArray[np.int64]:
    """Rows of the queries that readings are stored of: all, or of very many some, evenly spaced."""
    return np.linspace(0, num_queries - 1, min(num_queries, MOST_QUERIES)).astype(np.int64)


def reading_file(split: ScoredSplit) -> str:
    """The file of a front rung's :class:`Reading`, by its name within the folder of the rung's weights."""
    return f"retrieved-{split}.npz"


def load_readings(run: Folder, results: Results) -> Readings | None:
    """What the reference and the front's members retrieve, as far as it is stored; None before a session has ended.

    ``results`` are the run's. DamagedError names a file that is damaged.
    """
    readings = stored_readings(run)
    if readings is None:
        return None
    members = {name_of_point(point) for point in front_members(results.points)}
    known = members | {REFERENCE}
    retrieved = {name: each for name, each in readings.retrieved.items() if name in known}
    return replace(readings, retrieved=retrieved)


def stored_readings(run: Folder) -> Readings | None:
    """All that the file holds, also of points that have left the front. DamagedError names it where it is damaged."""
    try:
        (content,) = run.read([FILE])
    except FileNotFoundError:
        return None
    except StorageError:
        raise
    except OSError as error:
        raise DamagedError(f"{error.filename}: cannot be read: {error.strerror}") from None
    try:
        return _readings(_arrays(content))
    except ValueError as error:
        place = location.join(run.location, FILE)
        raise DamagedError(
            f"{place}: is damaged: {error}; remove it to do without the readings that it holds"
        ) from None


def _readings(arrays: Mapping[str, npt.NDArray[Any]]) -> Readings:
    """ValueError where the arrays of a file do not make readings."""
    try:
        meta = _value(arrays["meta"])
        split, names = meta["split"], _names(meta["names"])
        query_ids, query_labels, shown = arrays["query_ids"], arrays["query_labels"], arrays["shown"]
        sentence_ids, sentence_labels = arrays["sentence_ids"], arrays["sentence_labels"]
        positions, cosines = arrays["positions"], arrays["cosines"]
        texts = _texts(_value(arrays["texts"]))
    except KeyError as error:
        raise ValueError(f"there is no {error.args[0]!r}") from None
    except TypeError:
        raise ValueError("its meta data are none") from None
    whole = (query_ids, query_labels, shown, sentence_ids, sentence_labels, positions)
    fits = (
        split in get_args(ScoredSplit)
        and all(array.dtype.kind in "iu" for array in whole)
        and query_ids.ndim == sentence_ids.ndim == shown.ndim == 1
        and query_labels.shape == query_ids.shape
        and sentence_labels.shape == sentence_ids.shape
        and positions.ndim == 3
        and positions.shape[:2] == (len(names), len(query_ids))
        and cosines.shape == positions.shape
        and cosines.dtype == np.int16
    )
    if not fits or not _in_range(positions, len(sentence_ids)) or not _in_range(shown, len(query_ids)):
        raise ValueError("its arrays do not fit together")
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


def _arrays(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` file. ValueError says how it is damaged; nothing in it is unpickled."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except UNREADABLE:
        raise ValueError(NO_ARCHIVE) from None


def _as_bytes(value: Any) -> npt.NDArray[np.uint8]:
    """As JSON, which holds any text, control characters and all, in plain ASCII."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _value(array: npt.NDArray[Any]) -> Any:
    try:
        return json.loads(array.tobytes())
    except (ValueError, RecursionError):
        raise ValueError("its meta data are none") from None


def _names(values: Any) -> tuple[PointName, ...]:
    try:
        names = tuple((trial, step, kind, value) for trial, step, kind, value in values)
        hash(names)  # a list or a mapping is no part of a name
        return names
    except (TypeError, ValueError):
        raise ValueError("it has no names of points") from None


def _texts(values: Any) -> dict[int, str]:
    try:
        texts = {int(key): text for key, text in values.items()}
    except (AttributeError, ValueError):
        raise ValueError("it has no texts") from None
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("it has no texts")
    return texts


def _packed(cosines: npt.NDArray[np.floating]) -> npt.NDArray[np.int16]:
    """To 1.5e-5."""
    steps: npt.NDArray[np.int16] = np.rint(np.clip(cosines, -1, 1) * _STEPS).astype(np.int16)
    return steps


def _unpacked(steps: npt.NDArray[np.int16]) -> Float32Array:
    cosines: Float32Array = (steps / np.float32(_STEPS)).astype(np.float32)
    return cosines
