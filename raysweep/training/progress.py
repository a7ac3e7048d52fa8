"""How far a trial's training has come."""

from dataclasses import dataclass


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
