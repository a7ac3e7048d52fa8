"""Pairs of sentences with a gold similarity score, as in the STS tasks of SemEval.

A source is either a table with one column for the gold score and one for each sentence, or a ``.tsv`` file without a
header. Each line of such a file contains the gold score and the two sentences, unquoted and separated by tabs. Pairs
with an empty score are skipped.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.data import sources
from raysweep.data.source_files import format_of
from raysweep.errors import InputError

_MAX_CELLS = 4  # maximum number of cells shown per line in messages
_MAX_SHOWN = 30  # maximum number of characters shown per cell in messages
_ALLOWED = "allowed: a number, or empty for a pair without a score"


@dataclass(frozen=True)
class PairColumns:
    """Column names of scored pairs. ``groups`` are additional columns whose values identify a pair's group."""

    score: str = "score"
    first: str = "sentence1"
    second: str = "sentence2"
    groups: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.score, self.first, self.second, *self.groups


@dataclass(frozen=True)
class ScoredPairs:
    """The scored pairs of a task. ``gold`` contains the gold scores on any scale, float64 (pairs,).

    ``num_pairs`` includes pairs without a score. ``groups`` contains each pair's values in the group columns.
    """

    name: str
    first: list[str]
    second: list[str]
    gold: npt.NDArray[np.float64]
    num_pairs: int
    groups: list[tuple[str, ...]]

    @property
    def sentences(self) -> Mapping[str, list[str]]:
        """Return the first sentences of all pairs, followed by the second ones."""
        return {"all": self.first + self.second}


@dataclass(frozen=True)
class _Pair:
    """A row's values, and its location for error messages."""

    place: str
    score: Any
    first: Any
    second: Any
    group: tuple[str, ...] = ()


def is_without_header(piece: sources.Piece) -> bool:
    """Return whether a piece is a ``.tsv`` file whose first line is a pair."""
    if not _is_tab_separated(piece):
        return False
    cells = next(sources.lines(piece), "").split("\t")
    if len(cells) != 3:
        return False
    score, _, _ = cells
    try:
        return math.isfinite(float(score or 0))
    except ValueError:
        return False


def _is_tab_separated(piece: sources.Piece) -> bool:
    if piece.file is None:
        return False
    file_format = format_of(piece.name)
    return file_format is not None and file_format.suffix == ".tsv"


def read(name: str, pieces: Sequence[sources.Piece], columns: PairColumns) -> ScoredPairs:
    """Read the scored pairs of the task ``name``.

    Raises:
        InputError: If a row is invalid, if no pair has a score, or if all scores are equal.
    """
    first, second, gold, groups = [], [], [], []
    num_pairs = 0
    for piece in pieces:
        pairs = _lines(piece) if is_without_header(piece) else _rows_below_header(piece, columns)
        for pair in pairs:
            num_pairs += 1
            score = _score(pair, columns)
            if score is None:
                continue
            first.append(pair.first)
            second.append(pair.second)
            gold.append(score)
            groups.append(pair.group)
    if not gold:
        raise InputError(f"{name}: none of its {num_pairs} pairs has a score")
    if len(set(gold)) == 1:
        raise InputError(
            f"{name}: every scored pair has the score {gold[0]:g}; a correlation requires at least two different scores"
        )
    return ScoredPairs(name, first, second, np.array(gold), num_pairs, groups)


def _lines(piece: sources.Piece) -> Iterator[_Pair]:
    for number, line in enumerate(sources.lines(piece), 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        place = f"{piece.name}: line {number}"
        if len(cells) != 3:
            raise InputError(
                f"{place}: the number of cells is {len(cells)}; allowed: 3 cells, a score and two sentences, separated "
                "by tabs"
            )
        score, first, second = cells
        sources.check_texts(piece.name, number, [first], "first sentence")
        sources.check_texts(piece.name, number, [second], "second sentence")
        yield _Pair(place, score, first, second)


def _rows_below_header(piece: sources.Piece, columns: PairColumns) -> Iterator[_Pair]:
    """Yield the rows of a table. For a ``.tsv`` with an invalid header, the InputError mentions both formats."""
    num_rows = 0
    try:
        for scores, first, second, *groups in sources.read_values(piece, columns.names):
            first_row = num_rows + 1
            sources.check_texts(piece.name, first_row, first, columns.first)
            sources.check_texts(piece.name, first_row, second, columns.second)
            rows = zip(scores, first, second, *groups, strict=True)
            for row, values in enumerate(rows, first_row):
                place = f"{piece.name}: row {row}"
                score, first_text, second_text, *group_values = values
                group = read_group(place, columns.groups, group_values)
                num_rows += 1
                yield _Pair(place, score, first_text, second_text, group)
    except InputError:
        if (
            num_rows == 0
            and _is_tab_separated(piece)
            and (problem := _problem_of_first_line(piece, columns))
        ):
            raise InputError(f"{piece.name}: {problem}") from None
        raise


def _problem_of_first_line(piece: sources.Piece, columns: PairColumns) -> str:
    """Return why the first line of a ``.tsv`` is neither a header nor a pair, or "" if it is a header."""
    names = ", ".join(columns.names)
    no_header = "no header and a pair on every line: a score and two sentences, separated by tabs"
    allowed = f"allowed: a header with the columns {names}, or {no_header}"
    first = next(sources.lines(piece), "")
    if not first.strip():
        return f"is empty, or its first line is empty; {allowed}"
    cells = [cell.strip().strip('"') for cell in first.split("\t")]
    if set(columns.names) <= set(cells):
        return ""
    first_cells = cells[:_MAX_CELLS]
    shown = ", ".join(repr(cell[:_MAX_SHOWN]) for cell in first_cells)
    return f"line 1 is {shown}, which is neither a header nor a pair; {allowed}"


def read_group(place: str, columns: Sequence[str], values: Sequence[Any]) -> tuple[str, ...]:
    """Return the values of a row's group columns as strings. Raises InputError if a value is empty."""
    for column, value in zip(columns, values, strict=True):
        if value is None or value != value or not str(value).strip():
            raise InputError(f"{place}: {column} is {value!r}; allowed: a group name")
    return tuple(map(str, values))


def _score(pair: _Pair, columns: PairColumns) -> float | None:
    """Return the gold score, or None if it is empty. Raises InputError if it is not a number."""
    value = pair.score
    is_nan = value != value
    is_blank = isinstance(value, str) and not value.strip()
    if value is None or is_nan or is_blank:
        return None
    is_number = isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)
    score = math.nan
    if is_number:
        with contextlib.suppress(ValueError):
            score = float(value)
    if not math.isfinite(score):
        raise InputError(f"{pair.place}: {columns.score} is {value!r}; {_ALLOWED}")
    return score
