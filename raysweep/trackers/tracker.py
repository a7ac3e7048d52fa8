"""The tracker interface and its inputs: trials with their steps, and the front."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.results.types import TrialStatus

FRONT = "front"  # name of the tracked run that holds the front

ENDED = (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)


@dataclass(frozen=True)
class Step:
    """A finished rung: its number, starting at 1, and its metrics by name. Scores are in [0, 1]."""

    number: int
    metrics: Mapping[str, float]


@dataclass
class TrackedTrial:
    """The state of a trial according to the events so far."""

    number: int
    config: Mapping[str, Any]
    replicate_of: int | None = None
    steps: list[Step] = field(default_factory=list)
    status: TrialStatus = TrialStatus.RUNNING
    reason: str = ""

    @property
    def name(self) -> str:
        return f"trial-{self.number:04d}"

    @property
    def is_over(self) -> bool:
        return self.status in ENDED

    @property
    def settings(self) -> dict[str, Any]:
        """Return the configuration and the trial that it replicates, if any."""
        if self.replicate_of is None:
            return dict(self.config)
        return {**self.config, "replicate_of": self.replicate_of}


@dataclass(frozen=True)
class FrontPage:
    """The front as a table, as Markdown and as a PNG image, and its metrics by name."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    markdown: str
    png: bytes
    metrics: Mapping[str, float]


class Tracker(abc.ABC):
    """A client for a tracking service, opened for one raysweep run.

    The methods are called from a single thread, in order, for all events in the run. They skip data that an earlier
    session or process has stored, and may raise any error from the client.
    """

    @abc.abstractmethod
    def log_step(self, trial: TrackedTrial, step: Step) -> None:
        """Store a trial's latest rung, which is the last of its ``steps``."""

    @abc.abstractmethod
    def log_status(self, trial: TrackedTrial) -> None:
        """Store the status of a trial that has been paused or has ended."""

    @abc.abstractmethod
    def log_front(self, front: FrontPage) -> None:
        """Store the front at the end of a session."""

    def log_end(self, status: str, reason: str) -> None:  # noqa: B027 (most trackers have no sweep status)
        """Store the sweep's final status after :meth:`log_front`. Not called if the sweep is still running or was killed."""

    def close_trial(self, trial: TrackedTrial) -> None:  # noqa: B027 (most trackers store data immediately)
        """Store all remaining data for a trial; called for each trial before :meth:`close`."""

    def close(self) -> None:  # noqa: B027 (most trackers store data immediately)
        """Store all remaining data."""
