"""Scores of encoders by the number k of retrieved sentences, as measured by the command ``evaluate``."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from raysweep.errors import InputError
from raysweep.paper import figures
from raysweep.paper.figures import ScoresAtK
from raysweep.paper.layout import Column, Layout, Number, Row
from raysweep.paper.sources import BUDGETS
from raysweep.replay.recording_files import check_columns, number_column, reject_cells

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 3

MAX_K = 2**31  # no pool has more sentences

_NUMBERS = ("k", "polarity", "similarity")
_OPTIONAL_NUMBERS = ("polarity_std", "similarity_std", "accuracy")


def by_k(scores: Iterable[ScoresAtK], measured: str = "") -> Layout:
    """Return a layout with a row for each k, and a group for each model and kind of rank weights.

    ``measured`` is a sentence on the data, or empty.

    Raises:
        InputError: If a model has two different scores at one k.
    """
    by_weights: dict[str, dict[str, list[ScoresAtK]]] = defaultdict(lambda: defaultdict(list))  # by kind, then model
    for row in dict.fromkeys(scores):
        curve = by_weights[row.rank_weights][row.model]
        if any(other.k == row.k for other in curve):
            raise InputError(f"{row.model} has two different rows of k {row.k} with {row.rank_weights} rank weights")
        curve.append(row)
    curves = []
    for by_model in by_weights.values():
        curves += [sorted(curve, key=lambda row: row.k) for curve in by_model.values()]
    columns = (
        Column("model", "model"),
        Column("rank weights", "rank_weights"),
        Column("k", "k", 0),
        Column("P", "polarity", DIGITS, has_spread=True),
        Column("S", "similarity", DIGITS, has_spread=True),
        Column("accuracy", "accuracy", DIGITS),
    )
    caption = (
        "Polarity P and similarity S (x100) by the number k of retrieved sentences: mean over queries, with its standard "
        f"deviation over queries in parentheses; and accuracy. {measured}"
    )
    groups = tuple(tuple(map(_row, curve)) for curve in curves)
    return Layout("by_k", caption.strip(), columns, groups, lambda: figures.draw_by_k(curves))


def _row(scores: ScoresAtK) -> Row:
    polarity = Number(scores.polarity_mean, scores.polarity_std)
    similarity = Number(scores.similarity_mean, scores.similarity_std)
    return (scores.model, scores.rank_weights, Number(scores.k), polarity, similarity, Number(scores.accuracy))


def is_by_k(frame: "pd.DataFrame") -> bool:
    """Return whether the frame holds scores by k read from CSV, rather than a recording."""
    return "k" in frame and "loss" not in frame and not any(budget in frame for budget in BUDGETS)


def read_by_k(frame: "pd.DataFrame", path: Path) -> list[ScoresAtK]:
    """Return the rows of a layout by k read from CSV.

    Raises:
        InputError: If the rows are invalid, with file and problem.
    """
    try:
        check_columns(frame, ("model", "rank_weights", "polarity", "similarity"))
        columns = {name: number_column(frame, name) for name in _NUMBERS}
        for name in _OPTIONAL_NUMBERS:
            if name in frame:
                columns[name] = number_column(frame, name, is_optional=True)
        is_wrong = ~columns["k"].between(1, MAX_K) | (columns["k"] % 1 != 0)
        reject_cells(frame["k"], is_wrong, f"whole numbers from 1 to {MAX_K:,}")
        if frame.empty:
            raise InputError("no rows")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    rows = []
    for index in range(len(frame)):
        cells = {name: None if column.isna()[index] else float(column[index]) for name, column in columns.items()}
        scores = ScoresAtK(
            model=str(frame["model"][index]),
            rank_weights=str(frame["rank_weights"][index]),
            k=int(columns["k"][index]),
            polarity_mean=float(columns["polarity"][index]),
            similarity_mean=float(columns["similarity"][index]),
            polarity_std=cells.get("polarity_std"),
            similarity_std=cells.get("similarity_std"),
            accuracy=cells.get("accuracy"),
        )
        rows.append(scores)
    return rows
