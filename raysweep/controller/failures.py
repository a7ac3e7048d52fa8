"""Failure handling: retries of trials that lost their worker, pauses after storage failures, and the decision to give up."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from raysweep.config.sweep import ResourcesConfig
from raysweep.controller.node_health import WorkerNode

FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
PATIENCE_SECONDS = 600.0  # how long storage may fail, with no rung reported, before the sweep ends
MIN_FAILED = 3  # with fewer failed trials, their share means little
MAX_STARTS_ON_DEAD_NODES = 20  # in a row; a trial with more is assumed to kill its nodes


class Blame(Enum):
    """Why a worker was lost."""

    PROCESS = "process"  # the trial's process died, froze or ran out of memory
    NODE = "node"  # the node disappeared, or the process died before the trial started
    STORAGE = "storage"  # storage is full or unreachable


@dataclass(frozen=True)
class Loss:
    """The loss of a trial's worker during a rung.

    ``reason`` is a single line. ``needs_memory`` is True if the node ran out of memory. ``node`` is known only if the
    worker itself reported the loss.
    """

    blame: Blame
    reason: str
    needs_memory: bool = False
    node: WorkerNode | None = None


@dataclass(frozen=True)
class RaisedError:
    """An error that a job raised on a worker: the exception in one line, its traceback and the worker's node."""

    exception: str
    traceback: str | None
    node: WorkerNode


@dataclass(frozen=True)
class StoragePause:
    """A pause of ``seconds`` in which no trials are assigned, because storage has been failing since ``began``.

    Both ``began`` and ``until``, the end of the pause, are in seconds on the sweep's clock.
    """

    began: float = 0.0
    until: float = 0.0
    seconds: float = 0.0

    @property
    def is_hopeless(self) -> bool:
        return self.until - self.began > PATIENCE_SECONDS


@dataclass
class Failures:
    """Counts of how often each trial has lost its worker since its last rung.

    A trial survives ``resources.max_failures`` losses of its process and ``MAX_STARTS_ON_DEAD_NODES`` losses of its
    node. Storage failures never count against a trial.
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
        """Start a pause after a storage failure: twice as long as the previous one, up to ``MAX_PAUSE_SECONDS``."""
        if now - self.pause.until > MAX_PAUSE_SECONDS:  # storage has worked in the meantime
            self.pause = StoragePause()
        seconds = min(2 * self.pause.seconds or FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        began = self.pause.began if self.pause.seconds else now
        self.pause = StoragePause(began, now + seconds, seconds)
        return self.pause

    def reason_to_give_up(self, num_failed: int, num_begun: int) -> str | None:
        """Return the reason to end a sweep with this many failed and started trials, or None to continue."""
        share = self.resources.max_failed_share
        if num_failed < MIN_FAILED or num_failed <= share * num_begun:
            return None
        return f"{num_failed} of {num_begun} trials failed; maximum share (resources.max_failed_share): {share:g}"
