"""The interface of early stopping policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raysweep.metrics.scores import Pair


@dataclass(frozen=True)
class Standing:
    """The results of a trial so far."""

    front: tuple[Pair, ...]  # non-dominated points, only the feasible ones if there are any
    objective: float  # objective of its best point
    area: float  # hypervolume of its front; negative if no point is feasible
    points: tuple[Pair, ...] = ()  # all points of the last rung, in the same order at each rung


class EarlyStopper(Protocol):
    """An early stopping policy, which decides at each rung which trials continue.

    Trials are identified by number. All calls come from the driver, in the order of the ledger.
    """

    def on_rung(
        self,
        trial: int,
        examples_seen: int,
        standing: Standing,
        ahead: Sequence[int],
        can_start: bool,
    ) -> str | None:
        """Record a rung, and return the reason to pause the trial, or None if it continues.

        Args:
            trial: Trial number.
            examples_seen: Examples seen at this rung.
            standing: The trial's results so far.
            ahead: Examples seen at each remaining rung. If empty, the trial serves only as a reference for others.
            can_start: Whether a new trial could start instead.
        """

    def next_to_resume(self, can_start: bool) -> int | None:
        """Return the paused trial to resume next, or None; the trial stays paused until :meth:`set_running` is called."""

    def set_running(self, trial: int, running: bool) -> None:
        """Mark a trial as running or paused; the ledger of a resumed sweep may overrule the policy."""

    def end(self, trial: int) -> None:
        """Mark a trial as ended for good; its results still serve as a reference for others."""
