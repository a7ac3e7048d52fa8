"""Writing and reading shards."""

import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.data.artifacts import Artifact, Store
from raysweep.data.shards import OpenShards, Report, Shard, ShardedArray, ShardSet, open_array
from raysweep.errors import InputError
from support.s3_server import S3Server

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


def parts(lengths: list[int], width: int) -> list[npt.NDArray[np.int32]]:
    bounds = np.cumsum([0, *lengths])
    whole = np.arange(bounds[-1] * width, dtype=np.int32).reshape(-1, width)
    return [whole[start:stop] for start, stop in itertools.pairwise(bounds)]


def without_checksum(report: Report) -> Report:
    """Return a report as its shard stores it, without the checksum of the shard's file."""
    return {name: value for name, value in report.items() if name != "crc32"}


@given(LENGTHS, st.data())
def test_sharded_array_equals_the_concatenated_array(
    lengths: list[int], data: st.DataObject
) -> None:
    split = parts(lengths, 3)
    whole = np.concatenate(split)
    sharded = ShardedArray(lengths, lambda number: split[number])
    assert (len(sharded), sharded.shape, sharded.dtype) == (len(whole), whole.shape, whole.dtype)
    assert np.array_equal(np.asarray(sharded), whole)
    bounds = st.none() | st.integers(-12, 40)
    rows = slice(data.draw(bounds), data.draw(bounds), data.draw(st.sampled_from([None, 1, 2, -1])))
    assert np.array_equal(sharded[rows], whole[rows])
    if len(whole):
        ids = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=8)), np.int64)
        assert np.array_equal(sharded[ids], whole[ids])
        square = np.resize(ids, (2, len(ids)))
        assert np.array_equal(sharded[square], whole[square])
    for beyond in (-1, len(whole)):
        with pytest.raises(IndexError, match=str(beyond)):
            sharded[np.array([beyond])]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "artifacts"))


def write_all(shards: ShardSet, split: list[npt.NDArray[np.int32]]) -> list[dict[str, int]]:
    reports = []
    for number, rows in enumerate(split):
        lists = pa.array([row.tolist()[: len(row) - 1] for row in rows], pa.list_(pa.int32()))
        halves = rows.astype(np.float32)[:, :, None] / 2
        facts = {"total": int(rows.sum())}
        reports.append(
            shards.write(number, Shard({"rows": rows, "halves": halves, "lists": lists}, facts))
        )
    return reports


def test_columns_are_read_back(store: Store) -> None:
    split = parts([4, 0, 3], 3)
    whole = np.concatenate(split)
    artifact = store.artifact("encoded", {"of": "columns"})
    reports = write_all(ShardSet(artifact, 3), split)
    assert not artifact.exists
    store.finish(artifact, {}, {"what": "ever"}, reports)
    assert artifact.summary == {"what": "ever"}
    assert np.array_equal(np.asarray(open_array(artifact.folder, "rows")), whole)
    assert np.array_equal(np.asarray(open_array(artifact.folder, "halves")), whole[:, :, None] / 2)
    values, offsets = OpenShards(artifact.folder).lists("lists")
    assert np.array_equal(np.asarray(values), whole[:, :2].reshape(-1))
    assert offsets.tolist() == list(range(0, 15, 2))


def test_reports_of_stored_shards_are_read(store: Store) -> None:
    split = parts([4, 2, 3], 3)
    artifact = store.artifact("encoded", {"of": "a killed worker"})
    shards = ShardSet(artifact, 3)
    assert shards.read_reports() == {}
    reports = write_all(shards, split)
    folder = store.root.path / artifact.name
    (folder / "00001-of-00003.arrow").unlink()
    (folder / ".00001-of-00003.arrow.5e55aa00").write_bytes(b"half of it")
    assert shards.read_reports() == {number: without_checksum(reports[number]) for number in (0, 2)}
    assert ShardSet(artifact, 4).read_reports() == {}  # another number of shards
    shards.write(1, Shard({"rows": split[1]}, {}))
    store.finish(artifact, {}, {}, reports)
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"0000{number}-of-00003.arrow" for number in range(3)),
        "artifact.json",
    ]


@pytest.mark.parametrize("is_missing", [False, True])
def test_damaged_shard_is_reported(store: Store, is_missing: bool) -> None:
    artifact = store.artifact("encoded", {})
    reports = write_all(ShardSet(artifact, 2), parts([4, 2], 3))
    store.finish(artifact, {}, {}, reports)
    path = artifact.folder / "00001-of-00002.arrow"
    content = path.read_bytes()
    path.unlink() if is_missing else path.write_bytes(content[:-8])
    column = open_array(artifact.folder, "rows")
    assert column[:4].shape == (4, 3)
    problem = (
        "is missing" if is_missing else f"has {len(content) - 8} bytes instead of {len(content)}"
    )
    with pytest.raises(
        InputError, match=f"00001-of-00002.arrow: {problem}; remove the folder .* and prepare again"
    ):
        column[:]


def test_reports_of_shards_in_a_bucket_are_read(server: S3Server) -> None:
    shards = ShardSet(Artifact(server.uri("shards", "artifacts"), "encoded-1"), 2)
    reports = write_all(shards, parts([4, 2], 3))
    assert shards.read_reports() == dict(enumerate(map(without_checksum, reports)))
