"""A running sweep's status line."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysweep.metrics.scores import GOALS, Goals, Pair
from raysweep.results.types import RungProgress, TrialStatus
from raysweep.terminal import duration


@dataclass(frozen=True)
class SweepStatus:
    """A snapshot of a running sweep. ``counts`` holds the number of trials per status, with running trials first."""

    num_begun: int  # number of trials started, not counting replicates
    num_trials: int  # number of trials in the budget
    num_replicates: int
    max_replicates: int
    counts: Mapping[TrialStatus, int]
    best: Pair | None  # P and S of the best point so far
    front_size: int
    seconds: float
    limit_seconds: float | None  # the budget's wall-clock limit
    underway: Sequence[RungProgress] = ()  # progress of trials within a rung, if reported
    is_paused: bool = False  # by a user request
    max_workers: int | None = None  # maximum number of concurrent trials, if requested
    goals: Goals = GOALS  # the scores that serve as P and S

    @property
    def fraction_begun(self) -> float:
        """Return the share of trials, including replicates, that have started."""
        return self._all_begun / self._all_trials

    @property
    def text(self) -> str:
        """Return the status line: trial counts, the best point, the front's size, and the time left."""
        counts = ["paused"] if self.is_paused else []
        counts.append(f"{self.num_begun} of {self.num_trials} trials begun")
        if self.num_replicates:
            counts.append(f"{self.num_replicates} of at most {self.max_replicates} replicates")
        for status, count in self.counts.items():
            if count or status == TrialStatus.RUNNING:
                counts.append(f"{count} {status}")
        parts = [f"search: {', '.join(counts)}"]
        if self.max_workers is not None:
            parts.append(f"at most {self.max_workers} at a time")
        if self.best is not None:
            scores = zip(self.goals.headings, self.best, strict=True)
            shown = " ".join(f"{heading} {100 * score:.2f}" for heading, score in scores)
            parts.append(f"best by the objective at {shown}")
            parts.append(f"front {self.front_size}")
        if self.underway:
            parts.append(describe_progress(self.underway))
        parts.append(self._time_text)
        return " | ".join(parts)

    @property
    def _time_text(self) -> str:
        by_pace = self._seconds_by_pace
        by_limit = math.inf if self.limit_seconds is None else self.limit_seconds - self.seconds
        left = min(by_pace, by_limit)
        if self.is_paused or not 1 <= left < math.inf:
            return f"{duration(self.seconds)} so far"
        return f"{'about' if by_pace < math.inf else 'at most'} {duration(left)} left"

    @property
    def _seconds_by_pace(self) -> float:
        """Return the seconds left at the current pace; infinite until the first trial has left its worker."""
        if self._all_begun <= self.counts[TrialStatus.RUNNING]:
            return math.inf
        return self.seconds / self._all_begun * (self._all_trials - self._all_begun)

    @property
    def _all_begun(self) -> int:
        return self.num_begun + self.num_replicates

    @property
    def _all_trials(self) -> int:
        return max(self._all_begun, self.num_trials + self.max_replicates)


def describe_progress(underway: Sequence[RungProgress]) -> str:
    """Describe one rung's progress, or several rungs' combined speed and the time until the first one finishes."""
    examples_per_second = sum(rung.examples_per_second for rung in underway)
    digits = 0 if examples_per_second >= 10 else 1
    pace = f"{examples_per_second:,.{digits}f} examples/s"
    seconds_left = min(rung.seconds_left for rung in underway)
    time_left = duration(seconds_left)
    if len(underway) > 1:
        return f"{len(underway)} rungs under way, {pace}, the first done in {time_left}"
    (rung,) = underway
    counted = f"{rung.num_seen:,} of {rung.num_examples:,}"
    return f"rung {rung.step}: {counted}, {pace}, {time_left} left"
