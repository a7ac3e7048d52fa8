"""The best scores of each loss, rung by rung."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from raysweep.paper.naming import Name, Naming
from raysweep.paper.recording import Recording, Scores, SplitScores, column_names, configurations_of
from raysweep.paper.split import choose
from raysweep.paper.table import Column, NoTableError, Number, Table, with_best
from raysweep.results.types import ScoredSplit

DIGITS = 1


@dataclass(frozen=True)
class Best:
    """The best P and the best S of a loss at one rung, x100, and the configurations that reached them."""

    rung: int
    num_configurations: int
    polarity: float
    polarity_of: str
    similarity: float
    similarity_of: str


@dataclass(frozen=True)
class Course:
    """The best scores of one loss on one model, by increasing rung."""

    loss: str
    bests: Sequence[Best]


@dataclass(frozen=True)
class Courses:
    """The courses of all losses on one model, with the scores of its reference on the same split."""

    model: str
    losses: Sequence[Course]
    reference: Scores | None


@dataclass(frozen=True)
class ByRung:
    models: Sequence[Courses]
    caption: str


def by_rung(recordings: Sequence[Recording], wanted: ScoredSplit | None = None) -> ByRung:
    """Return the best scores of each loss by rung.

    Raises:
        NoTableError: If no configuration has a second rung, or none has a loss.
    """
    every = configurations_of(recordings)
    if not any("loss" in each.values for each in every):
        raise NoTableError("no configuration has a parameter 'loss'")
    if all(len(each.rungs) == 1 for each in every):
        raise NoTableError("every configuration has one rung; the table compares several")
    points: list[SplitScores] = []
    for each in every:
        points += each.rungs.values()
    choice = choose(recordings, points, wanted)
    naming = Naming(recordings)
    models = []
    for name, recording in zip(column_names(recordings), recordings, strict=True):
        reference = recording.baselines.get("reference", {}).get(choice.split)
        models.append(Courses(name, _courses(recording, naming, choice.split), reference))
    return ByRung(models, choice.caption)


def _courses(recording: Recording, naming: Naming, split: ScoredSplit) -> list[Course]:
    found: dict[str, dict[int, dict[Name, Scores]]] = defaultdict(lambda: defaultdict(dict))
    for configuration in recording.configurations:
        name = naming.name(configuration.values)
        for rung, by_split in configuration.rungs.items():
            if split in by_split:
                found[name.loss][rung][name] = by_split[split]
    courses = []
    for loss, scores_by_rung in sorted(found.items()):
        bests = [_best(rung, scores) for rung, scores in sorted(scores_by_rung.items())]
        courses.append(Course(loss, bests))
    return courses


def _best(rung: int, scores: dict[Name, Scores]) -> Best:
    polarity_of = max(scores, key=lambda name: scores[name].polarity)
    similarity_of = max(scores, key=lambda name: scores[name].similarity)
    return Best(
        rung,
        len(scores),
        100 * scores[polarity_of].polarity,
        polarity_of.text,
        100 * scores[similarity_of].similarity,
        similarity_of.text,
    )


def table(found: ByRung) -> Table:
    """Return a table with a row for each rung, and a group for each model and loss with its best value in bold."""
    columns = (
        Column("model", "model"),
        Column("loss", "loss"),
        Column("rung", "rung", 0),
        Column("configurations", "configurations", 0),
        Column("best P", "polarity", DIGITS),
        Column("of", "polarity_of"),
        Column("best S", "similarity", DIGITS),
        Column("of", "similarity_of"),
    )
    caption = (
        "The best polarity P and the best similarity S (x100) of each loss, rung by rung, and the margin or what else tells "
        "the configuration that has it: the two are rarely of one configuration. A rung is an epoch where a table records "
        f"epochs. {found.caption} In bold the best over rungs."
    )
    groups = [_group(courses.model, course) for courses in found.models for course in courses.losses]
    return Table("by_rung", caption, columns, tuple(groups))


def _group(model: str, course: Course) -> tuple[tuple[str | Number, ...], ...]:
    polarities = with_best([Number(best.polarity) for best in course.bests], DIGITS)
    similarities = with_best([Number(best.similarity) for best in course.bests], DIGITS)
    return tuple(
        (
            model,
            course.loss,
            Number(best.rung),
            Number(best.num_configurations),
            polarity,
            best.polarity_of,
            similarity,
            best.similarity_of,
        )
        for best, polarity, similarity in zip(course.bests, polarities, similarities, strict=True)
    )
