"""Labeled sentences and recorded tables that come from an attacker."""

import functools
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from support.command_line import raysweep_here
from support.hostile import Canary, check_refused

GIB = 2**30


def truncated_parquet(file: Path, canary: Canary) -> None:
    pyarrow.parquet.write_table(pa.table({"text": ["a", "b"], "label": ["0", "1"]}), file)
    file.write_bytes(file.read_bytes()[:-20])


def parquet_with_a_cut_middle(file: Path, canary: Canary) -> None:
    texts = [f"number {number}" for number in range(5000)]
    pyarrow.parquet.write_table(pa.table({"text": texts, "label": texts}), file)
    content = bytearray(file.read_bytes())
    content[100:4000] = bytes(3900)
    file.write_bytes(content)


def parquet_with_a_huge_footer(file: Path, canary: Canary) -> None:
    file.write_bytes(b"PAR1" + bytes(100) + (2**31 - 1).to_bytes(4, "little") + b"PAR1")


def pickle_named_parquet(file: Path, canary: Canary) -> None:
    file.write_bytes(canary.pickle)


def parquet_with_a_pickled_type(file: Path, canary: Canary) -> None:
    """Old versions of pyarrow unpickled the name of a type as they read a schema."""
    metadata = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": canary.pickle}
    fields = [pa.field("text", pa.int64(), metadata=metadata), pa.field("label", pa.string())]
    pyarrow.parquet.write_table(pa.table([[1], ["0"]], schema=pa.schema(fields)), file)


def parquet_with_huge_cells(file: Path, canary: Canary) -> None:
    """Of 64 MiB, five of them: to write one of 1 GiB takes more memory than the machines of many have."""
    file.write_bytes(huge_cells())


@functools.cache
def huge_cells() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"text": ["a" * 2**26], "label": ["0"]})
    options = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
    with pyarrow.parquet.ParquetWriter(sink, table.schema, **options) as writer:
        for _ in range(5):
            writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def csv_with_a_cell_of_1_gib(file: Path, canary: Canary) -> None:
    file.write_text("text,label\n")
    os.truncate(file, GIB)


def endless(file: Path, canary: Canary) -> None:
    file.symlink_to("/dev/zero")


def pipe(file: Path, canary: Canary) -> None:
    os.mkfifo(file)


def nested_json(file: Path, canary: Canary) -> None:
    file.write_text('{"text": ' + "[" * 100_000 + "\n")


def null_bytes_alone(file: Path, canary: Canary) -> None:
    file.write_bytes(bytes(100))


def other_columns(file: Path, canary: Canary) -> None:
    file.write_text("../../outside,a\nx,0\n")


Spoil = Callable[[Path, Canary], None]

SOURCES: dict[Spoil, tuple[str, str]] = {
    truncated_parquet: ("rows.parquet", "cannot be read: "),
    parquet_with_a_cut_middle: ("rows.parquet", "cannot be read: "),
    parquet_with_a_huge_footer: ("rows.parquet", "cannot be read: "),
    pickle_named_parquet: ("rows.parquet", "cannot be read: "),
    parquet_with_a_pickled_type: ("rows.parquet", "row 1: column 'text' is 1 (int); allowed: a string"),
    endless: ("rows.csv", "not a regular file"),
    pipe: ("rows.csv", "not a regular file"),
    nested_json: ("rows.jsonl", "line 1: invalid JSON"),
    null_bytes_alone: ("rows.csv", "column 'text' is missing"),
    other_columns: ("rows.csv", "column 'text' is missing; columns: '../../outside', 'a'"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("spoil", SOURCES, ids=lambda spoil: spoil.__name__)
def test_a_source_that_is_none_is_refused(spoil: Spoil, tmp_path: Path, canary: Canary) -> None:
    name, said = SOURCES[spoil]
    spoil(tmp_path / name, canary)
    done = raysweep_here(tmp_path, "evaluate", "--model", "demo", "--train", name, "--test", name)
    check_refused(done, f"{name}: ", said)


@pytest.mark.parametrize("column", ["../../outside", "a\0b", "/etc/passwd", "__class__"])
def test_a_column_that_leads_out_is_refused(column: str, tmp_path: Path, canary: Canary) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,0\nb,1\n")
    places = ("--data.train", "rows.csv", "--storage.runs", "runs")
    done = raysweep_here(tmp_path, "prepare", "smoke", *places, "--data.text_column", json.dumps(column))
    check_refused(done, f"rows.csv: column {column!r} is missing; columns: 'text', 'label'")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


RECORDINGS: list[tuple[Spoil, str, str]] = [
    (truncated_parquet, "recording.parquet", "cannot be read: "),
    (parquet_with_a_huge_footer, "recording.parquet", "cannot be read: "),
    (pickle_named_parquet, "recording.parquet", "cannot be read: "),
    (parquet_with_a_pickled_type, "recording.parquet", ""),
    (pickle_named_parquet, "recording.csv", ""),
    (pipe, "recording.csv", "not a regular file"),
    (endless, "recording.csv", "not a regular file"),
    (null_bytes_alone, "recording.csv", ""),
    (other_columns, "recording.csv", ""),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("spoil", "name", "said"), RECORDINGS)
def test_invalid_recordings_are_rejected(spoil: Spoil, name: str, said: str, tmp_path: Path, canary: Canary) -> None:
    spoil(tmp_path / name, canary)
    check_refused(raysweep_here(tmp_path, "replay", name), f"{name}: ", said)


@pytest.mark.parametrize(
    "sampler", ["os:system", "subprocess:Popen", "../../evil:Evil", "a\0b:C", "optuna.samplers:__file__"]
)
def test_a_sampler_that_is_none_is_refused(sampler: str, tmp_path: Path, canary: Canary) -> None:
    rungs = itertools.product(range(4), (10, 20))
    rows = "".join(
        f"{trial},{trial / 10},{budget},{budget},plain,{0.5 + trial / 100 + budget / 1e4},{0.5 - trial / 100}\n"
        for trial, budget in rungs
    )
    (tmp_path / "recording.csv").write_text(f"trial,margin,examples_seen,seconds,kind,polarity,similarity\n{rows}")
    check_refused(raysweep_here(tmp_path, "replay", "recording.csv", "--sampler", sampler), f"--sampler: {sampler!r} ")
