"""What the front's members retrieve is put together at a session's end: whose, with which texts, and what is missing."""

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from raysweep.controller import readings
from raysweep.controller.readings import ReadingsWriter, most_different
from raysweep.data.prepared import Prepared
from raysweep.results.ledger import point_folder
from raysweep.results.query_scores import name_of_point
from raysweep.results.readings import (
    FILE,
    MAX_QUERIES,
    REFERENCE,
    REFERENCE_FILE,
    Reading,
    Readings,
    readable_rows,
    reading_file,
    stored_readings,
)
from raysweep.results.types import Point
from raysweep.storage.folder import LocalFolder
from support.points import make_scores

NUM_QUERIES, NUM_SENTENCES, K = 60, 40, 4
HOSTILE = "</script><b>\x1b[31m\u202e&\x00 {}"


class Sentences:
    """Sentences of train, then of dev; labels are ids modulo 3."""

    labels = np.arange(NUM_SENTENCES + NUM_QUERIES) % 3

    def ids(self, split: str) -> Any:
        return np.arange(NUM_SENTENCES, NUM_SENTENCES + NUM_QUERIES)

    def texts(self, ids: Any) -> list[str]:
        return [HOSTILE.format(number) for number in ids]


PREPARED = cast(Prepared, type("Invented", (), {"sentences": Sentences()})())
FRONT = [
    Point(2, 1, kind, value, "dev", 8, make_scores(0.7, 0.4))
    for kind, value in (("plain", None), ("concat", 0.3))
]
FRONT.append(dataclasses.replace(FRONT[0], trial=5, step=3))


def by_chance(num_points: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    ids = np.stack(
        [
            [rng.permutation(NUM_SENTENCES)[:K] for _ in range(NUM_QUERIES)]
            for _ in range(num_points)
        ]
    )
    return ids, rng.uniform(0, 1, ids.shape).astype(np.float32)


@pytest.fixture
def run(tmp_path: Path) -> LocalFolder:
    """A run whose driver and workers have left what is retrieved, also for a point that is not on the front."""
    folder = LocalFolder(tmp_path)
    folder.put(REFERENCE_FILE, Reading((REFERENCE,), *by_chance(1, 0)).content())
    names = [*(name_of_point(point) for point in FRONT[:2]), (2, 1, "concat", 3.0)]
    folder.put(
        f"{point_folder(2, 1)}/{reading_file('dev')}",
        Reading(tuple(names), *by_chance(3, 1)).content(),
    )
    last = (name_of_point(FRONT[2]),)
    folder.put(
        f"{point_folder(5, 3)}/{reading_file('dev')}", Reading(last, *by_chance(1, 2)).content()
    )
    return folder


def writer(
    run: LocalFolder, *, with_texts: bool = True, warnings: list[str] | None = None
) -> ReadingsWriter:
    def warn(text: str) -> None:
        assert warnings is not None, text
        warnings.append(text)

    return ReadingsWriter(run, PREPARED, "dev", 7, with_texts, warn)


def written(run: LocalFolder) -> Readings:
    loaded = stored_readings(run)
    assert loaded is not None
    return loaded


def test_readings_of_reference_and_front_have_the_shown_texts(run: LocalFolder) -> None:
    writer(run).write(FRONT)
    loaded = written(run)
    assert list(loaded.retrieved) == [REFERENCE, *map(name_of_point, FRONT)]
    ids = np.stack([*by_chance(1, 0)[0], *by_chance(3, 1)[0][:2], *by_chance(1, 2)[0]])
    np.testing.assert_array_equal([sentences.ids for sentences in loaded.retrieved.values()], ids)
    assert loaded.query_ids.tolist() == list(range(NUM_SENTENCES, NUM_SENTENCES + NUM_QUERIES))
    assert (loaded.query_labels == loaded.query_ids % 3).all()
    assert loaded.labels == {number: number % 3 for number in np.unique(ids).tolist()}
    num_distinct = [len(np.unique(ids[:, query])) for query in range(NUM_QUERIES)]
    assert len(loaded.shown) == 48
    assert sorted((num_distinct[query] for query in loaded.shown), reverse=True) == [
        num_distinct[q] for q in loaded.shown
    ]
    assert (
        min(num_distinct[query] for query in loaded.shown) >= sorted(num_distinct)[NUM_QUERIES - 48]
    )
    expected = {
        int(number)
        for query in loaded.shown
        for number in (loaded.query_ids[query], *ids[:, query].ravel())
    }
    assert loaded.texts == {number: HOSTILE.format(number) for number in sorted(expected)}
    before = (run.path / FILE).read_bytes()
    writer(run).write(FRONT)
    assert (run.path / FILE).read_bytes() == before


def test_shown_queries_depend_on_the_seed() -> None:
    same = np.zeros((2, 500, 3), np.int64)
    assert most_different(same, 1) == most_different(same, 1)
    assert most_different(same, 1) != most_different(same, 2)
    assert most_different(same, 1) != sorted(most_different(same, 1))


def test_readings_without_texts(run: LocalFolder) -> None:
    writer(run, with_texts=False).write(FRONT)
    assert written(run).texts == {}
    assert len(written(run).shown) == 48
    assert not any(b"script" in array.tobytes() for array in np.load(run.path / FILE).values())


def test_texts_are_removed_on_resume_without_texts(run: LocalFolder) -> None:
    writer(run).write(FRONT)
    before = written(run)
    run.put("report/report.html", b"with texts")
    run.put("report/front.json", b"[]")
    writer(run, with_texts=False).remove_texts()
    assert before.texts
    assert run.names("report") == {"front.json"}
    assert written(run).texts == {}
    assert written(run).shown == before.shown
    assert written(run).retrieved.keys() == before.retrieved.keys()
    run.put("report/report.html", b"without texts")
    writer(run, with_texts=False).remove_texts()
    assert run.exists("report/report.html")
    (run.path / FILE).write_bytes(b"damaged, perhaps with texts")
    writer(run, with_texts=False).remove_texts()
    assert stored_readings(run) is None
    writer(run, with_texts=False).remove_texts()


def test_readings_are_kept_without_weights(run: LocalFolder) -> None:
    writer(run).write(FRONT)
    before = written(run)
    run.remove(point_folder(2, 1))
    writer(run).write(FRONT)
    assert list(written(run).retrieved) == list(before.retrieved)


def test_damaged_files_are_skipped_and_readings_need_a_front_member(run: LocalFolder) -> None:
    name = f"{point_folder(5, 3)}/{reading_file('dev')}"
    (run.path / name).write_bytes(b"")
    warnings: list[str] = []
    writer(run, warnings=warnings).write(FRONT)
    assert list(written(run).retrieved) == [REFERENCE, *map(name_of_point, FRONT[:2])]
    assert [name in text for text in warnings] == [True]
    run.remove(FILE)
    run.remove(point_folder(2, 1))
    run.remove(point_folder(5, 3))
    writer(run).write(FRONT)
    assert stored_readings(run) is None
    writer(run).write([])
    assert stored_readings(run) is None


def test_fewer_queries_are_shown_if_sentences_are_long(
    run: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "MAX_TEXT_BYTES", 600)
    writer(run).write(FRONT)
    loaded = written(run)
    assert 0 < len(loaded.shown) < 48
    assert sum(len(text.encode()) for text in loaded.texts.values()) <= 600
    monkeypatch.setattr(readings, "MAX_TEXT_BYTES", 1)
    writer(run).write(FRONT)
    assert len(written(run).shown) == 1


def test_readable_rows_are_bounded() -> None:
    assert readable_rows(7).tolist() == list(range(7))
    rows = readable_rows(1_000_000)
    assert len(np.unique(rows)) == MAX_QUERIES
    assert (rows[0], rows[-1]) == (0, 999_999)
    assert np.ptp(np.diff(rows)) <= 1
