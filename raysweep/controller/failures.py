"""Handling of lost workers, storage failures and failed trials."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from raysweep.config.sweep import ResourcesConfig
from raysweep.controller.node_health import WorkerNode

FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
PATIENCE_SECONDS = 600.0  # the sweep ends if storage fails for this long without a completed rung
MIN_FAILED = 3  # max_failed_share is ignored below this number of failed trials
MAX_STARTS_ON_DEAD_NODES = 20  # consecutive; a trial with more is assumed to crash its nodes


class Blame(Enum):
    """The cause of a lost worker."""

    PROCESS = "process"  # the trial's process died, froze or ran out of memory
    NODE = "node"  # the node disappeared, or the process died before the trial started
    STORAGE = "storage"  # storage is full or unreachable


@dataclass(frozen=True)
class Loss:
    """The loss of a trial's worker.

    ``needs_memory`` is True if the node ran low on memory. ``node`` is set only if the worker itself reported the loss.
    """

    blame: Blame
    reason: str
    needs_memory: bool = False
    node: WorkerNode | None = None


@dataclass(frozen=True)
class RaisedError:
    """An error that a job raised on a worker."""

    exception: str
    traceback: str | None
    node: WorkerNode


@dataclass(frozen=True)
class StoragePause:
    """A pause after a storage failure, during which no trials are assigned.

    ``began`` is the time of the first failure, and ``until`` is the end of the pause, both in seconds on the sweep's
    clock.
    """

    began: float = 0.0
    until: float = 0.0
    seconds: float = 0.0

    @property
    def is_hopeless(self) -> bool:
        return self.until - self.began > PATIENCE_SECONDS


@dataclass
class Failures:
    """Counts each trial's lost workers since its last rung.

    A trial may lose its process ``resources.max_failures`` times and its node ``MAX_STARTS_ON_DEAD_NODES`` times. The
    number of storage failures is not limited.
    """

    resources: ResourcesConfig
    pause: StoragePause = StoragePause()
    _losses: dict[Hashable, dict[Blame, int]] = field(default_factory=dict)

    def count(self, trial: Hashable, loss: Loss) -> str | None:
        """Count a loss, and return the reason to end the trial, or None if it may be retried."""
        counts = self._losses.setdefault(trial, dict.fromkeys(Blame, 0))
        counts[loss.blame] += 1
        if counts[Blame.PROCESS] > self.resources.max_failures:
            return f"{loss.reason} (lost {counts[Blame.PROCESS]} times since its last rung)"
        if counts[Blame.NODE] > MAX_STARTS_ON_DEAD_NODES:
            return f"{loss.reason} (its nodes were lost {counts[Blame.NODE]} times since its last rung)"
        return None

    def forget(self, trial: Hashable) -> None:
        """Reset the trial's losses and the storage pause after a completed rung."""
        self._losses.pop(trial, None)
        self.pause = StoragePause()

    def begin_pause(self, now: float) -> StoragePause:
        """Start a pause that is twice as long as the previous one, up to ``MAX_PAUSE_SECONDS``."""
        if now - self.pause.until > MAX_PAUSE_SECONDS:  # storage has worked in the meantime
            self.pause = StoragePause()
        seconds = min(2 * self.pause.seconds or FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        began = self.pause.began if self.pause.seconds else now
        self.pause = StoragePause(began, now + seconds, seconds)
        return self.pause

    def reason_to_give_up(self, num_failed: int, num_begun: int) -> str | None:
        """Return the reason to end the sweep if too many trials have failed, or None to continue."""
        share = self.resources.max_failed_share
        if num_failed < MIN_FAILED or num_failed <= share * num_begun:
            return None
        return f"{num_failed} of {num_begun} trials failed; maximum share (resources.max_failed_share): {share:g}"
