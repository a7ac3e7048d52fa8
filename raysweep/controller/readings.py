"""Puts together what the reference and the front's members retrieve, and chooses the queries whose texts are shown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.results.ledger import point_folder
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.readings import (
    FILE,
    MOST_SHOWN,
    REFERENCE,
    REFERENCE_FILE,
    Reading,
    Readings,
    Retrieved,
    readable_rows,
    reading_file,
    stored_readings,
)
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage import location
from raysweep.storage.folder import Folder

MOST_TEXT_BYTES = 3 * 2**19
"""Of the texts of a run, in UTF-8: where sentences are long, fewer queries are shown."""

PAGE = "report/report.html"

_SHOWN = (0, 0, 2)  # the stream of random numbers that nothing else draws from


@dataclass(frozen=True)
class ReadingsWriter:
    """Writes the readings of a run. ``warn`` is told of files that are damaged, which are passed over."""

    run: Folder
    prepared: Prepared
    split: ScoredSplit
    seed: int
    with_texts: bool
    warn: Callable[[str], None]

    def write(self, front: Sequence[Point]) -> None:
        """Store those of the front as far as its rungs have left theirs; where none has, nothing changes."""
        retrieved = self._retrieved(front)
        if len(retrieved) > 1 and REFERENCE in retrieved:
            self.run.keep(FILE, self._readings(retrieved).content())

    def remove_texts(self) -> None:
        """Have no text in the run any more, nor in the page that shows them, which is written again at the session's end."""
        try:
            stored = stored_readings(self.run)
        except InputError:  # who knows what is in it
            self.run.remove(PAGE)
            self.run.remove(FILE)
            return
        if stored is not None and stored.texts:
            self.run.remove(PAGE)  # first: after a kill in between it is done again
            self.run.keep(FILE, stored.without_texts().content())

    def _retrieved(self, front: Sequence[Point]) -> dict[PointName, Retrieved]:
        """By point: of the reference, and of the front's members where it is known."""
        found = self._stored_before() | self._read(REFERENCE_FILE)
        for folder in sorted({_folder_of(point) for point in front}):
            found |= self._read(f"{folder}/{reading_file(self.split)}")
        wanted = [REFERENCE, *(name_of_point(point) for point in front)]
        shape = (len(self._query_ids), found[REFERENCE].ids.shape[1]) if REFERENCE in found else None
        return {name: found[name] for name in wanted if name in found and found[name].ids.shape == shape}

    def _stored_before(self) -> dict[PointName, Retrieved]:
        """At an earlier session's end; the weights of some may be gone since, and with them what they retrieved."""
        try:
            stored = stored_readings(self.run)
        except InputError:
            return {}
        return dict(stored.retrieved) if stored is not None and stored.split == self.split else {}

    def _read(self, name: str) -> dict[PointName, Retrieved]:
        """What a file holds; nothing where there is none."""
        try:
            (content,) = self.run.read([name])
            return Reading.read(content).retrieved
        except FileNotFoundError:
            return {}
        except ValueError as error:
            self.warn(f"run: {location.join(self.run.location, name)} is damaged ({error}), and is passed over")
            return {}

    @property
    def _query_ids(self) -> npt.NDArray[np.int32]:
        ids = self.prepared.sentences.ids(self.split)
        readable: npt.NDArray[np.int32] = ids[readable_rows(len(ids))]
        return readable

    def _readings(self, retrieved: Mapping[PointName, Retrieved]) -> Readings:
        sentences = self.prepared.sentences
        query_ids = self._query_ids
        ids = np.stack([each.ids for each in retrieved.values()])
        distinct = np.unique(ids)
        labels = np.asarray(sentences.labels[distinct])
        shown = most_different(ids, self.seed)
        texts: dict[int, str] = {}
        if self.with_texts:
            read = [np.unique([query_ids[row], *ids[:, row].ravel()]) for row in shown]
            texts, num_shown = _bounded(self.prepared.sentences.texts, read)
            shown = shown[:num_shown]
        return Readings(
            split=self.split,
            query_ids=query_ids,
            query_labels=np.asarray(sentences.labels[query_ids]),
            retrieved=retrieved,
            labels=dict(zip(distinct.tolist(), labels.tolist(), strict=True)),
            texts=texts,
            shown=tuple(shown),
        )


def most_different(ids: npt.NDArray[np.integer], seed: int) -> list[int]:
    """Rows of the queries that are shown: the ``MOST_SHOWN`` for which points retrieve the most different sentences.

    ``ids`` are (points, queries, k). Among queries with as many sentences chance decides, by the ``seed``.
    """
    num_points, num_queries, k = ids.shape
    by_query = np.sort(ids.transpose(1, 0, 2).reshape(num_queries, num_points * k), axis=1)
    num_distinct = 1 + (np.diff(by_query, axis=1) != 0).sum(axis=1)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=_SHOWN))
    order = np.lexsort((rng.random(num_queries), -num_distinct))
    shown: list[int] = order[:MOST_SHOWN].tolist()
    return shown


def _bounded(
    texts_of: Callable[[npt.NDArray[np.integer]], list[str]], read: Iterable[npt.NDArray[np.integer]]
) -> tuple[dict[int, str], int]:
    """The texts that are read for each query, as many queries as have room, at least one; and how many these are."""
    texts: dict[int, str] = {}
    num_bytes = num_queries = 0
    for ids in read:
        new = {number: text for number, text in zip(ids.tolist(), texts_of(ids), strict=True) if number not in texts}
        num_bytes += sum(len(text.encode()) for text in new.values())
        if num_queries and num_bytes > MOST_TEXT_BYTES:
            break
        texts |= new
        num_queries += 1
    return texts, num_queries


def _folder_of(point: Point) -> str:
    """Where the rung of a trial's point keeps its weights."""
    assert point.trial is not None and point.step is not None
    return point_folder(point.trial, point.step)
