"""Two-proportion z-tests of P against one row, as in papers, plus the design effect that papers omit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raysweep.errors import InputError
from raysweep.paper.naming import Name, Naming
from raysweep.paper.recording import Recording, Scores, column_names, configurations_of
from raysweep.paper.split import choose
from raysweep.paper.table import ABSENT, Column, NoTableError, Number, Row, Table
from raysweep.results.types import ScoredSplit
from raysweep.uncertainty.differences import holm
from raysweep.uncertainty.proportions import Proportion, ZTest, z_test

NAME = "z_tests"

_COLUMNS = (
    Column("model", "model"),
    Column("row", "row"),
    Column("P", "polarity", 1, has_spread=True),
    Column("difference", "difference", 1),
    Column("binomial z", "binomial_z", 2),
    Column("design effect", "design_effect", 2),
    Column("z", "z", 2),
    Column("p (Holm)", "p_holm", 4),
)

_CAPTION = (
    "Two-proportion z-tests of polarity P (x100) against {against}. With uniform rank weights P is the share of all "
    "retrieved sentences that have their query's label. The binomial z takes these for independent, which the k of one "
    "query are not: the design effect is the variance of P over queries over the binomial one, P (1 - P) / k. A row whose "
    "deviation is not known is taken to have the other's. z has the design effect in it; p is two-sided, by z, adjusted for "
    "all rows by Holm's method. The test takes rows for measured on different queries; on the same ones a paired comparison "
    "tells more."
)


@dataclass(frozen=True)
class _Scored:
    """An encoder of a recording: a row of the table."""

    model: str
    name: str
    scores: Scores

    @property
    def label(self) -> str:
        return f"{self.model}: {self.name}"

    @property
    def proportion(self) -> Proportion | None:
        """Return P with its counts, or None if they are unknown."""
        scores, counts = self.scores, self.scores.counts
        if counts is None:
            return None
        return Proportion(scores.polarity, counts.num_queries, counts.k, scores.polarity_std)


def table(recordings: Sequence[Recording], against: str, wanted: ScoredSplit | None = None) -> Table:
    """Return a table that compares P of each baseline and configuration with that of the row ``against``.

    Raises:
        InputError: If ``against`` does not exist; the message lists the rows.
        NoTableError: If nothing can be tested.
    """
    every = configurations_of(recordings)
    choice = choose(recordings, [each.last_scores for each in every], wanted)
    rows = list(_rows(recordings, choice.split))
    chosen = _row_of(rows, against)
    tests = [_test(row, chosen) for row in rows]
    p_values = [test.p_value for test in tests if test is not None]
    if not p_values:
        raise NoTableError(
            f"no row can be tested against {against!r}; that needs rows of one k with uniform rank weights, in recorded "
            "tables the columns num_queries and k, and a deviation over queries of either row"
        )
    adjusted = iter(holm(p_values))
    lines: dict[str, list[Row]] = {}  # by model
    for row, test in zip(rows, tests, strict=True):
        p_value = None if test is None else next(adjusted)
        lines.setdefault(row.model, []).append(_line(row, test, p_value))
    caption = f"{_CAPTION.format(against=chosen.label)} {choice.caption}"
    return Table(NAME, caption, _COLUMNS, tuple(map(tuple, lines.values())))


def _rows(recordings: Sequence[Recording], split: ScoredSplit) -> Iterator[_Scored]:
    """Yield the baselines of each recording, then its configurations after their last rung."""
    naming = Naming(recordings)
    for model, recording in zip(column_names(recordings), recordings, strict=True):
        for name, by_split in recording.baselines.items():
            if split in by_split:
                yield _Scored(model, name, by_split[split])
        named = {naming.name(each.values): each.last_scores for each in recording.configurations}
        for each in sorted(named, key=lambda name: (name.loss, name.order)):
            if split in named[each]:
                yield _Scored(model, _text(each), named[each][split])


def _text(name: Name) -> str:
    return name.loss if name.text == ABSENT else f"{name.loss} {name.text}"


def _row_of(rows: Sequence[_Scored], against: str) -> _Scored:
    """Return the row with this label, or the only one with this name."""
    found = [row for row in rows if row.label == against] or [row for row in rows if row.name == against]
    if len(found) == 1:
        return found[0]
    problem = "the name of several rows" if found else "no row"
    allowed = "; ".join(row.label for row in found or rows)
    raise InputError(f"--z-test {against!r} is {problem}; allowed: {allowed}")


def _test(row: _Scored, other: _Scored) -> ZTest | None:
    """Return the test, or None for the row itself, and if P is not a known share of sentences at the same k."""
    one, two = row.proportion, other.proportion
    if row is other or one is None or two is None or one.k != two.k:
        return None
    return z_test(one, two)


def _line(row: _Scored, test: ZTest | None, p_value: float | None) -> Row:
    spread = row.scores.polarity_std
    polarity = Number(100 * row.scores.polarity, None if spread is None else 100 * spread)
    if test is None:
        return row.model, row.name, polarity, *(Number(None) for _ in _COLUMNS[3:])
    values = (100 * test.difference, test.binomial_z, test.design_effect, test.z, p_value)
    return row.model, row.name, polarity, *map(Number, values)
