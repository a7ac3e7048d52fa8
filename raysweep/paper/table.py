"""A table as values: caption, columns and rows, for all output formats."""

from collections.abc import Sequence
from dataclasses import dataclass

ABSENT = "–"  # noqa: RUF001 (an en dash reads as an empty cell)


class NoTableError(Exception):
    """The data does not allow a table; the message is the reason, shown after the table's name."""


@dataclass(frozen=True)
class Number:
    """A numeric cell, as displayed; scores are x100. None means not measured.

    ``spread`` is its standard deviation, shown in parentheses. The best value of a column is in bold.
    """

    value: float | None
    spread: float | None = None
    is_best: bool = False


Cell = str | Number
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """A column: ``title`` is for readers, ``key`` for the CSV file. Text columns have no ``digits``."""

    title: str
    key: str
    digits: int | None = None  # decimals
    has_spread: bool = False  # a separate CSV column, with the key ``KEY_std``


@dataclass(frozen=True)
class Table:
    """A table. ``name`` is the stem of its files. Groups of rows are separated by rules."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[tuple[Row, ...], ...]


def shown(number: Number, digits: int) -> str:
    """Return a number as text."""
    return ABSENT if number.value is None else f"{number.value:.{digits}f}"


def with_best(numbers: Sequence[Number], digits: int) -> list[Number]:
    """Return the numbers of a column, with those marked that are printed as the maximum."""
    known = [number.value for number in numbers if number.value is not None]
    if not known:
        return list(numbers)
    greatest = shown(Number(max(known)), digits)
    return [Number(each.value, each.spread, shown(each, digits) == greatest) for each in numbers]
