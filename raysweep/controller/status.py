"""The status of a running sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from raysweep.metrics.scores import GOALS, Goals, Pair
from raysweep.results.account import describe_cost
from raysweep.results.types import Cost, RungProgress, TrialStatus
from raysweep.terminal import duration


class Activity(StrEnum):
    """The current activity of a running trial."""

    WAITING = "waiting"  # for a worker
    LOADING = "loading"  # libraries and the encoder
    TRAINING = "training"
    EVALUATING = "evaluating"


@dataclass(frozen=True)
class RunningRung:
    """A snapshot of a running trial's current rung."""

    trial: int
    step: int
    num_rungs: int  # of the trial, unless it stops early
    num_examples: int
    activity: Activity
    seconds: float = 0.0  # since the rung began
    previous_seconds: float | None = None  # duration of the trial's previous rung, if known
    progress: RungProgress | None = None  # only for long rungs
    progress_age: float = 0.0  # seconds since the progress was reported

    @property
    def seconds_left(self) -> float | None:
        """Return the estimated seconds until the rung ends, or None if unknown.

        For a trial's first rung, the estimate excludes the evaluation.
        """
        estimates = []
        if self.previous_seconds is not None:
            estimates.append(self.previous_seconds - self.seconds)
        if self.progress is not None and self.activity == Activity.TRAINING:
            estimates.append(self.progress.seconds_left - self.progress_age)
        return max(0.0, *estimates) if estimates else None

    def after(self, seconds: float) -> "RunningRung":
        """Extrapolate the rung's state by ``seconds``."""
        return replace(
            self, seconds=self.seconds + seconds, progress_age=self.progress_age + seconds
        )


@dataclass(frozen=True)
class Workload:
    """Statistics of finished rungs, used to estimate the time left."""

    # mean worker time of a rung; None until the first rung is recorded
    rung_seconds: float | None = None
    max_rungs: int = 1  # number of rungs of a trial that completes
    # number of trials that have left their workers, keyed by finished rungs
    num_trials: Mapping[int, int] = field(default_factory=dict)
    interrupted: Sequence[
        tuple[int, int]
    ] = ()  # finished and total rungs of each interrupted trial

    def expected_rungs(self, num_done: int, num_rungs: int) -> float:
        """Estimate the final number of rungs of a trial that has finished ``num_done`` of ``num_rungs``.

        Early stopping pauses trials, so the estimate is the mean over trials that left their workers after more than
        ``num_done`` rungs.
        """
        longer = {rungs: count for rungs, count in self.num_trials.items() if rungs > num_done}
        if not longer:
            return num_rungs
        total = sum(rungs * count for rungs, count in longer.items())
        return min(num_rungs, total / sum(longer.values()))

    def seconds_left(self, running: Sequence[RunningRung], num_to_begin: int) -> float:
        """Estimate the seconds until all running, interrupted and new trials are done; infinite if unknown."""
        if self.rung_seconds is None:
            return math.inf
        by_trial = []
        for rung in running:
            current = rung.seconds_left
            if current is None:
                current = max(0.0, self.rung_seconds - rung.seconds)
            num_later = max(0.0, self.expected_rungs(rung.step - 1, rung.num_rungs) - rung.step)
            by_trial.append(current + num_later * (rung.previous_seconds or self.rung_seconds))
        num_new = num_to_begin * self.expected_rungs(0, self.max_rungs)
        # expected rungs of new and interrupted trials
        num_queued = num_new + sum(
            self.expected_rungs(*trial) - trial[0] for trial in self.interrupted
        )
        total = sum(by_trial) + self.rung_seconds * num_queued
        num_on_workers = sum(rung.activity != Activity.WAITING for rung in running)
        return max(total / (num_on_workers or len(running) or 1), *by_trial, 0.0)


@dataclass(frozen=True)
class SweepStatus:
    """A snapshot of a running sweep. ``counts`` is the number of trials per status, with running trials first."""

    num_begun: int  # number of trials started, not counting replicates
    num_trials: int  # number of trials in the budget
    num_replicates: int
    max_replicates: int
    counts: Mapping[TrialStatus, int]
    best: Pair | None  # P and S of the best point so far
    front_size: int
    seconds: float
    # estimated seconds until the budget is spent; infinite without limits
    limit_seconds_left: float
    workload: Workload
    cost: Cost  # of all trials, excluding unfinished rungs
    running: Sequence[RunningRung] = ()
    is_paused: bool = False  # by a user request
    max_workers: int | None = None  # maximum number of concurrent trials, if requested
    goals: Goals = GOALS  # the scores that serve as P and S

    @property
    def text(self) -> str:
        """Return the status as a single line."""
        parts = [f"search: {self.counts_text}"]
        if self.front_text:
            parts.append(self.front_text)
        training = [
            rung.progress
            for rung in self.running
            if rung.activity == Activity.TRAINING and rung.progress
        ]
        # Short rungs do not report progress.
        if training:
            parts.append(describe_progress(training))
        evaluating = [rung for rung in self.running if rung.activity == Activity.EVALUATING]
        if len(evaluating) == 1:
            parts.append(f"trial {evaluating[0].trial} evaluating rung {evaluating[0].step}")
        elif evaluating:
            parts.append(f"{len(evaluating)} trials evaluating")
        parts.append(self.time_text)
        return " | ".join(parts)

    @property
    def counts_text(self) -> str:
        """Return the trial counts, such as ``3 of 10 trials started, 2 running, 1 paused``."""
        counts = ["paused"] if self.is_paused else []
        counts.append(f"{self.num_begun} of {self.num_trials} trials started")
        if self.num_replicates:
            counts.append(f"{self.num_replicates} of at most {self.max_replicates} replicates")
        num_waiting = sum(rung.activity == Activity.WAITING for rung in self.running)
        for status, count in self.counts.items():
            if status == TrialStatus.RUNNING:
                counts.append(f"{count - num_waiting} {status}")
                if num_waiting:
                    counts.append(f"{num_waiting} waiting for a worker")
            elif count:
                counts.append(f"{count} {status}")
        if self.max_workers is not None:
            counts.append(f"at most {self.max_workers} at a time")
        return ", ".join(counts)

    @property
    def front_text(self) -> str:
        """Return the front's size and best point, or an empty string before the first rung."""
        if self.best is None:
            return ""
        scores = zip(self.goals.headings, self.best, strict=True)
        shown = " ".join(f"{heading} {100 * score:.2f}" for heading, score in scores)
        return f"front of {self.front_size}, best objective at {shown}"

    @property
    def cost_text(self) -> str:
        return describe_cost(self.cost)

    @property
    def time_text(self) -> str:
        """Return the estimated time left, or the elapsed time if no estimate is available.

        After all trials have started, paused trials may resume. The estimate does not include them and is then a
        minimum.
        """
        left = self.seconds_left
        if not 1 <= left < math.inf:
            return f"{duration(self.seconds)} so far"
        by_rungs = self._seconds_left_by_rungs
        if by_rungs == math.inf:
            bound = "at most"
        elif (
            by_rungs < self.limit_seconds_left
            and not self._num_to_begin
            and self.counts.get(TrialStatus.PAUSED)
        ):
            bound = "at least"
        else:
            bound = "about"
        return f"{bound} {duration(left)} left"

    @property
    def seconds_left(self) -> float:
        """Return the estimated seconds until the search ends; infinite if unknown or paused."""
        if self.is_paused:
            return math.inf
        return max(0.0, min(self._seconds_left_by_rungs, self.limit_seconds_left))

    @property
    def fraction(self) -> float:
        """Return the elapsed time as a fraction of the estimated total, or 0 if unknown."""
        left = self.seconds_left
        return 0.0 if left == math.inf or not self.seconds else self.seconds / (self.seconds + left)

    def after(self, seconds: float) -> "SweepStatus":
        """Extrapolate the status by ``seconds``; the status of a paused sweep does not change."""
        if self.is_paused:
            return self
        return replace(
            self,
            seconds=self.seconds + seconds,
            limit_seconds_left=self.limit_seconds_left - seconds,
            running=[rung.after(seconds) for rung in self.running],
        )

    @property
    def _seconds_left_by_rungs(self) -> float:
        return self.workload.seconds_left(self.running, self._num_to_begin)

    @property
    def _num_to_begin(self) -> int:
        """Return the number of trials, including replicates, that have not started yet."""
        return max(0, self.num_trials + self.max_replicates - self.num_begun - self.num_replicates)


def describe_progress(progress: Sequence[RungProgress]) -> str:
    """Describe the progress of one rung, or the combined speed of several rungs."""
    examples_per_second = sum(rung.examples_per_second for rung in progress)
    digits = 0 if examples_per_second >= 10 else 1
    pace = f"{examples_per_second:,.{digits}f} examples/s"
    seconds_left = min(rung.seconds_left for rung in progress)
    time_left = duration(seconds_left)
    if len(progress) > 1:
        return f"{len(progress)} rungs under way, {pace}, the first finishes in {time_left}"
    (rung,) = progress
    counted = f"{rung.num_seen:,} of {rung.num_examples:,}"
    return f"rung {rung.step}: {counted}, {pace}, {time_left} left"
