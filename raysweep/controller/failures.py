"""Failure handling: retries of trials that lost their worker, pauses if storage fails, and the share of failed trials."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from raysweep.config.sweep import ResourcesConfig

FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
PATIENCE_SECONDS = 600.0  # maximum time for which storage may fail without a rung from any trial
MIN_FAILED = 3  # minimum number of failed trials before their share is meaningful
MAX_STARTS_ON_DEAD_NODES = 20  # in a row; after more, the trial is assumed to kill its nodes


class Blame(Enum):
    """The cause of a lost worker."""

    PROCESS = "process"  # the trial's process died, froze or ran out of memory
    NODE = "node"  # the node disappeared, or the process had died before the trial started
    STORAGE = "storage"  # storage is full or unreachable


@dataclass(frozen=True)
class Loss:
    """A trial's loss of its worker within a rung.

    ``reason`` is one line. ``needs_memory`` is True if the node ran out of memory.
    """

    blame: Blame
    reason: str
    needs_memory: bool = False


@dataclass(frozen=True)
class StoragePause:
    """A pause of ``seconds`` without new assignments because storage has failed since ``began``.

    ``began`` and ``until``, the end of the pause, are seconds on the sweep's clock.
    """

    began: float = 0.0
    until: float = 0.0
    seconds: float = 0.0

    @property
    def is_hopeless(self) -> bool:
        return self.until - self.began > PATIENCE_SECONDS


@dataclass
class Failures:
    """Counts of each trial's losses since its last rung.

    A trial survives ``resources.max_failures`` losses of its process and ``MAX_STARTS_ON_DEAD_NODES`` losses of its node.
    Storage failures never count against the trial.
    """

    resources: ResourcesConfig
    pause: StoragePause = StoragePause()
    _losses: dict[Hashable, dict[Blame, int]] = field(default_factory=dict)

    def count(self, trial: Hashable, loss: Loss) -> str | None:
        """Count a loss and return the reason to end the trial, or None if it may be retried."""
        counts = self._losses.setdefault(trial, dict.fromkeys(Blame, 0))
        counts[loss.blame] += 1
        if counts[Blame.PROCESS] > self.resources.max_failures:
            return f"{loss.reason} (lost {counts[Blame.PROCESS]} times since its last rung)"
        if counts[Blame.NODE] > MAX_STARTS_ON_DEAD_NODES:
            return f"{loss.reason} (its nodes were lost {counts[Blame.NODE]} times since its last rung)"
        return None

    def forget(self, trial: Hashable) -> None:
        """Reset a trial's losses and the storage pause after a rung."""
        self._losses.pop(trial, None)
        self.pause = StoragePause()

    def begin_pause(self, now: float) -> StoragePause:
        """Start a pause after a storage failure, twice as long as the last one, at most ``MAX_PAUSE_SECONDS``."""
        if now - self.pause.until > MAX_PAUSE_SECONDS:  # storage has worked since
            self.pause = StoragePause()
        seconds = min(2 * self.pause.seconds or FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        began = self.pause.began if self.pause.seconds else now
        self.pause = StoragePause(began, now + seconds, seconds)
        return self.pause

    def reason_to_give_up(self, num_failed: int, num_begun: int) -> str | None:
        """Return the reason to end a sweep with this many failed and started trials, or None."""
        share = self.resources.max_failed_share
        if num_failed < MIN_FAILED or num_failed <= share * num_begun:
            return None
        return f"{num_failed} of {num_begun} trials failed; maximum share by resources.max_failed_share: {share:g}"
