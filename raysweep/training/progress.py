"""A trial's training progress."""

import time
from dataclasses import dataclass, field

from raysweep.results.types import RungProgress


@dataclass
class Progress:
    """A trial's counters. The field names are part of the checkpoint format."""

    rung: int = 0  # finished rungs
    seen: int = 0  # examples in all rungs
    seen_in_rung: int = 0  # examples in the current rung
    steps_in_rung: int = 0  # optimizer steps in the current rung
    batches_in_rung: int = 0
    train_seconds: float = 0.0  # time spent in optimizer steps

    def add_batch(self, num_examples: int) -> None:
        """Count a processed batch."""
        self.seen += num_examples
        self.seen_in_rung += num_examples
        self.batches_in_rung += 1

    def begin_rung(self) -> None:
        """Reset the counters of the current rung."""
        self.seen_in_rung = 0
        self.steps_in_rung = 0
        self.batches_in_rung = 0


@dataclass(frozen=True)
class Pace:
    """Training speed within a rung.

    ``first_seen`` is the number of the rung's examples that were seen before this process started or resumed the rung.
    """

    first_seen: int
    began: float = field(default_factory=time.monotonic)

    def progress(self, progress: Progress, num_examples: int, now: float) -> RungProgress:
        """Return the progress in a rung of ``num_examples`` examples at the monotonic time ``now``, in seconds."""
        num_seen = progress.seen_in_rung
        examples_per_second = (num_seen - self.first_seen) / (now - self.began)
        return RungProgress(progress.rung + 1, num_seen, num_examples, examples_per_second)
