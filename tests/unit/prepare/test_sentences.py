"""The sentences do not depend on how the work is distributed, and a killed build resumes."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.sweep import DataConfig
from raysweep.data import sources
from raysweep.data.dataset import Sentences
from raysweep.errors import InputError
from raysweep.prepare import ingest, sentences
from raysweep.prepare.stages import Coordinator
from raysweep.prepare.workers import Columns
from support.s3_server import BUCKET, S3Server
from support.sentences import build, stage_of


def put_parquet(path: Path, rows: Sequence[tuple[str | None, str | None]]) -> None:
    texts, labels = zip(*rows, strict=True)
    pq.write_table(pa.table({"text": pa.array(texts), "label": pa.array(labels)}), path)


def random_rows(num_rows: int) -> list[tuple[str, str]]:
    """Rows with duplicates, conflicts, and rows inside others."""
    draw = random.Random(0)
    rows = [
        (" ".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 8))), draw.choice("xyz"))
        for _ in range(num_rows)
    ]
    rows += [(text.upper(), label) for text, label in rows[: num_rows // 10]]
    return rows


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "artifact.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def in_small_parts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest, "PART_ROWS", 7)
    patch.setattr(sentences, "ROWS_PER_PARTITION", 11)
    patch.setattr(sentences, "ROWS_PER_SHARD", 16)


def test_sentences_do_not_depend_on_parts_and_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.parquet"
    put_parquet(path, random_rows(300))
    data = DataConfig(train=str(path))
    whole = build(tmp_path / "whole", data).folder
    monkeypatch.setattr(sentences, "ROWS_PER_SHARD", 16)
    same_shards = build(tmp_path / "shards", data).folder
    in_small_parts(monkeypatch)
    in_parts = build(tmp_path / "parts", data).folder
    assert content(in_parts) == content(same_shards)
    assert len(content(whole)) < len(content(in_parts))
    texts = [Sentences(folder).texts(range(len(Sentences(folder)))) for folder in (whole, in_parts)]
    assert texts[0] == texts[1]
    for name in ("labels.npy", "splits.npy", "duplicate_groups.npy", "dataset.json"):
        assert content(whole)[name] == content(in_parts)[name]


def test_bad_rows_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest equals the same file without them; each conflict is still shown with its own text."""
    rows: list[tuple[str | None, str | None]] = list(random_rows(120))
    bad = {3: ("", "x"), 4: (None, "x"), 40: ("a text", None), 41: ("  ", None), 90: ("a text", "")}
    for position, row in sorted(bad.items()):
        rows.insert(position, row)
    good = [row for position, row in enumerate(rows) if position not in bad]
    put_parquet(tmp_path / "messy.parquet", rows)
    put_parquet(tmp_path / "clean.parquet", good)
    messy = DataConfig(train=str(tmp_path / "messy.parquet"), on_bad_row="drop")
    clean = build(tmp_path / "clean", DataConfig(train=str(tmp_path / "clean.parquet"))).folder
    in_small_parts(monkeypatch)
    left = build(tmp_path / "left", messy).folder
    texts = [Sentences(folder).texts(range(len(Sentences(folder)))) for folder in (clean, left)]
    assert texts[0] == texts[1]
    assert content(clean)["labels.npy"] == content(left)["labels.npy"]
    messages = [Sentences(folder).summary.warnings for folder in (clean, left)]
    (added,) = set(messages[1]) - {message.replace("clean", "messy") for message in messages[0]}
    assert "left out 5 rows (4, 5, 41, 42, 91)" in added
    with pytest.raises(
        InputError, match=r"messy.parquet: row 4: column 'text' is ''.*5 rows \(4, 5, 41, 42, 91\)"
    ):
        build(tmp_path / "rejected", messy.model_copy(update={"on_bad_row": "error"}))


def test_several_files_equal_one_file_with_all_rows(tmp_path: Path) -> None:
    rows = random_rows(120)
    put_parquet(tmp_path / "all.parquet", rows)
    (tmp_path / "several").mkdir()
    for number, part in enumerate(_batched(rows, 9)):
        put_parquet(tmp_path / "several" / f"{number:02}.parquet", part)
    one = content(build(tmp_path / "one", DataConfig(train=str(tmp_path / "all.parquet"))).folder)
    several = content(build(tmp_path / "many", DataConfig(train=str(tmp_path / "several"))).folder)
    for name in ("00000-of-00001.arrow", "labels.npy", "splits.npy", "duplicate_groups.npy"):
        assert one[name] == several[name]


def test_sentences_do_not_depend_on_shares_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, labels = zip(*random_rows(120), strict=True)
    path = tmp_path / "all.parquet"
    pq.write_table(
        pa.table({"text": pa.array(texts), "label": pa.array(labels)}), path, row_group_size=7
    )
    data = DataConfig(train=str(path))
    whole = content(build(tmp_path / "whole", data).folder)
    monkeypatch.setattr(sources, "SHARE_BYTES", 500)
    assert content(build(tmp_path / "shared", data).folder) == whole


def _batched(rows: list[tuple[str, str]], size: int) -> list[list[tuple[str, str]]]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "A", " a", "b c", "B  c", "d", "ﬁ", "fi"]), st.sampled_from("xy")
        ),
        max_size=40,
    )
)
def test_duplicates_and_conflicts_match_a_comparison_of_all_pairs(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    rows = [("one", "x"), ("two", "y"), *drawn]
    put_parquet(folder / "train.parquet", rows)
    put_parquet(folder / "dev.parquet", [("one", "y")])
    data = DataConfig(train=str(folder / "train.parquet"), dev=str(folder / "dev.parquet"))
    with pytest.MonkeyPatch.context() as patch:
        in_small_parts(patch)
        dataset = Sentences(build(folder, data).folder)
    kept = [
        row for row in rows if not any(row[0] == other[0] and row[1] != other[1] for other in rows)
    ]
    texts = [text for text, _ in kept] + ["one"]
    assert dataset.texts(range(len(dataset))) == texts
    forms = [ingest.fold_text(text) for text in texts]
    expected = [[one == other for other in forms] for one in forms]
    groups = np.asarray(dataset.duplicate_groups)
    assert (groups[:, None] == groups[None]).tolist() == expected


class Killed(BaseException):
    """Stands for a killed process, since no error handler catches it."""


@pytest.mark.parametrize(
    "last_step", ["ConflictWorker", "TextWorker", "DuplicateWorker", "InsideWorker"]
)
def test_killed_build_resumes_from_stored_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_step: str
) -> None:
    in_small_parts(monkeypatch)
    put_parquet(tmp_path / "train.parquet", random_rows(100))
    data = DataConfig(train=str(tmp_path / "train.parquet"))
    whole = content(build(tmp_path / "whole", data).folder)
    store, stage = stage_of(tmp_path / "killed", data)
    worker = getattr(ingest, last_step)
    calls: list[int] = []

    class Dying(worker):  # type: ignore[misc, valid-type]
        def __call__(self, chunk: Columns) -> object:
            calls.append(int(chunk["number"][0]))
            if len(calls) == 2:
                raise Killed
            return super().__call__(chunk)

    with monkeypatch.context() as patch:
        patch.setattr(ingest, last_step, Dying)
        with pytest.raises(Killed):
            Coordinator(store, None).build(stage)
    assert not stage.artifact.exists

    def fail(*_: object) -> None:
        raise AssertionError("the piece was read before")

    monkeypatch.setattr(ingest.ReadWorker, "__call__", fail)
    Coordinator(store, None).build(stage)
    assert content(stage.artifact.folder) == whole
    assert stage.artifact.summary["num_rows"] == len(Sentences(stage.artifact.folder))


def test_rejected_source_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,1\nb,1\n")
    with pytest.raises(InputError, match="train.csv: .*'1'"):
        build(tmp_path / "artifacts", DataConfig(train=str(tmp_path / "train.csv")))
    assert not [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]


def test_bucket_and_folder_hold_the_same(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    monkeypatch.setenv("RAYSWEEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sentences, "ROWS_PER_SHARD", 64)
    put_parquet(tmp_path / "train.parquet", random_rows(100))
    data = DataConfig(train=str(tmp_path / "train.parquet"))
    boto3.client("s3").upload_file(str(tmp_path / "train.parquet"), BUCKET, "sources/train.parquet")
    from_bucket = DataConfig(train=server.uri("sources", "train.parquet"))
    local = content(build(tmp_path / "local", data).folder)
    stored = content(build(server.uri("artifacts"), from_bucket).folder)
    assert local.keys() == stored.keys()
    # which names the source
    assert all(local[name] == stored[name] for name in local if name != "dataset.json")
