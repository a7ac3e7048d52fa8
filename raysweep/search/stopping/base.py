"""What every policy of early stopping is asked and told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raysweep.metrics.objective import Pair


@dataclass(frozen=True)
class Standing:
    """What a trial has shown so far: its non-dominated points, its best objective, and the area under its front.

    ``front`` has the feasible points alone where there are any.
    ``points`` are those of the last rung alone, in an order that is the same at each rung.
    """

    front: tuple[Pair, ...]
    objective: float
    area: float
    points: tuple[Pair, ...] = ()


class EarlyStopper(Protocol):
    """Judges trials as they reach a budget. Trials are known by number; every call is on the driver, in ledger order."""

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        """The reason why the trial is not to go on for now, or None.

        ``ahead`` are the examples that it will have seen at its further rungs, ``may_begin`` says whether a new trial
        could begin in its place. At its last rung, with nothing ahead, it is judged only as a measure for others.
        """

    def next_to_resume(self, may_begin: bool) -> int | None:
        """A trial that was held and may go on by now, or None. Changes nothing: it goes on when it is settled."""

    def set_running(self, trial: int, running: bool) -> None:
        """What became of a trial that was judged or held; a ledger may hold something else than would be decided now."""

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
