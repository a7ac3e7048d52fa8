"""The interface of a tracker and its inputs: trials with their steps, and the front at the end."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.results.types import TrialStatus

FRONT = "front"  # the tracked run that holds the front

ENDED = (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)


@dataclass(frozen=True)
class Step:
    """A rung: its number, from 1, and its metrics by name, with scores in [0, 1]."""

    number: int
    metrics: Mapping[str, float]


@dataclass
class TrackedTrial:
    """A trial as described by its events so far."""

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
    """The front as a table of texts, as Markdown and as PNG bytes, and its overall metrics by name."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    markdown: str
    png: bytes
    metrics: Mapping[str, float]


class Tracker(abc.ABC):
    """A client of a tracking service, opened for one run of raysweep.

    It skips data that an earlier session or process has already stored. The methods are called from one thread, in the
    order of the events, for all events of the run. They may raise any error of the client.
    """

    @abc.abstractmethod
    def log_step(self, trial: TrackedTrial, step: Step) -> None:
        """Store the latest rung of a trial, the last of its ``steps``."""

    @abc.abstractmethod
    def log_status(self, trial: TrackedTrial) -> None:
        """Store the status of a trial that is paused or has ended."""

    @abc.abstractmethod
    def log_front(self, front: FrontPage) -> None:
        """Store the front at the end of the sweep's session."""

    def close_trial(self, trial: TrackedTrial) -> None:  # noqa: B027 (most trackers store each call at once)
        """Store all remaining data of one trial; called for each of the run's trials before :meth:`close`."""

    def close(self) -> None:  # noqa: B027 (most trackers store each call at once)
        """Store all remaining data."""
