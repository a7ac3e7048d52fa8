"""Readings: round trips and damaged files."""

from pathlib import Path

import numpy as np
import pytest

from raysweep.errors import InputError
from raysweep.results.query_scores import name_of_point
from raysweep.results.reader import load
from raysweep.results.readings import FILE, REFERENCE, Reading, load_readings
from raysweep.results.views import front_points
from raysweep.storage.folder import LocalFolder
from support.ledgers import random_trials, write_ledger
from support.query_scores import TEXT, invented_readings, write_readings


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_ledger(tmp_path, random_trials(12))
    return tmp_path


def test_readings_round_trip(run: Path) -> None:
    results = load(run)
    stored = invented_readings(results)
    write_readings(run, stored)
    loaded = load_readings(LocalFolder(run), results)
    assert loaded is not None
    assert loaded.split == "test"
    members = [name_of_point(point) for point in front_points(results.points)]
    assert list(loaded.retrieved) == [REFERENCE, *members]
    for name, sentences in stored.retrieved.items():
        np.testing.assert_array_equal(loaded.retrieved[name].ids, sentences.ids)
        np.testing.assert_allclose(loaded.retrieved[name].cosines, sentences.cosines, atol=1.6e-5)
        assert loaded.retrieved[name].cosines.dtype == np.float32
    np.testing.assert_array_equal(loaded.query_ids, stored.query_ids)
    np.testing.assert_array_equal(loaded.query_labels, stored.query_labels)
    assert loaded.labels == stored.labels
    assert loaded.shown == stored.shown == (0, 1, 2)
    assert loaded.texts == stored.texts
    for sentence in [1000, 1001, 1002, *loaded.retrieved[REFERENCE].ids[:3].ravel().tolist()]:
        assert loaded.texts[sentence] == TEXT.format(sentence)


def test_points_off_the_front_are_skipped(run: Path) -> None:
    results = load(run)
    stored = invented_readings(results)
    gone = dict(stored.retrieved) | {(99, 1, "plain", None): stored.retrieved[REFERENCE]}
    write_readings(run, type(stored)(**{**vars(stored), "retrieved": gone}))
    loaded = load_readings(LocalFolder(run), results)
    assert loaded is not None
    assert loaded.retrieved.keys() == stored.retrieved.keys()


def test_readings_without_texts_round_trip(run: Path) -> None:
    write_readings(run, invented_readings(load(run)).without_texts())
    loaded = load_readings(LocalFolder(run), load(run))
    assert loaded is not None
    assert loaded.texts == {}
    assert loaded.shown == (0, 1, 2)
    assert b"sentence" not in (run / FILE).read_bytes().replace(b"sentence_ids", b"").replace(
        b"sentence_labels", b""
    )


def test_run_without_readings(run: Path) -> None:
    assert load_readings(LocalFolder(run), load(run)) is None


def test_a_damaged_file_is_named(run: Path) -> None:
    results = load(run)
    write_readings(run, invented_readings(results))
    path = run / FILE
    content = path.read_bytes()
    middle = len(content) // 2
    for damaged in (b"", content[:-30], content[:middle] + b"\0" + content[middle + 1 :], b"{}"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=f"{path}: is damaged: .*; remove it") as error:
            load_readings(LocalFolder(run), results)
        assert "\n" not in str(error.value)


def test_reading_of_a_worker_round_trips() -> None:
    rng = np.random.default_rng(0)
    ids, cosines = (
        rng.integers(0, 70_000, (2, 5, 3)),
        rng.uniform(-1, 1, (2, 5, 3)).astype(np.float32),
    )
    names = ((3, 1, "plain", None), (3, 1, "concat", 0.3))
    loaded = Reading.read(Reading(names, ids, cosines).content())
    assert loaded.names == names
    np.testing.assert_array_equal(loaded.ids, ids)
    np.testing.assert_allclose(loaded.cosines, cosines, atol=1.6e-5)
    with pytest.raises(ValueError, match="arrays are inconsistent"):
        Reading.read(Reading(names[:1], ids, cosines).content())
