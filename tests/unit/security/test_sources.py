"""Hostile files of labeled sentences and recordings."""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from support.command_line import raysweep_here
from support.hostile import Canary, check_rejected


def truncated_parquet(file: Path, canary: Canary) -> None:
    pyarrow.parquet.write_table(pa.table({"text": ["a", "b"], "label": ["0", "1"]}), file)
    file.write_bytes(file.read_bytes()[:-20])


def parquet_with_an_overwritten_middle(file: Path, canary: Canary) -> None:
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
    """Write a type whose name old versions of pyarrow unpickled when they read a schema."""
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": canary.pickle,
    }
    fields = [pa.field("text", pa.int64(), metadata=metadata), pa.field("label", pa.string())]
    pyarrow.parquet.write_table(pa.table([[1], ["0"]], schema=pa.schema(fields)), file)


def endless_file(file: Path, canary: Canary) -> None:
    file.symlink_to("/dev/zero")


def pipe(file: Path, canary: Canary) -> None:
    os.mkfifo(file)


def nested_json(file: Path, canary: Canary) -> None:
    file.write_text('{"text": ' + "[" * 100_000 + "\n")


def only_null_bytes(file: Path, canary: Canary) -> None:
    file.write_bytes(bytes(100))


def other_columns(file: Path, canary: Canary) -> None:
    file.write_text("../../outside,a\nx,0\n")


Tamper = Callable[[Path, Canary], None]

SOURCES: dict[Tamper, tuple[str, str]] = {
    truncated_parquet: ("rows.parquet", "cannot be read: "),
    parquet_with_an_overwritten_middle: ("rows.parquet", "cannot be read: "),
    parquet_with_a_huge_footer: ("rows.parquet", "cannot be read: "),
    pickle_named_parquet: ("rows.parquet", "cannot be read: "),
    parquet_with_a_pickled_type: ("rows.parquet", "row 1: column 'text' is 1 (int)"),
    endless_file: ("rows.csv", "not a regular file"),
    pipe: ("rows.csv", "not a regular file"),
    nested_json: ("rows.jsonl", "line 1: invalid JSON"),
    only_null_bytes: ("rows.csv", "column 'text' is missing"),
    other_columns: ("rows.csv", "column 'text' is missing; columns: '../../outside', 'a'"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("tamper", SOURCES, ids=lambda tamper: tamper.__name__)
def test_invalid_sources_are_rejected(tamper: Tamper, tmp_path: Path, canary: Canary) -> None:
    name, problem = SOURCES[tamper]
    tamper(tmp_path / name, canary)
    done = raysweep_here(tmp_path, "evaluate", "--model", "demo", "--train", name, "--test", name)
    check_rejected(done, f"{name}: ", problem)


@pytest.mark.parametrize("column", ["../../outside", "a\0b", "/etc/passwd", "__class__"])
def test_paths_as_column_names_are_rejected(column: str, tmp_path: Path, canary: Canary) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,0\nb,1\n")
    places = ("--data.train", "rows.csv", "--storage.runs", "runs")
    done = raysweep_here(
        tmp_path, "prepare", "smoke", *places, "--data.text_column", json.dumps(column)
    )
    check_rejected(done, f"rows.csv: column {column!r} is missing; columns: 'text', 'label'")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


RECORDINGS: list[tuple[Tamper, str, str]] = [
    (truncated_parquet, "recording.parquet", "cannot be read: "),
    (parquet_with_a_huge_footer, "recording.parquet", "cannot be read: "),
    (pickle_named_parquet, "recording.parquet", "cannot be read: "),
    (parquet_with_a_pickled_type, "recording.parquet", ""),
    (pickle_named_parquet, "recording.csv", ""),
    (pipe, "recording.csv", "not a regular file"),
    (endless_file, "recording.csv", "not a regular file"),
    (only_null_bytes, "recording.csv", ""),
    (other_columns, "recording.csv", ""),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("tamper", "name", "problem"), RECORDINGS)
def test_invalid_recordings_are_rejected(
    tamper: Tamper, name: str, problem: str, tmp_path: Path, canary: Canary
) -> None:
    tamper(tmp_path / name, canary)
    check_rejected(raysweep_here(tmp_path, "replay", name), f"{name}: ", problem)


@pytest.mark.parametrize(
    "sampler",
    ["os:system", "subprocess:Popen", "../../evil:Evil", "a\0b:C", "optuna.samplers:__file__"],
)
def test_invalid_samplers_are_rejected(sampler: str, tmp_path: Path, canary: Canary) -> None:
    rungs = itertools.product(range(4), (10, 20))
    rows = "".join(
        f"{trial},{trial / 10},{budget},{budget},plain,{0.5 + trial / 100 + budget / 1e4},{0.5 - trial / 100}\n"
        for trial, budget in rungs
    )
    (tmp_path / "recording.csv").write_text(
        f"trial,margin,examples_seen,seconds,kind,polarity,similarity\n{rows}"
    )
    check_rejected(
        raysweep_here(tmp_path, "replay", "recording.csv", "--sampler", sampler),
        f"--sampler: {sampler!r} ",
    )
