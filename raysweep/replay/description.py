"""Descriptions of tables from other tools: the columns of P, S, the budget and the searched parameters.

The file ``NAME.table.yaml`` next to ``NAME.csv``, ``NAME.tsv`` or ``NAME.parquet``::

    polarity: {column: val_acc, direction: maximize, range: [0.55, 0.97]}
    similarity: {column: train_time, direction: minimize, range: [0.4, 310.0], log: true}
    budget: epoch        # whole numbers; without it a trial has one rung, so only the proposals of searches are compared
    cost: train_time     # seconds since the trial started, spent by simulated workers; without it the budget
    parameters: [depth, width]    # without it every other column except trial, kind, value and split
    ranges: [width]      # numeric columns to search as ranges even if few of their values were recorded

Both metrics are scaled to [0, 1], from the worse end of the range to the better one. The reference point of hypervolumes is
(0, 0).
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError, model_validator

from raysweep.config.document import Document, KeyPath
from raysweep.config.strict import Frozen, explain
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.replay.table_checks import MEASURED, check_column, in_row, number_column, optional_number_column

if TYPE_CHECKING:
    import pandas as pd

SUFFIX = ".table.yaml"

WORST: Pair = (0.0, 0.0)  # P and S at the worse ends of their ranges

KEPT = ("trial", "kind", "value", "split")  # point columns that keep their meaning, if present

ONLY_RUNG = 1  # the budget of every trial if none is recorded


class MetricDescription(Frozen):
    """A column that holds P or S."""

    column: str = Field(description="column of the metric")
    direction: Literal["maximize", "minimize"] = Field(description="better end of the range")
    range: list[float] = Field(min_length=2, max_length=2, description="minimum and maximum value")
    log: bool = Field(False, description="whether to scale the logarithm")

    @model_validator(mode="after")
    def _check_range(self) -> "MetricDescription":
        low, high = self.range
        if low >= high:
            raise ValueError(f"range is from {low:g} to {high:g}; its first number must be below its second")
        if self.log and low <= 0:
            raise ValueError(
                f"range begins at {low:g}, which has no logarithm; allowed: log: false, or a range above 0"
            )
        return self

    def scores(self, frame: "pd.DataFrame") -> "pd.Series[float]":
        """Return the metric scaled to [0, 1], with 1 at the better end.

        Raises:
            InputError: If a cell is not a number or is outside the range.
        """
        values = number_column(frame, self.column)
        low, high = self.range
        is_outside = (values < low) | (values > high)
        if is_outside.any():
            row = is_outside.idxmax()
            raise in_row(row, f"{self.column} is {values[row]:g}, not from {low:g} to {high:g}, its range")
        if self.log:
            values = values.map(math.log)
            low, high = math.log(low), math.log(high)
        shares = ((values - low) / (high - low)).clip(0.0, 1.0)  # rounding may leave the interval
        return shares if self.direction == "maximize" else 1 - shares


class TableDescription(Frozen):
    """The meaning of a table's columns."""

    polarity: MetricDescription
    similarity: MetricDescription
    budget: str | None = Field(None, description="column of the training budget")
    cost: str | None = Field(None, description="column of the seconds since the trial started")
    parameters: list[str] | None = Field(None, min_length=1, description="columns of the configuration")
    ranges: list[str] = Field([], description="numeric columns to search as ranges")

    @property
    def range_names(self) -> frozenset[str]:
        """Return the parameters to search as ranges, under their names in :meth:`applied`."""
        return frozenset(_renamed(name) for name in self.ranges)

    def applied(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return the columns that :mod:`raysweep.replay.table_io` reads, made from the table's own.

        Raises:
            InputError: If a column or cell is invalid, with its row and column.
        """
        for column in self._named():
            check_column(frame, column)
        names = self._parameters(frame)
        _check_names(names, self._measured())
        kept = [name for name in KEPT if name in frame and name not in names]
        made = frame[[*names, *kept]].rename(columns={name: _renamed(name) for name in names})
        for column in self.ranges:
            _check_range(frame, column, names)
        made["step"] = ONLY_RUNG if self.budget is None else frame[self.budget]
        if self.cost is not None:
            made["seconds"] = _costs(frame, self.cost)
        made["polarity"] = self.polarity.scores(frame)
        made["similarity"] = self.similarity.scores(frame)
        return made

    def _named(self) -> list[str]:
        """Return the columns that the description names."""
        return [*self._measured(), *(self.parameters or [])]

    def _measured(self) -> list[str]:
        """Return the columns that are not parameters."""
        optional = [name for name in (self.budget, self.cost) if name is not None]
        return [self.polarity.column, self.similarity.column, *optional]

    def _parameters(self, frame: "pd.DataFrame") -> list[str]:
        if self.parameters is not None:
            return self.parameters
        named = self._named()
        return [name for name in frame.columns if name not in named and name not in KEPT]


def _renamed(parameter: str) -> str:
    """Return a parameter's name with a suffix if raysweep's tables use it for something else, such as width."""
    return f"{parameter}_" if parameter in MEASURED else parameter


def _check_names(parameters: list[str], measured: list[str]) -> None:
    """Raise InputError for a parameter that is named twice or is a metric, the budget or the cost."""
    for number, name in enumerate(parameters):
        if name in measured or name in parameters[:number]:
            raise InputError(
                f"parameters: {name!r} is named twice, or is a metric, the budget or the cost; allowed: other columns, "
                "once each"
            )


def _check_range(frame: "pd.DataFrame", column: str, parameters: list[str]) -> None:
    """Raise InputError if a range is not a parameter or has a cell that is neither a number nor empty."""
    if column not in parameters:
        raise InputError(f"ranges: {column!r} is no parameter; allowed: {', '.join(parameters)}")
    optional_number_column(frame, column)


def _costs(frame: "pd.DataFrame", column: str) -> "pd.Series[float]":
    """Return the cost column.

    Raises:
        InputError: If a cost is negative.
    """
    costs = number_column(frame, column)
    is_below = costs < 0
    if is_below.any():
        row = is_below.idxmax()
        raise in_row(row, f"{column} is {costs[row]:g}, below 0")
    return costs


def beside(table: Path) -> TableDescription | None:
    """Return the description file of a table; None if it does not exist.

    Raises:
        InputError: If the file is invalid, with file, line, key and the allowed values.
    """
    path = table.with_name(table.stem + SUFFIX)
    if not path.exists():
        return None
    document = Document.read(path)
    try:
        return TableDescription.model_validate(document.values)
    except ValidationError as error:
        # Unknown keys first, since a misspelled key also shows up as a missing one.
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        keys: KeyPath = tuple(first["loc"])
        raise document.error(keys, explain(dict(first), keys, TableDescription)) from None
