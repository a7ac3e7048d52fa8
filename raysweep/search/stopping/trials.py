"""The trials that a policy of early stopping knows: which of them are held, and which run on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from raysweep.metrics.arrays import Float64Array


class Curve(Protocol):
    """The part of a learning curve that tells where a trial stands."""

    budgets: list[int]  # examples seen at its rungs so far
    points: list[Float64Array]  # at each of them
    budgets_ahead: tuple[int, ...]  # examples that it will have seen at its further rungs


CurveT = TypeVar("CurveT", bound=Curve)


@dataclass
class Trial(Generic[CurveT]):
    """A trial and its learning curve; a trial that is new to the policy runs."""

    curve: CurveT
    running: bool = True
    ended: bool = False

    @property
    def budget(self) -> int:
        """Examples seen."""
        return self.curve.budgets[-1]

    @property
    def is_held(self) -> bool:
        return bool(self.curve.budgets_ahead) and not (self.running or self.ended)

    @property
    def runs_on(self) -> bool:
        """Whether it runs, has had a rung, and will have another."""
        return self.running and bool(self.curve.points) and bool(self.curve.budgets_ahead)


TrialT = TypeVar("TrialT", bound="Trial[Any]")


class Trials(Generic[TrialT]):
    """All trials by number, and those that are held or run on, so that nobody looks through all of thousands."""

    def __init__(self, new_trial: Callable[[], TrialT]) -> None:
        self.held: dict[int, TrialT] = {}
        self.running_on: dict[int, TrialT] = {}  # to a further rung
        self.begun: list[int] = []  # those that have had a rung, in the order of their first
        self._all: dict[int, TrialT] = {}
        self._new_trial = new_trial

    def __getitem__(self, number: int) -> TrialT:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def known(self, number: int) -> TrialT:
        """The trial of this number, new if it was unknown."""
        if number not in self._all:
            self._all[number] = self._new_trial()
        return self._all[number]

    @property
    def any_runs(self) -> bool:
        return any(trial.running for trial in self._all.values())

    def hold(self, number: int) -> None:
        """The trial had a rung, and goes on when somebody says so."""
        trial = self._all[number]
        if len(trial.curve.points) == 1:
            self.begun.append(number)
        trial.running = False
        self._sort_in(number)

    def set_running(self, number: int, running: bool) -> None:
        self.known(number).running = running
        self._sort_in(number)

    def end(self, number: int) -> None:
        trial = self.known(number)
        trial.ended, trial.running = True, False
        self._sort_in(number)

    def _sort_in(self, number: int) -> None:
        """Put a trial where it belongs by now: among those that are held, those that run on, or neither."""
        trial = self._all[number]
        for trials, belongs in ((self.held, trial.is_held), (self.running_on, trial.runs_on)):
            if belongs:
                trials[number] = trial
            else:
                trials.pop(number, None)
