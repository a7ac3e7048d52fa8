"""Scores of encoders by the number k of retrieved sentences, as measured by the command ``evaluate``."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raysweep.errors import InputError
from raysweep.paper.file_checks import BUDGETS, check_column, number_column, optional_number_column
from raysweep.paper.table import Column, Number, Row, Table

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 3

MOST_K = 2**31  # no pool has more sentences

COLUMNS = (
    Column("model", "model"),
    Column("rank weights", "rank_weights"),
    Column("k", "k", 0),
    Column("P", "polarity", DIGITS, has_spread=True),
    Column("S", "similarity", DIGITS, has_spread=True),
    Column("accuracy", "accuracy", DIGITS),
)


@dataclass(frozen=True)
class ScoresAtK:
    """Scores of one encoder at one k: means and standard deviations over queries, x100."""

    model: str
    rank_weights: str
    k: int
    polarity_mean: float
    similarity_mean: float
    polarity_std: float | None = None
    similarity_std: float | None = None
    accuracy: float | None = None

    @property
    def row(self) -> Row:
        return (
            self.model,
            self.rank_weights,
            Number(self.k),
            Number(self.polarity_mean, self.polarity_std),
            Number(self.similarity_mean, self.similarity_std),
            Number(self.accuracy),
        )


Curve = Sequence[ScoresAtK]
"""Scores of one model and one kind of rank weights, by increasing k."""


@dataclass(frozen=True)
class ByK:
    """Curves, grouped by kind of rank weights. ``measured`` is a sentence on their data, or empty."""

    curves: Sequence[Curve]
    measured: str = ""

    @classmethod
    def of(cls, scores: Iterable[ScoresAtK], measured: str = "") -> "ByK":
        """Group scores into curves.

        Raises:
            InputError: If a model has two different scores at one k.
        """
        by_kind: dict[str, dict[str, list[ScoresAtK]]] = defaultdict(lambda: defaultdict(list))  # by kind, then model
        for each in scores:
            curve = by_kind[each.rank_weights][each.model]
            if each in curve:
                continue
            if any(other.k == each.k for other in curve):
                raise InputError(
                    f"{each.model} has two different rows of k {each.k} with {each.rank_weights} rank weights"
                )
            curve.append(each)
        curves: list[Curve] = []
        for by_model in by_kind.values():
            curves += [sorted(curve, key=lambda each: each.k) for curve in by_model.values()]
        return cls(curves, measured)


def table(found: ByK) -> Table:
    """Return a table with a row for each k, and a group for each model and kind of rank weights."""
    caption = (
        "Polarity P and similarity S (x100) by the number k of retrieved sentences: mean over queries, with its standard "
        f"deviation over queries in parentheses; and accuracy. {found.measured}"
    )
    groups = tuple(tuple(each.row for each in curve) for curve in found.curves)
    return Table("by_k", caption.strip(), COLUMNS, groups)


def is_by_k(frame: "pd.DataFrame") -> bool:
    """Return whether the frame is a table by k read from CSV, rather than a recorded sweep."""
    return "k" in frame and "loss" not in frame and not any(budget in frame for budget in BUDGETS)


def rows_of(frame: "pd.DataFrame", path: Path) -> list[ScoresAtK]:
    """Return the rows of a table by k read from CSV.

    Raises:
        InputError: If the table is invalid, with file and problem.
    """
    try:
        return _rows_of(frame)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _rows_of(frame: "pd.DataFrame") -> list[ScoresAtK]:
    if frame.empty:
        raise InputError("holds no rows")
    for column in ("model", "rank_weights", "polarity", "similarity"):
        check_column(frame, column)
    numbers = {name: number_column(frame, name) for name in ("k", "polarity", "similarity")}
    optional = [name for name in ("polarity_std", "similarity_std", "accuracy") if name in frame]
    numbers |= {name: optional_number_column(frame, name) for name in optional}
    rows = []
    for index in range(len(frame)):
        cells = {name: column.iloc[index] for name, column in numbers.items()}
        if not 1 <= cells["k"] <= MOST_K or cells["k"] % 1:
            raise InputError(f"row {index + 1}: k is {cells['k']:g}, not a whole number from 1 to {MOST_K:,}")
        row = ScoresAtK(
            model=str(frame["model"].iloc[index]),
            rank_weights=str(frame["rank_weights"].iloc[index]),
            k=int(cells["k"]),
            polarity_mean=float(cells["polarity"]),
            similarity_mean=float(cells["similarity"]),
            polarity_std=_known(cells.get("polarity_std")),
            similarity_std=_known(cells.get("similarity_std")),
            accuracy=_known(cells.get("accuracy")),
        )
        rows.append(row)
    return rows


def _known(cell: float | None) -> float | None:
    """Return a number, or None for an empty cell, which is NaN."""
    return None if cell is None or math.isnan(cell) else float(cell)
