"""Overrides of the command line: sources are paths and globs as a shell gives them, or lists in YAML."""

from pathlib import Path

import pytest

from raysweep.config.load import load
from raysweep.errors import InputError
from support.sweep_files import MINIMAL


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(MINIMAL)
    return path


NAMES = [
    "*.csv",
    "#1.csv",
    "a #1.csv",
    "[v1].csv",
    "a: b.csv",
    "2024",
    "x",
    "- a.csv",
    "a.csv ",
    "{a",
    "{a,b}.csv",
    "\u00e9.csv",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_needs_no_quotes(file: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(file, [("data.train", name)]).config.data.train == str(tmp_path / name)
    assert load(file, [("data.train", f'"{name}"')]).config.data.train == str(tmp_path / name)


def test_lists_and_null_are_yaml(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = load(file, [("data.train", "[a.csv, '*.tsv']"), ("data.dev", "null")]).config.data
    assert (data.train, data.dev) == ([str(tmp_path / "a.csv"), str(tmp_path / "*.tsv")], None)


def test_a_mapping_is_no_source(file: Path) -> None:
    with pytest.raises(InputError, match=r"--data.train: must be a source or a list of sources, .* not \{'a': 1\}"):
        load(file, [("data.train", "{a: 1}")])
