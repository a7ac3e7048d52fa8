"""A table as values: its caption, its columns and its rows, for every format that it is written in."""

from collections.abc import Sequence
from dataclasses import dataclass

ABSENT = "–"  # noqa: RUF001 (an en dash reads as an empty cell)


class NoTableError(Exception):
    """The data cannot give a table; the message says why, after the table's name and a colon."""


@dataclass(frozen=True)
class Number:
    """A cell that is a number, as readers see it; scores are x100. None was not measured.

    ``spread`` is its standard deviation, and stands beside it in parentheses. The best of a column is in bold.
    """

    value: float | None
    spread: float | None = None
    is_best: bool = False


Cell = str | Number
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """``title`` is for people, and ``key`` for programs that read the CSV file. A column of text has no ``digits``."""

    title: str
    key: str
    digits: int | None = None  # after the point
    has_spread: bool = False  # which has a column of its own in the CSV file, with the key ``KEY_std``


@dataclass(frozen=True)
class Table:
    """``name`` is that of its files, without a suffix. Rules stand between groups of rows."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[tuple[Row, ...], ...]


def shown(number: Number, digits: int) -> str:
    """A number as it is printed."""
    return ABSENT if number.value is None else f"{number.value:.{digits}f}"


def with_best(numbers: Sequence[Number], digits: int) -> list[Number]:
    """Numbers of a column, of which those that are printed as the greatest are marked."""
    known = [number.value for number in numbers if number.value is not None]
    if not known:
        return list(numbers)
    greatest = shown(Number(max(known)), digits)
    return [Number(each.value, each.spread, shown(each, digits) == greatest) for each in numbers]
