"""What becomes of a trial that lost its worker, and when so many trials fail that a sweep is better ended."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from raysweep.config.sweep import ResourcesConfig

FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 30.0
PATIENCE_SECONDS = 600.0  # with storage that fails, without a rung from any trial
FEWEST_FAILED = 3  # before their share of all trials says anything
MAX_STARTS_ON_DEAD_NODES = 20  # in a row, after which it is the trial that ends its nodes


class Blame(Enum):
    """Who is to blame when a trial loses its worker."""

    PROCESS = "process"  # its own, which died or froze, or was killed for want of memory
    NODE = "node"  # it went away, or the trial's process had died before the trial began
    STORAGE = "storage"  # it is full, or cannot be reached


@dataclass(frozen=True)
class Loss:
    """A trial lost its worker within a rung. ``reason`` is one line; ``needs_memory`` says that its node had too little."""

    blame: Blame
    reason: str
    needs_memory: bool = False


@dataclass(frozen=True)
class StoragePause:
    """Storage has failed since ``began``: for so many seconds, ``until`` then by the sweep's clock, no trial starts."""

    began: float = 0.0
    until: float = 0.0
    seconds: float = 0.0

    @property
    def is_hopeless(self) -> bool:
        return self.until - self.began > PATIENCE_SECONDS


@dataclass
class Failures:
    """Counts losses of each trial since its last rung.

    A trial goes on after ``resources.max_failures`` losses of its process, and after many more of its node. Storage is never
    the trial's fault.
    """

    resources: ResourcesConfig
    pause: StoragePause = StoragePause()
    _losses: dict[Hashable, dict[Blame, int]] = field(default_factory=dict)

    def lose(self, trial: Hashable, loss: Loss) -> str | None:
        """Count a loss. The reason to end the trial; None where it goes on."""
        counts = self._losses.setdefault(trial, dict.fromkeys(Blame, 0))
        counts[loss.blame] += 1
        if counts[Blame.PROCESS] > self.resources.max_failures:
            return f"{loss.reason} (lost {counts[Blame.PROCESS]} times without a rung between)"
        if counts[Blame.NODE] > MAX_STARTS_ON_DEAD_NODES:
            return f"{loss.reason} (its nodes were lost {counts[Blame.NODE]} times without a rung between)"
        return None

    def forget(self, trial: Hashable) -> None:
        """The trial has made progress: its losses are counted from the start, and storage works."""
        self._losses.pop(trial, None)
        self.pause = StoragePause()

    def begin_pause(self, now: float) -> StoragePause:
        """Storage has failed again: a pause twice as long as the last one, up to half a minute."""
        if now - self.pause.until > LONGEST_PAUSE_SECONDS:  # it has worked since
            self.pause = StoragePause()
        seconds = min(2 * self.pause.seconds or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        began = self.pause.began if self.pause.seconds else now
        self.pause = StoragePause(began, now + seconds, seconds)
        return self.pause

    def too_many(self, num_failed: int, num_begun: int) -> str | None:
        """The reason to end a sweep in which so many trials failed of those that began; None where it goes on."""
        share = self.resources.max_failed_share
        if num_failed < FEWEST_FAILED or num_failed <= share * num_begun:
            return None
        return f"{num_failed} of {num_begun} trials failed, which is more than resources.max_failed_share allows, {share:g}"
