"""The status line of a sweep that is running."""

from collections.abc import Mapping
from dataclasses import dataclass

from raysweep.metrics.objective import Pair
from raysweep.terminal import duration


@dataclass(frozen=True)
class SweepStatus:
    """A running sweep at one moment. ``counts`` are trials by how they stand, ``running`` first."""

    num_begun: int  # trials of the search, replicates aside
    num_trials: int  # that the search may begin
    num_replicates: int
    max_replicates: int
    counts: Mapping[str, int]
    best: Pair | None  # P and S of the best point, once there is one
    front_size: int
    seconds: float
    limit_seconds: float | None  # of the budget's wall-clock time

    @property
    def fraction_begun(self) -> float:
        """The share of all trials, replicates included, that have begun."""
        return self._all_begun / self._all_trials

    @property
    def text(self) -> str:
        """What runs, is held and has ended; the best point; the front; the time left."""
        begun = f"{self.num_begun} of {self.num_trials} trials begun"
        if self.num_replicates:
            begun += f", {self.num_replicates} of at most {self.max_replicates} replicates"
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count or name == "running")
        parts = [f"search: {begun}, {counts}"]
        if self.best is not None:
            polarity, similarity = self.best
            parts.append(f"best P {100 * polarity:.2f} S {100 * similarity:.2f}")
            parts.append(f"front {self.front_size}")
        return " | ".join([*parts, self._time_left])

    @property
    def _all_begun(self) -> int:
        return self.num_begun + self.num_replicates

    @property
    def _all_trials(self) -> int:
        return max(self._all_begun, self.num_trials + self.max_replicates)

    @property
    def _time_left(self) -> str:
        estimates = []
        if self._all_begun > self.counts["running"]:
            seconds_per_trial = self.seconds / self._all_begun
            estimates.append(seconds_per_trial * (self._all_trials - self._all_begun))
        if self.limit_seconds is not None:
            estimates.append(self.limit_seconds - self.seconds)
        left = min(estimates, default=0.0)  # none where only held trials may go on, which nobody can foretell
        return f"about {duration(left)} left" if left >= 1 else f"{duration(self.seconds)} so far"
