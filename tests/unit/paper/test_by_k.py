"""Scores by k, and their CSV file read back."""

import io
from pathlib import Path

import pandas as pd
import pytest

from raysweep.errors import InputError
from raysweep.paper import layout
from raysweep.paper.layouts import by_k
from raysweep.paper.sources import is_by_k, read_by_k
from support.tables import csv_rows, latex_rows, markdown_rows

COLUMNS = [
    "model",
    "rank_weights",
    "k",
    "polarity",
    "similarity",
    "polarity_std",
    "similarity_std",
    "accuracy",
]
ROWS = [
    ("m", "uniform", 16, 63.0164, 46.5939, 21.877, 7.426, 71.25),
    ("m", "uniform", 4, 63.991, 50.94, 30.276, 7.684, 70.0),
    ("m", "linear", 4, 64.53, 51.977, 31.0, 7.7, 70.5),
    ("n", "uniform", 4, 80.0, 85.0, None, None, None),
]
SCORES = pd.DataFrame(ROWS, columns=COLUMNS)
PATH = Path("folder/by_k.csv")


def frame(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


def test_rows_are_by_rank_weights_model_and_rising_k() -> None:
    scores = by_k(SCORES, "Queries are the rows of test.csv.")
    head, *rows = markdown_rows(layout.to_markdown(scores))
    assert head == ["model", "rank weights", "k", "P", "S", "accuracy"]
    assert rows == [
        ["m", "uniform", "4", "63.991 (30.276)", "50.940 (7.684)", "70.000"],
        ["m", "uniform", "16", "63.016 (21.877)", "46.594 (7.426)", "71.250"],
        ["n", "uniform", "4", "80.000", "85.000", "–"],  # noqa: RUF001
        ["m", "linear", "4", "64.530 (31.000)", "51.977 (7.700)", "70.500"],
    ]
    assert latex_rows(layout.to_latex(scores))[3] == ["n", "uniform", "4", "80.000", "85.000", "--"]
    assert scores.caption.endswith("Queries are the rows of test.csv.")


def test_the_csv_file_is_read_back() -> None:
    text = layout.to_csv(by_k(SCORES))
    assert csv_rows(text)[1]["polarity"] == "63.0164"
    assert is_by_k(frame(text))
    assert layout.to_csv(by_k(read_by_k(frame(text), PATH))) == text
    assert not is_by_k(frame(text).assign(epoch=1)), "a recording with a parameter k"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,k,polarity,similarity\nm,4,60,40\n", "column 'rank_weights'"),
        ("model,rank_weights,k,polarity,similarity\n", "no rows"),
        (
            "model,rank_weights,k,polarity,similarity\nm,uniform,4,x,40\n",
            "row 1: polarity is x; .*finite",
        ),
        (
            "model,rank_weights,k,polarity,similarity\nm,uniform,4.5,60,40\n",
            "row 1: k is 4.5; .*from 1 to 2,147,483,648",
        ),
        (
            "model,rank_weights,k,polarity,similarity\nm,uniform,1e30,60,40\n",
            r"row 1: k is 1e\+30; .*whole numbers",
        ),
    ],
)
def test_invalid_files_are_rejected(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{PATH}: {message}"):
        read_by_k(frame(text), PATH)


def test_two_different_scores_at_one_k_are_rejected() -> None:
    with pytest.raises(InputError, match="n .* k = 4 with uniform"):
        by_k(pd.concat([SCORES, SCORES[-1:].assign(polarity=81.0)]))
    repeated = by_k(pd.concat([SCORES, SCORES[-1:]]))
    assert layout.to_csv(repeated) == layout.to_csv(by_k(SCORES)), "as from evaluate --k 4,4"
