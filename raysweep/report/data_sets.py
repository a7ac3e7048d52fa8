"""Scores and forgetting on each data set of a sequence."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from raysweep.metrics.scores import Pair
from raysweep.output import ABSENT, TextTable
from raysweep.report.summary import Summary
from raysweep.report.tables import show
from raysweep.results.types import MASK, Point, ScoredSplit

DATA_SETS_TEXT = (
    "Scores of the reference R and of the front's trials on each data set's own queries and pool. A trial is scored with "
    "the data set's own mask, right after it has learned the data set and again at the end of the sequence. Forgetting "
    "is the first score minus the second; it is negative if later data sets helped. The last row of each trial contains "
    "means over data sets."
)


@dataclass(frozen=True)
class TaskScores:
    """A trial's P and S on one data set, in [0, 1]; ``end`` and ``test`` are None until they are scored."""

    trial: int
    data_set: str
    reference: Pair
    learned: Pair
    end: Pair | None
    test: Pair | None

    @property
    def forgetting(self) -> Pair | None:
        """``learned`` minus ``end``, or None if ``end`` is missing."""
        if self.end is None:
            return None
        return self.learned[0] - self.end[0], self.learned[1] - self.end[1]

    def as_json(self) -> dict[str, Any]:
        """Return a row of ``data_sets.json``, with scores x100."""
        values: dict[str, Any] = {"trial": self.trial, "data_set": self.data_set}
        for name in ("reference", "learned", "end", "forgetting", "test"):
            pair: Pair | None = getattr(self, name)
            values[name] = None if pair is None else [round(100 * score, 4) for score in pair]
        return values


def scores_of_trials(summary: Summary, trials: Iterable[int]) -> list[TaskScores]:
    """Return each trial's scores on the data sets that it has learned."""
    info = summary.results.info
    points = {
        (point.trial, point.step, point.value, point.split): point
        for point in summary.results.tasks
    }

    def find(trial: int | None, step: int | None, number: int, split: ScoredSplit) -> Pair | None:
        point: Point | None = points.get((trial, step, float(number), split))
        return None if point is None else point.pair(summary.goals)

    rows = []
    last_step = len(info.tasks)
    for trial in trials:
        for number, name in enumerate(info.tasks, 1):
            reference = find(None, None, number, "dev")
            learned = find(trial, number, number, "dev")
            if reference is None or learned is None:
                continue
            end = find(trial, last_step, number, "dev")
            test = find(trial, last_step, number, "test")
            rows.append(TaskScores(trial, name, reference, learned, end, test))
    return rows


def all_scores(summary: Summary) -> list[TaskScores]:
    """Return the scores of all trials, for ``data_sets.json``."""
    trials = {
        point.trial
        for point in summary.results.tasks
        if point.kind == MASK and point.trial is not None
    }
    return scores_of_trials(summary, sorted(trials))


def data_sets_table(summary: Summary) -> TextTable:
    """Return a table of the front's trials, with a row per data set; empty unless the sweep is a sequence."""
    columns = ["trial", "data set"]
    for heading in summary.goals.headings:
        columns += [f"{heading} {stage}" for stage in ("R", "learned", "end", "forgetting", "test")]
    rows = []
    trials = {member.dev.trial for member in summary.members if member.dev.trial is not None}
    for trial in sorted(trials):
        values_by_name = {}
        for scores in scores_of_trials(summary, [trial]):
            stages = (scores.reference, scores.learned, scores.end, scores.forgetting, scores.test)
            values_by_name[scores.data_set] = [  # P at each stage, then S
                None if pair is None else pair[position] for position in (0, 1) for pair in stages
            ]
        if values_by_name:
            means = []
            for column in zip(*values_by_name.values(), strict=True):
                known = [value for value in column if value is not None]
                means.append(statistics.fmean(known) if known else None)
            values_by_name["mean"] = means
        for name, values in values_by_name.items():
            cells = [ABSENT if value is None else show(value) for value in values]
            rows.append((str(trial), name, *cells))
    return TextTable(tuple(columns), tuple(rows), frozenset({"data set"}))


def data_sets_lines(summary: Summary) -> Iterator[str]:
    """Yield a line per data set with the scores of the knee's trial, if the sweep is a sequence."""
    p, s = summary.goals.headings
    for member in summary.members:
        if not member.is_knee or member.dev.trial is None:
            continue
        for scores in scores_of_trials(summary, [member.dev.trial]):
            if scores.end is None or scores.forgetting is None:
                continue
            (polarity, similarity), (lost_polarity, lost_similarity) = scores.end, scores.forgetting
            yield (
                f"trial {scores.trial}, {scores.data_set}: {p} {show(polarity)} (forgetting {show(lost_polarity)}), "
                f"{s} {show(similarity)} (forgetting {show(lost_similarity)})"
            )
