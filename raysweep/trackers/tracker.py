"""What a tracker is, and what it is given: trials with their steps, and the front in the end."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from raysweep.trial_status import TrialStatus

OVER = (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)


@dataclass(frozen=True)
class Step:
    """A rung: its number, from 1, and its metrics by name. Scores lie in [0, 1]."""

    number: int
    metrics: Mapping[str, float]


@dataclass
class TrackedTrial:
    """A trial as its events tell it so far."""

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
        return self.status in OVER

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration, and which trial it repeats."""
        repeats = {} if self.replicate_of is None else {"replicate_of": self.replicate_of}
        return {**self.config, **repeats}


@dataclass(frozen=True)
class FrontPage:
    """The front as a table of texts, the same as Markdown, its picture as PNG bytes, and figures of all of it by name."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    markdown: str
    png: bytes
    metrics: Mapping[str, float]


class Tracker(abc.ABC):
    """A client, opened for one run of raysweep. What an earlier session, or process, has given it is not given twice.

    Its methods are called from one thread, in the order of the events, for all events of the run. They may raise whatever
    the client raises.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def step(self, trial: TrackedTrial, step: Step) -> None:
        """A trial has come to a rung, the last of its ``steps``."""

    @abc.abstractmethod
    def rest(self, trial: TrackedTrial) -> None:
        """A trial has left its worker: for now, or for good."""

    @abc.abstractmethod
    def front(self, front: FrontPage) -> None:
        """The sweep's session is over."""

    def close_trial(self, trial: TrackedTrial) -> None:  # noqa: B027 (most have nothing to do)
        """Have all of one trial stored; called for each of the run's before :meth:`close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Have all that was given stored."""
