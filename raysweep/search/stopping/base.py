"""The contract of every policy of early stopping."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raysweep.metrics.objective import Pair


@dataclass(frozen=True)
class Standing:
    """What a trial has shown so far."""

    front: tuple[Pair, ...]  # its non-dominated points; the feasible ones alone where there are any
    objective: float  # the best of its points
    area: float  # the hypervolume of its front; below 0 where no point is feasible
    points: tuple[Pair, ...] = ()  # all points of the last rung, in an order that is the same at each rung


class EarlyStopper(Protocol):
    """Judges trials as they reach a budget. Trials are known by number; every call is on the driver, in ledger order."""

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        """Take a rung. The reason to hold the trial for now, or None when it goes on.

        ``ahead`` are the examples that it will have seen at its further rungs, ``may_begin`` says whether a new trial
        could begin in its place. A trial at its last rung, with nothing ahead, counts only as a measure for others.
        """

    def next_to_resume(self, may_begin: bool) -> int | None:
        """A trial that was held and should go on by now, or None. Changes nothing: it goes on with :meth:`set_running`."""

    def set_running(self, trial: int, running: bool) -> None:
        """Whether a trial goes on or is held: the ledger of a resumed sweep may say otherwise than the policy would."""

    def end(self, trial: int) -> None:
        """The trial will not go on, whatever it is worth; what it has shown stays a measure for others."""


class KeepAll:
    """No early stopping."""

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        return None

    def next_to_resume(self, may_begin: bool) -> int | None:
        return None

    def set_running(self, trial: int, running: bool) -> None:
        pass

    def end(self, trial: int) -> None:
        pass
