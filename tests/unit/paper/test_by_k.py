"""The table by k, and its CSV file read back."""

import io
from pathlib import Path

import pandas as pd
import pytest

from raysweep.errors import InputError
from raysweep.paper import markup
from raysweep.paper.by_k import ByK, ScoresAtK, is_by_k, rows_of, table
from support.tables import csv_rows, latex_rows, markdown_rows

SCORES = [
    ScoresAtK("m", "uniform", 16, 63.0164, 46.5939, 21.877, 7.426, 71.25),
    ScoresAtK("m", "uniform", 4, 63.991, 50.94, 30.276, 7.684, 70.0),
    ScoresAtK("m", "linear", 4, 64.53, 51.977, 31.0, 7.7, 70.5),
    ScoresAtK("n", "uniform", 4, 80.0, 85.0),
]
PATH = Path("folder/by_k.csv")


def frame(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


def test_rows_are_by_rank_weights_model_and_rising_k() -> None:
    found = table(ByK.of(SCORES, "Queries are the rows of test.csv."))
    head, *rows = markdown_rows(markup.markdown(found))
    assert head == ["model", "rank weights", "k", "P", "S", "accuracy"]
    assert rows == [
        ["m", "uniform", "4", "63.991 (30.276)", "50.940 (7.684)", "70.000"],
        ["m", "uniform", "16", "63.016 (21.877)", "46.594 (7.426)", "71.250"],
        ["n", "uniform", "4", "80.000", "85.000", "–"],  # noqa: RUF001
        ["m", "linear", "4", "64.530 (31.000)", "51.977 (7.700)", "70.500"],
    ]
    assert latex_rows(markup.latex(found))[3] == ["n", "uniform", "4", "80.000", "85.000", "--"]
    assert found.caption.endswith("Queries are the rows of test.csv.")


def test_its_csv_file_is_read_back() -> None:
    text = markup.csv_text(table(ByK.of(SCORES)))
    assert csv_rows(text)[1]["polarity"] == "63.0164"
    assert is_by_k(frame(text))
    assert sorted(rows_of(frame(text), PATH), key=repr) == sorted(SCORES, key=repr)
    assert not is_by_k(frame(text).assign(epoch=1)), "a recorded sweep with a parameter k"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,k,polarity,similarity\nm,4,60,40\n", "no column 'rank_weights'"),
        ("model,rank_weights,k,polarity,similarity\n", "holds no rows"),
        ("model,rank_weights,k,polarity,similarity\nm,uniform,4,x,40\n", "row 1: polarity is x, not a finite number"),
        (
            "model,rank_weights,k,polarity,similarity\nm,uniform,4.5,60,40\n",
            "row 1: k is 4.5, not a whole number from 1 to 2,147,483,648",
        ),
        ("model,rank_weights,k,polarity,similarity\nm,uniform,1e30,60,40\n", r"row 1: k is 1e\+30, not a whole number"),
    ],
)
def test_files_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{PATH}: {message}"):
        rows_of(frame(text), PATH)


def test_two_different_scores_at_one_k_are_refused() -> None:
    with pytest.raises(InputError, match="n has two different rows of k 4 with uniform rank weights"):
        ByK.of([*SCORES, ScoresAtK("n", "uniform", 4, 81.0, 85.0)])
    assert ByK.of([*SCORES, SCORES[-1]]) == ByK.of(SCORES), "as of evaluate --k 4,4"
