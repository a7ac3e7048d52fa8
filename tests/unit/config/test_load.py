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


@pytest.mark.parametrize(
    "name", ["*.csv", "#1.csv", "[v1].csv", "a: b.csv", "2024", "x", "- a.csv", "\u00e9.csv", "{a"]
)
def test_a_path_needs_no_quotes(file: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "{a":  # which begins as a mapping does, and is told of as one
        with pytest.raises(InputError, match="--data.train: '{a' is not a YAML value"):
            load(file, [("data.train", name)])
    elif name == "- a.csv":  # a list of one
        assert load(file, [("data.train", name)]).config.data.train == [str(tmp_path / "a.csv")]
    else:
        assert load(file, [("data.train", name)]).config.data.train == str(tmp_path / name)


def test_lists_and_null_are_yaml(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = load(file, [("data.train", "[a.csv, '*.tsv']"), ("data.dev", "null")]).config.data
    assert (data.train, data.dev) == ([str(tmp_path / "a.csv"), str(tmp_path / "*.tsv")], None)
