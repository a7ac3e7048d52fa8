"""Scores by the number of examples per rung, N, and their spread over configurations."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raysweep.paper.recording import NUM_EXAMPLES, Configuration, Recording, Scores, column_names, configurations_of
from raysweep.paper.split import choose, endings_text
from raysweep.paper.table import Column, NoTableError, Number, Row, Table
from raysweep.results.types import ScoredSplit

DIGITS = 1

ALL_MODELS = "all"


@dataclass(frozen=True)
class Spread:
    """The configurations of one model and N: their scores x100, on one split after the last rung."""

    model: str
    num_examples: int
    polarities: Sequence[float]
    similarities: Sequence[float]


@dataclass(frozen=True)
class ByExamples:
    """Spreads by model and N, followed by those over all models if there are several."""

    spreads: Sequence[Spread]
    caption: str

    @property
    def models(self) -> list[str]:
        """Return the names of the models, without ALL_MODELS."""
        return [name for name in dict.fromkeys(spread.model for spread in self.spreads) if name != ALL_MODELS]

    def of(self, model: str) -> list[Spread]:
        return [spread for spread in self.spreads if spread.model == model]

    @property
    def overall(self) -> list[Spread]:
        """Return the spreads over all models, by N."""
        return self.of(ALL_MODELS if len(self.models) > 1 else self.models[0])


def by_examples(recordings: Sequence[Recording], wanted: ScoredSplit | None = None) -> ByExamples:
    """Group the configurations by N.

    Raises:
        NoTableError: If there are fewer than two values of N.
    """
    every = [each for each in configurations_of(recordings) if NUM_EXAMPLES in each.values]
    _check_that_they_are_counts(every)
    _check_that_they_differ(every)
    choice = choose(recordings, [each.last_scores for each in every], wanted)
    spreads: list[Spread] = []
    for name, recording in zip(column_names(recordings), recordings, strict=True):
        spreads += _spreads(name, recording.configurations, choice.split)
    if len(recordings) > 1:
        spreads += _spreads(ALL_MODELS, every, choice.split)
    endings = endings_text(recordings)
    return ByExamples(spreads, f"{choice.caption} Each configuration after its last rung.{endings}")


def _check_that_they_are_counts(configurations: Iterable[Configuration]) -> None:
    """Raise NoTableError if a value of N is not a positive integer: recorded tables are not validated."""
    for each in configurations:
        value = each.values[NUM_EXAMPLES]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise NoTableError(f"a configuration has {NUM_EXAMPLES} {value!r}, which is no whole number above 0")


def _check_that_they_differ(configurations: Iterable[Configuration]) -> None:
    numbers = {int(each.values[NUM_EXAMPLES]) for each in configurations}
    if len(numbers) < 2:
        alike = f"has {NUM_EXAMPLES} {numbers.pop():,}" if numbers else f"lacks a parameter {NUM_EXAMPLES!r}"
        raise NoTableError(f"every configuration {alike}; the table compares several")


def _spreads(model: str, configurations: Iterable[Configuration], split: ScoredSplit) -> list[Spread]:
    """Return the spreads of a model, by increasing N."""
    found: dict[int, list[Scores]] = {}
    for configuration in configurations:
        scores = configuration.last_scores.get(split)
        if scores is not None and NUM_EXAMPLES in configuration.values:
            found.setdefault(int(configuration.values[NUM_EXAMPLES]), []).append(scores)
    return [
        Spread(
            model,
            num_examples,
            [100 * scores.polarity for scores in several],
            [100 * scores.similarity for scores in several],
        )
        for num_examples, several in sorted(found.items())
    ]


_STATISTICS = ("mean", "std", "least", "most")


def table(found: ByExamples) -> Table:
    """Return a table with a row for each N, and a group for each model and for all models."""
    caption = (
        "Polarity P and similarity S (x100) by the number N of examples per rung: mean, standard deviation, least and most "
        f"over configurations. {found.caption}"
    )
    columns = _columns()
    if len(found.models) == 1:
        rows = tuple(_row(spread) for spread in found.overall)
        return Table("by_examples", caption, columns, (rows,))
    groups = []
    for model in [*found.models, ALL_MODELS]:
        rows = tuple((model, *_row(spread)) for spread in found.of(model))
        groups.append(rows)
    return Table("by_examples", caption, (Column("model", "model"), *columns), tuple(groups))


def _columns() -> tuple[Column, ...]:
    """Return the columns, except that of the model."""
    columns = [Column("N", "num_examples", 0), Column("configurations", "configurations", 0)]
    for symbol, score in (("P", "polarity"), ("S", "similarity")):
        columns += [Column(f"{symbol} {name}", f"{score}_{name}", DIGITS) for name in _STATISTICS]
    return tuple(columns)


def _row(spread: Spread) -> Row:
    numbers = [spread.num_examples, len(spread.polarities), *_statistics(spread.polarities)]
    return tuple(Number(number) for number in [*numbers, *_statistics(spread.similarities)])


def _statistics(scores: Sequence[float]) -> list[float | None]:
    """Return the values of _STATISTICS; the deviation is that of a sample."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    return [statistics.fmean(scores), deviation, min(scores), max(scores)]
