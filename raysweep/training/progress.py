"""How far a trial's training has come."""

import time
from dataclasses import dataclass, field

from raysweep.results.types import RungProgress


@dataclass
class Progress:
    """Counts of a trial. Checkpoints hold the fields under these names."""

    rung: int = 0  # finished rungs
    seen: int = 0  # examples of all rungs
    seen_in_rung: int = 0  # examples of the rung that is not finished yet
    steps_in_rung: int = 0  # its optimizer steps
    batches_in_rung: int = 0
    train_seconds: float = 0.0  # spent in optimizer steps

    def add_batch(self, num_examples: int) -> None:
        """Count a batch whose loss and gradients are computed."""
        self.seen += num_examples
        self.seen_in_rung += num_examples
        self.batches_in_rung += 1

    def begin_rung(self) -> None:
        """Count the next rung from the start."""
        self.seen_in_rung = 0
        self.steps_in_rung = 0
        self.batches_in_rung = 0


@dataclass(frozen=True)
class Pace:
    """A rung since this process took it up, when ``first_seen`` of its examples had been seen already."""

    first_seen: int
    began: float = field(default_factory=time.monotonic)

    def progress(self, progress: Progress, num_examples: int, now: float) -> RungProgress:
        """How far the rung of so many examples is at the moment ``now`` of the monotonic clock."""
        num_seen = progress.seen_in_rung
        examples_per_second = (num_seen - self.first_seen) / (now - self.began)
        return RungProgress(progress.rung + 1, num_seen, num_examples, examples_per_second)
