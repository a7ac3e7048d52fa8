"""Scored pairs in every format, and invalid ones."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raysweep.data import scored_pairs, sources
from raysweep.data.scored_pairs import PairColumns, ScoredPairs
from raysweep.errors import InputError

LINES = '4.5\t"A quote, he said.\tA "quote\n\tno score\tat all\n0\tnone \tof it\n\n2.25\tNA\tnull\n'


def read(*paths: Path, columns: PairColumns | None = None) -> ScoredPairs:
    pieces = [piece for path in paths for piece in sources.pieces(str(path))]
    return scored_pairs.read("task", pieces, columns or PairColumns())


def test_sts_file_is_read_verbatim(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(LINES)
    pairs = read(tmp_path / "a.tsv")
    assert pairs.gold.tolist() == [4.5, 0, 2.25]
    assert pairs.first == ['"A quote, he said.', "none ", "NA"]
    assert pairs.second == ['A "quote', "of it", "null"]
    assert pairs.sentences == {"all": pairs.first + pairs.second}


def test_compressed_file_whose_first_pair_has_no_score(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.tsv.gz", "wt") as file:
        file.write("\tno\tscore\r\n1\ta\tb\r\n3\tc\td\r\n")
    assert read(tmp_path / "a.tsv.gz").second == ["b", "d"]


WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "a.csv": lambda frame, path: frame.to_csv(path, index=False),
    "a.tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "a.parquet": lambda frame, path: frame.to_parquet(path),
    "a.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}


@pytest.mark.parametrize("name", WRITERS)
def test_columns_of_tables_are_configurable(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2, 3],
            "b": ["x", "y", "z"],
            "gold": [0.5, np.nan, 1],
            "a": ['p "q"', "r,s", "t"],
        }
    )
    WRITERS[name](frame, tmp_path / name)
    pairs = read(tmp_path / name, columns=PairColumns("gold", "a", "b"))
    assert (pairs.gold.tolist(), pairs.first, pairs.second) == (
        [0.5, 1.0],
        ['p "q"', "t"],
        ["x", "z"],
    )


def test_several_files_are_one_task(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\ta\tb\n")
    (tmp_path / "b.tsv").write_text("2\tc\td\n")
    assert read(tmp_path / "a.tsv", tmp_path / "b.tsv").gold.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "1\ta\tb\n2\tc\n", r"a.tsv: line 2: the number of cells is 2; allowed: 3 cells"),
        ("a.tsv", "1\ta\tb\nhigh\tc\td\n", r"a.tsv: line 2: score is 'high'; allowed: a number"),
        ("a.tsv", "1\ta\tb\ninf\tc\td\n", r"a.tsv: line 2: score is 'inf'"),
        ("a.tsv", "1\ta\tb\n2\t \td\n", r"a.tsv: row 2: column 'first sentence' is ' '"),
        ("a.tsv", "\ta\tb\n\tc\td\n", r"task: none of its 2 pairs"),
        (
            "a.tsv",
            "3\ta\tb\n3.0\tc\td\n",
            r"task: every scored pair has the score 3; a correlation requires at least two different scores",
        ),
        ("a.csv", "score,sentence1,sentence2\n1,a,b\nx,c,d\n", r"a.csv: row 2: score is 'x'"),
        ("a.csv", "score,sentence1,sentence2\n1,a,\n", r"a.csv: row 1: column 'sentence2' is ''"),
        (
            "a.jsonl",
            '{"score": true, "sentence1": "a", "sentence2": "b"}\n',
            r"a.jsonl: row 1: score is True",
        ),
        (
            "a.jsonl",
            '{"score": 1, "sentence1": "a"}\n',
            r"a.jsonl: line 1: column 'sentence2' is missing",
        ),
    ],
)
def test_invalid_pairs_are_rejected(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path / name)
