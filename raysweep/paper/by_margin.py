"""Scores by loss, margin and model: one table of polarity and one of similarity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from raysweep.paper.naming import Name, Naming
from raysweep.paper.recording import Recording, Scores, column_names, configurations_of
from raysweep.paper.split import Choice, choose, endings_text
from raysweep.paper.table import ABSENT, Column, NoTableError, Number, Row, Table, with_best
from raysweep.results.types import ScoredSplit

Score = Literal["polarity", "similarity"]

DIGITS = 1

_SYMBOLS: Mapping[Score, str] = {"polarity": "P", "similarity": "S"}


def by_margin(recordings: Sequence[Recording], score: Score, wanted: ScoredSplit | None = None) -> Table:
    """Return a table with a row per configuration and a column per recording, with the best value in bold.

    The reference and baselines come first. Scores are those of the tuned encoder after its last rung.

    Raises:
        NoTableError: If no configuration has a loss.
    """
    grid = _Grid.of(recordings, wanted)
    columns = [Column("loss", "loss"), Column("margin", "margin")]
    if grid.naming.others:
        columns.append(Column("others", "others"))
    columns += [Column(name, name, DIGITS, has_spread=True) for name in grid.names]
    numbers = [grid.numbers(recording, score) for recording in recordings]
    groups = [_baseline_rows(grid, recordings, score), *_configuration_rows(grid, numbers)]
    caption = (
        f"{score.capitalize()} {_SYMBOLS[score]} (x100) by loss, margin and model: mean over queries, with its standard "
        "deviation over queries in parentheses where it is known. "
        f"{grid.choice.caption} Each configuration after its last rung.{endings_text(recordings)} "
        "In bold the best of each column among the configurations."
    )
    return Table(f"by_margin_{score}", caption, tuple(columns), tuple(group for group in groups if group))


@dataclass(frozen=True)
class _Grid:
    names: Sequence[str]  # columns, one per recording
    naming: Naming
    rows: Sequence[Name]
    choice: Choice

    @classmethod
    def of(cls, recordings: Sequence[Recording], wanted: ScoredSplit | None) -> "_Grid":
        naming = Naming(recordings)
        every = configurations_of(recordings)
        if not any("loss" in each.values for each in every):
            raise NoTableError("no configuration has a parameter 'loss'")
        choice = choose(recordings, [each.last_scores for each in every], wanted)
        rows = {naming.name(each.values) for each in every if choice.split in each.last_scores}
        in_order = sorted(rows, key=lambda row: (row.loss, row.order))
        return cls(column_names(recordings), naming, in_order, choice)

    def numbers(self, recording: Recording, score: Score) -> list[Number]:
        """Return the column of a recording, one number per row."""
        found = {}
        for configuration in recording.configurations:
            scores = configuration.last_scores.get(self.choice.split)
            found[self.naming.name(configuration.values)] = _number(scores, score)
        return with_best([found.get(row, Number(None)) for row in self.rows], DIGITS)

    def row(self, loss: str, margin: str, others: str, numbers: Sequence[Number]) -> Row:
        return (loss, margin, *([others] if self.naming.others else []), *numbers)


def _number(scores: Scores | None, score: Score) -> Number:
    if scores is None:
        return Number(None)
    value, spread = getattr(scores, score), getattr(scores, f"{score}_std")
    return Number(100 * value, None if spread is None else 100 * spread)


def _baseline_rows(grid: _Grid, recordings: Sequence[Recording], score: Score) -> tuple[Row, ...]:
    names: dict[str, None] = {}
    for recording in recordings:
        names |= dict.fromkeys(recording.baselines)
    rows = []
    for name in names:
        scored = [recording.baselines.get(name, {}).get(grid.choice.split) for recording in recordings]
        if any(scored):
            numbers = [_number(scores, score) for scores in scored]
            rows.append(grid.row(name, ABSENT, ABSENT, numbers))
    return tuple(rows)


def _configuration_rows(grid: _Grid, numbers: Sequence[Sequence[Number]]) -> list[tuple[Row, ...]]:
    """Return a group of rows for each loss."""
    lines = zip(grid.rows, zip(*numbers, strict=True), strict=True)
    groups = []
    for _, several in groupby(lines, key=lambda line: line[0].loss):
        rows = [grid.row(name.loss, name.margin, name.others or ABSENT, cells) for name, cells in several]
        groups.append(tuple(rows))
    return groups
