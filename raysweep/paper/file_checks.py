"""The rows of a recorded table and their validation. Each check is a function in CHECKS."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from raysweep.config.space import Scalar
from raysweep.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

BUDGETS = ("examples_seen", "epoch", "step")
SCORES = ("polarity", "similarity", "accuracy", "loss_value")
DEVIATIONS = ("polarity_std", "similarity_std")  # over queries
COUNTS = ("num_queries", "k")  # their product is the denominator of P, if ranks have equal weights
MEASURED = (*BUDGETS, *SCORES, *DEVIATIONS, *COUNTS, "trial", "kind", "value", "seconds", "width", "split")


@dataclass(frozen=True)
class PointRows:
    """The rows that are operating points of trials.

    Their index is the row number in the file, from 0.
    """

    frame: "pd.DataFrame"
    budget: str  # the column of the training budget

    @property
    def parameters(self) -> list[Any]:
        """Return the columns of the configuration."""
        # pandas names an index column in a file "Unnamed: 0".
        return [name for name in self.frame.columns if name not in MEASURED and not str(name).startswith("Unnamed: ")]

    @cached_property
    def configurations(self) -> "pd.DataFrame":
        """Return the parameters as plain objects, with None for empty cells."""
        return self.frame[self.parameters].apply(as_objects)

    @cached_property
    def configuration_keys(self) -> "pd.Series[Any]":
        return self.configurations.apply(tuple, axis=1)

    @property
    def trials(self) -> "pd.Series[Any]":
        """Return the column that identifies trials: ``trial``, or else their configurations."""
        if "trial" in self.frame:
            return self.frame["trial"]
        return self.configuration_keys


def as_objects(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column as plain objects, with None for empty cells of any type."""
    return column.astype(object).where(column.notna(), None)


def plain(value: Any) -> Scalar:
    """Return a cell as YAML would have it; whole numbers stay integers although columns with gaps hold floats."""
    value = value.item() if isinstance(value, np.generic) else value
    scalar: Scalar = int(value) if isinstance(value, float) and value.is_integer() else value
    return scalar


def number_column(frame: "pd.DataFrame", column: str) -> "pd.Series[float]":
    """Return a column as floats.

    Raises:
        InputError: For the first row whose cell is not a finite number.
    """
    import pandas as pd

    numbers = pd.to_numeric(frame[column], errors="coerce").astype("float64")
    is_wrong = ~np.isfinite(numbers.to_numpy())
    if is_wrong.any():
        first = int(np.flatnonzero(is_wrong)[0])
        raise in_row(frame.index[first], f"{column} is {frame[column].iloc[first]}, not a finite number")
    return numbers


def optional_number_column(frame: "pd.DataFrame", column: str) -> "pd.Series[float]":
    """Return a column as floats like :func:`number_column`, with NaN for empty cells."""
    given = frame[frame[column].notna()]
    return number_column(given, column).reindex(frame.index)


def optional_count_column(frame: "pd.DataFrame", column: str) -> "pd.Series[float]":
    """Return a column of whole numbers above 0 as floats, with NaN for empty cells."""
    counts = optional_number_column(frame, column)
    is_wrong = (counts % 1 != 0) & counts.notna() | (counts < 1)
    if is_wrong.any():
        row = is_wrong.idxmax()
        raise in_row(row, f"{column} is {counts[row]:g}, not a whole number above 0")
    return counts


def check_columns(frame: "pd.DataFrame") -> None:
    for column in ("polarity", "similarity"):
        check_column(frame, column)
    if not any(column in frame for column in BUDGETS):
        raise InputError(f"no column of the training budget; allowed: {', '.join(BUDGETS)}")


def check_column(frame: "pd.DataFrame", column: str) -> None:
    if column not in frame:
        raise InputError(f"no column {column!r}; the columns are {', '.join(map(str, frame.columns))}")


def check_unit(frame: "pd.DataFrame", is_percent: "pd.Series[bool]") -> None:
    """Raise InputError unless scores are all in [0, 1] or all x100.

    ``is_percent`` marks the rows whose polarity must be x100.
    """
    if is_percent.any() != (frame["similarity"].abs() > 1.5).any():
        raise InputError(
            f"polarity is at most {frame['polarity'].max():g} and similarity at most {frame['similarity'].max():g}; "
            "allowed: both in [0, 1], or both x100"
        )
    if is_percent.any() and not is_percent.all():
        row = is_percent.idxmin()
        raise in_row(
            row,
            f"polarity is {frame['polarity'][row]:g}, where other rows have it x100; allowed: all in [0, 1], or all x100",
        )


def in_unit_interval(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the frame with scores and their deviations in [0, 1], even if all were x100.

    Raises:
        InputError: If a cell is not a number.
    """
    for column in ("polarity", "similarity"):
        frame = frame.assign(**{column: number_column(frame, column)})
    deviations = [column for column in DEVIATIONS if column in frame]
    frame = frame.assign(**{column: optional_number_column(frame, column) for column in deviations})
    is_percent = frame["polarity"].abs() > 1.5
    check_unit(frame, is_percent)
    if not is_percent.any():
        return frame
    return frame.assign(**{column: frame[column] / 100 for column in ("polarity", "similarity", *deviations)})


def _check_that_nothing_is_negative(points: PointRows) -> None:
    for column in ("polarity", "seconds", *DEVIATIONS):
        if column in points.frame and (points.frame[column] < 0).any():
            row = points.frame[column].idxmin()
            raise in_row(row, f"{column} is {points.frame[column][row]:g}, below 0")


def _check_that_budgets_are_whole(points: PointRows) -> None:
    budgets = points.frame[points.budget]
    is_wrong = (budgets % 1 != 0) | (budgets < 1)
    if is_wrong.any():
        row = is_wrong.idxmax()
        raise in_row(row, f"{points.budget} is {budgets[row]:g}, not a whole number above 0")


def _check_that_there_are_parameters(points: PointRows) -> None:
    if not points.parameters:
        columns = ", ".join(map(str, points.frame.columns))
        raise InputError(f"no column of the configuration beside {columns}")


def _check_names_of_parameters(points: PointRows) -> None:
    for column in points.parameters:
        if "." in str(column):  # prefixes of a space end in a dot, and pandas uses dots to rename duplicate columns
            raise InputError(
                f"column {column!r}: a parameter's name has no dot, and no two columns have one name; rename it"
            )


def _check_values_of_parameters(points: PointRows) -> None:
    for column in points.parameters:
        for row, value in points.configurations[column].items():
            scalar = plain(value)
            if not isinstance(scalar, bool | int | float | str | None) or scalar in (math.inf, -math.inf):
                raise in_row(row, f"{column} is {value!r}; allowed: numbers, words, true and false")


def _check_that_trials_are_named(points: PointRows) -> None:
    is_empty = points.trials.isna()
    if "trial" in points.frame and is_empty.any():
        raise in_row(is_empty.idxmax(), "trial is empty")


def _check_that_a_trial_has_one_configuration(points: PointRows) -> None:
    if "trial" not in points.frame:
        return
    keys = points.configuration_keys
    differs = keys != keys.groupby(points.trials).transform("first")
    if differs.any():
        row = differs.idxmax()
        raise in_row(row, f"trial {plain(points.trials[row])} has another configuration than in rows above")


CHECKS: tuple[Callable[[PointRows], None], ...] = (
    _check_that_nothing_is_negative,
    _check_that_budgets_are_whole,
    _check_that_there_are_parameters,
    _check_names_of_parameters,
    _check_values_of_parameters,
    _check_that_trials_are_named,
    _check_that_a_trial_has_one_configuration,
)
"""Checks in this order, since later ones may rely on earlier ones. Each raises InputError."""


def in_row(row: Any, problem: str) -> InputError:
    """Return the error for a row of the frame's index, which counts from 0, whereas users count from 1."""
    return InputError(f"row {row + 1}: {problem}")
