"""The effect of early stopping: the number of trials at each rung, and the status of those that ended there."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from raysweep.report.statuses import STATUS_STYLES, standing, with_sign
from raysweep.report.summary import Summary, TrialSummary
from raysweep.report.tables import ABSENT, TextTable, show


@dataclass
class RungCount:
    """The trials that reached rung ``step``; ``endings`` counts the statuses of trials whose last rung it is."""

    step: int
    examples_seen: list[int] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)
    endings: Counter[str] = field(default_factory=Counter)


def rung_counts(trials: Sequence[TrialSummary]) -> list[RungCount]:
    """Return the counts by increasing step, without replicates."""
    counts: dict[int, RungCount] = {}
    for each in trials:
        if each.trial.replicate_of is not None:
            continue
        for rung, objective in zip(each.rungs, each.objectives, strict=True):
            step = rung.step
            count = counts.setdefault(step, RungCount(step))
            count.examples_seen.append(rung.examples_seen)
            count.objectives.append(objective)
        if each.rungs:
            last = counts[each.rungs[-1].step]
            last.endings[standing(each.trial)] += 1
    return [counts[step] for step in sorted(counts)]


def stopping_table(summary: Summary) -> TextTable:
    """Return a table with a row per rung."""
    counts = rung_counts(summary.trials)
    ended = [status for status in STATUS_STYLES if any(count.endings[status] for count in counts)]
    rows = tuple(_row(count, ended) for count in counts)
    columns = ("rung", "examples", "trials", "best objective", *(f"last: {with_sign(status)}" for status in ended))
    return TextTable(columns, rows, frozenset())


def _row(count: RungCount, ended: Sequence[str]) -> tuple[str, ...]:
    endings = [str(count.endings[status]) if count.endings[status] else ABSENT for status in ended]
    return (
        str(count.step),
        _range(count.examples_seen),
        str(len(count.objectives)),
        show(max(count.objectives)),
        *endings,
    )


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def stopping_text(summary: Summary) -> str:
    """Return sentences about the trained share of the planned rungs and the time saved."""
    trials = [each for each in summary.trials if each.trial.replicate_of is None]
    planned = sum(each.trial.num_rungs or len(each.rungs) for each in trials)
    done = sum(len(each.rungs) for each in trials)
    text = f"{done:,} of {planned:,} rungs were trained ({done / planned:.0%}). " if planned else ""
    saved = summary.account.total.saved_seconds
    text += f"Stopping early saved about {saved:,.0f} trial-seconds. " if saved else ""
    return (
        text
        + "A row counts the trials that were evaluated at a rung, and those that have gone no further, by how they stand."
    )
