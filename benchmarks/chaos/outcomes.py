"""Outcomes of cases: the number of faults, whether all trials are accounted for, and the seconds until they continued."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.sweeps import Plan, find_problems


@dataclass(frozen=True)
class Setting:
    """The settings of all cases. ``times`` is the number of faults of a case.

    ``bucket`` is the location of the runs if they are in a bucket.
    """

    folder: Path
    artifacts: str
    times: int
    bucket: str = ""

    def plan(self, case: str, trials: int, rungs: int = 4, options: Sequence[str] = ()) -> Plan:
        bucket = self.bucket and f"{self.bucket}/{case}"
        return Plan(self.folder / case, self.artifacts, trials, rungs, tuple(options), bucket)


@dataclass(frozen=True)
class Recovery:
    """A fault and its recovery, in wall-clock seconds. ``reported_at`` is when Ray reported the death."""

    struck_at: float
    reported_at: float
    again_at: float

    @property
    def seconds(self) -> float:
        """The seconds from the report to the next rung."""
        return self.again_at - self.reported_at


@dataclass
class Outcome:
    """The outcome of a case. ``start_seconds`` is the time from a trial's start to its first rung without faults."""

    num_faults: int
    problems: list[str]
    recoveries: list[Recovery] = field(default_factory=list)
    start_seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def num_accounted(self) -> int:
        """The number of faults after which every trial was accounted for once: all of a sweep's, or none."""
        return 0 if self.problems else self.num_faults

    @property
    def figures(self) -> dict[str, Any]:
        counts = {
            "faults": self.num_faults,
            "accounted": self.num_accounted,
            "problems": self.problems,
        }
        return counts | (self._times if self.recoveries else {}) | self.notes

    @property
    def _times(self) -> dict[str, Any]:
        again = [recovery.seconds for recovery in self.recoveries]
        noticed = [recovery.reported_at - recovery.struck_at for recovery in self.recoveries]
        return {
            "seconds_to_report": [round(seconds, 2) for seconds in noticed],
            "seconds_to_next_rung": [round(seconds, 2) for seconds in again],
            "start_seconds": round(self.start_seconds, 2),
            "most_beyond_a_start": round(max(again) - self.start_seconds, 2),
        }

    @property
    def row(self) -> list[str]:
        cells = [f"{self.num_accounted}/{self.num_faults}"]
        if self.recoveries:
            again = [recovery.seconds for recovery in self.recoveries]
            noticed = [recovery.reported_at - recovery.struck_at for recovery in self.recoveries]
            cells += [
                f"{statistics.median(noticed):.1f}",
                f"{statistics.median(again):.1f}",
                f"{max(again):.1f}",
            ]
            cells += [f"{self.start_seconds:.1f}"]
        else:
            cells += ["", "", "", ""]
        noted = ", ".join(f"{name} {value}" for name, value in self.notes.items())
        return [*cells, "; ".join(filter(None, [noted, *self.problems]))]


def outcome(plan: Plan, recoveries: list[Recovery], start_seconds: float, **notes: Any) -> Outcome:
    """Return the outcome of an ended sweep."""
    return Outcome(len(recoveries), find_problems(plan), recoveries, start_seconds, notes)
