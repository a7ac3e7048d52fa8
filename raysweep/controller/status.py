"""The status line of a sweep that is running."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysweep.metrics.objective import Pair
from raysweep.results.types import RungProgress
from raysweep.terminal import duration
from raysweep.trial_status import TrialStatus


@dataclass(frozen=True)
class SweepStatus:
    """A running sweep at one moment. ``counts`` are trials by how they stand, those that run first."""

    num_begun: int  # trials of the search, replicates aside
    num_trials: int  # that the search may begin
    num_replicates: int
    max_replicates: int
    counts: Mapping[TrialStatus, int]
    best: Pair | None  # P and S of the best point, once there is one
    front_size: int
    seconds: float
    limit_seconds: float | None  # of the budget's wall-clock time
    underway: Sequence[RungProgress] = ()  # of the trials that are within a rung, as far as they have said
    is_paused: bool = False  # by a person
    max_workers: int | None = None  # at a time, where a person has said so

    @property
    def fraction_begun(self) -> float:
        """The share of all trials, replicates included, that have begun."""
        return self._all_begun / self._all_trials

    @property
    def text(self) -> str:
        """How many trials have begun, run, are held and have ended; the best point; the front; the time left."""
        paused = "paused, " if self.is_paused else ""
        parts = [f"search: {paused}{self._begun_text}, {self._counts_text}"]
        if self.max_workers is not None:
            parts.append(f"at most {self.max_workers} at a time")
        if self.best is not None:
            polarity, similarity = self.best
            parts.append(f"best by the objective at P {100 * polarity:.2f} S {100 * similarity:.2f}")
            parts.append(f"front {self.front_size}")
        if self.underway:
            parts.append(describe_progress(self.underway))
        parts.append(self._time_text)
        return " | ".join(parts)

    @property
    def _begun_text(self) -> str:
        text = f"{self.num_begun} of {self.num_trials} trials begun"
        if self.num_replicates:
            text += f", {self.num_replicates} of at most {self.max_replicates} replicates"
        return text

    @property
    def _counts_text(self) -> str:
        shown = [status for status, count in self.counts.items() if count or status == TrialStatus.RUNNING]
        return ", ".join(f"{self.counts[status]} {status}" for status in shown)

    @property
    def _time_text(self) -> str:
        by_pace, by_limit = self._seconds_by_pace, self._seconds_by_limit
        left = min(by_pace, by_limit)
        if self.is_paused or not 1 <= left < math.inf:
            return f"{duration(self.seconds)} so far"
        return f"{'about' if by_pace < math.inf else 'at most'} {duration(left)} left"

    @property
    def _seconds_by_pace(self) -> float:
        """Left at the pace so far; infinite before a trial has rested, and where only held ones may go on."""
        if self._all_begun <= self.counts[TrialStatus.RUNNING]:
            return math.inf
        return self.seconds / self._all_begun * (self._all_trials - self._all_begun)

    @property
    def _seconds_by_limit(self) -> float:
        return math.inf if self.limit_seconds is None else self.limit_seconds - self.seconds

    @property
    def _all_begun(self) -> int:
        return self.num_begun + self.num_replicates

    @property
    def _all_trials(self) -> int:
        return max(self._all_begun, self.num_trials + self.max_replicates)


def describe_progress(underway: Sequence[RungProgress]) -> str:
    """How far one rung is, or how fast several are together and when the first of them will be done."""
    examples_per_second = sum(each.examples_per_second for each in underway)
    digits = 0 if examples_per_second >= 10 else 1
    pace = f"{examples_per_second:,.{digits}f} examples/s"
    left = duration(min(each.seconds_left for each in underway))
    if len(underway) > 1:
        return f"{len(underway)} rungs under way, {pace}, the first done in {left}"
    (rung,) = underway
    counted = f"{rung.num_seen:,} of {rung.num_examples:,}"
    return f"rung {rung.step}: {counted}, {pace}, {left} left"
