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
    """An early stopping policy, which decides at each rung whether a trial continues.

    All calls come from the driver, in the order of the ledger.
    """

    def on_rung(
        self,
        trial: int,
        examples_seen: int,
        standing: Standing,
        ahead: Sequence[int],
        can_start: bool,
    ) -> str | None:
        """Record a rung, and return the reason to pause the trial, or None to continue.

        Args:
            ahead: Examples seen at each remaining rung; empty at the last rung.
            can_start: Whether a new trial could start instead.
        """

    def next_to_resume(self, can_start: bool) -> int | None:
        """Return the paused trial to resume next, or None. The caller then calls :meth:`set_running`."""

    def set_running(self, trial: int, running: bool) -> None:
        """Mark a trial as running or paused. In a resumed sweep, the ledger may overrule the policy."""

    def end(self, trial: int) -> None:
        """Mark a trial as ended. Other trials are still compared with its results."""
