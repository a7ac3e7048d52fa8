"""Collection of the sentences that the reference and the front retrieve, for the report."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.results.ledger import point_folder
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.readings import (
    FILE,
    MAX_SHOWN,
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

MAX_TEXT_BYTES = 3 * 2**19
"""Maximum size of a run's texts in bytes, encoded as UTF-8."""

PAGE = "report/report.html"

_SHOWN = (0, 0, 2)  # spawn key for breaking ties between queries


@dataclass(frozen=True)
class ReadingsWriter:
    """Writes a run's readings. Damaged files are skipped and reported to ``warn``."""

    run: Folder
    prepared: Prepared
    split: ScoredSplit
    seed: int
    with_texts: bool
    warn: Callable[[str], None]

    def write(self, front: Sequence[Point]) -> None:
        """Store the readings that are available for the front, if any."""
        retrieved = self._retrieved(front)
        if len(retrieved) < 2 or REFERENCE not in retrieved:
            return
        sentences = self.prepared.sentences
        query_ids = self._query_ids
        ids_of_points = [sentences_of_point.ids for sentences_of_point in retrieved.values()]
        ids = np.stack(ids_of_points)
        distinct = np.unique(ids)
        labels = np.asarray(sentences.labels[distinct])
        labels_by_id = dict(zip(distinct.tolist(), labels.tolist(), strict=True))
        shown = most_different(ids, self.seed)
        texts: dict[int, str] = {}
        if self.with_texts:
            ids_by_query = []
            for row in shown:
                ids_of_query = [query_ids[row], *ids[:, row].ravel()]
                ids_by_query.append(np.unique(ids_of_query))
            texts, num_shown = _read_texts(sentences.texts, ids_by_query)
            shown = shown[:num_shown]
        readings = Readings(
            split=self.split,
            query_ids=query_ids,
            query_labels=np.asarray(sentences.labels[query_ids]),
            retrieved=retrieved,
            labels=labels_by_id,
            texts=texts,
            shown=tuple(shown),
        )
        self.run.keep(FILE, readings.content())

    def remove_texts(self) -> None:
        """Remove the run's texts and the page that shows them; the page is rewritten when the session ends."""
        try:
            stored = stored_readings(self.run)
        except InputError:  # a damaged file may contain texts
            self.run.remove(PAGE)
            self.run.remove(FILE)
            return
        if stored is not None and stored.texts:
            self.run.remove(PAGE)  # first, so that a later call repeats an interrupted removal
            self.run.keep(FILE, stored.without_texts().content())

    def _retrieved(self, front: Sequence[Point]) -> dict[PointName, Retrieved]:
        """Return the sentences that the reference and the front retrieved."""
        retrieved: dict[PointName, Retrieved] = {}
        # Readings of points whose weights have since been removed exist only in this file.
        with contextlib.suppress(InputError):
            stored = stored_readings(self.run)
            if stored is not None and stored.split == self.split:
                retrieved.update(stored.retrieved)
        retrieved |= self._read(REFERENCE_FILE)
        folders: set[str] = set()
        for point in front:
            assert point.trial is not None and point.step is not None
            folders.add(point_folder(point.trial, point.step))
        for folder in sorted(folders):
            retrieved |= self._read(f"{folder}/{reading_file(self.split)}")
        if REFERENCE not in retrieved:
            return {}
        _, k = retrieved[REFERENCE].ids.shape
        shape = len(self._query_ids), k
        of_front: dict[PointName, Retrieved] = {}
        for name in (REFERENCE, *map(name_of_point, front)):
            sentences = retrieved.get(name)
            if sentences is not None and sentences.ids.shape == shape:
                of_front[name] = sentences
        return of_front

    def _read(self, name: str) -> dict[PointName, Retrieved]:
        """Return a file's content, or an empty mapping if the file is missing or damaged."""
        try:
            (content,) = self.run.read([name])
            return Reading.read(content).retrieved
        except FileNotFoundError:
            return {}
        except ValueError as error:
            file = location.join(self.run.location, name)
            self.warn(f"run: damaged file skipped (file={file}, reason={error})")
            return {}

    @property
    def _query_ids(self) -> npt.NDArray[np.int32]:
        ids = self.prepared.sentences.ids(self.split)
        readable: npt.NDArray[np.int32] = ids[readable_rows(len(ids))]
        return readable


def most_different(ids: npt.NDArray[np.integer], seed: int) -> list[int]:
    """Return the rows of the ``MAX_SHOWN`` queries for which the points retrieve the most distinct sentences.

    ``ids`` has shape (points, queries, k). Ties are broken at random, using ``seed``.
    """
    num_points, num_queries, k = ids.shape
    ids_by_query = ids.transpose(1, 0, 2).reshape(num_queries, num_points * k)
    sorted_ids = np.sort(ids_by_query, axis=1)
    steps = np.diff(sorted_ids, axis=1)
    num_distinct = 1 + np.count_nonzero(steps, axis=1)
    seeds = np.random.SeedSequence(seed, spawn_key=_SHOWN)
    rng = np.random.default_rng(seeds)
    tie_breakers = rng.random(num_queries)
    order = np.lexsort((tie_breakers, -num_distinct))
    shown: list[int] = order[:MAX_SHOWN].tolist()
    return shown


def _read_texts(
    read_texts: Callable[[npt.NDArray[np.integer]], list[str]],
    ids_by_query: Iterable[npt.NDArray[np.integer]],
) -> tuple[dict[int, str], int]:
    """Return the texts of as many queries as fit in ``MAX_TEXT_BYTES`` (at least one), and the number of queries."""
    texts: dict[int, str] = {}
    num_bytes = 0
    num_queries = 0
    for ids in ids_by_query:
        texts_in_order = read_texts(ids)
        texts_of_query = dict(zip(ids.tolist(), texts_in_order, strict=True))
        new_texts = {number: text for number, text in texts_of_query.items() if number not in texts}
        sizes = [len(text.encode()) for text in new_texts.values()]
        num_bytes += sum(sizes)
        if num_queries and num_bytes > MAX_TEXT_BYTES:
            break
        texts |= new_texts
        num_queries += 1
    return texts, num_queries
