"""The trials known to an early stopping policy, with those that are paused and those that run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from raysweep.metrics.arrays import Float64Array


class Curve(Protocol):
    """The part of a learning curve that describes a trial's progress."""

    budgets: list[int]  # examples seen at its rungs so far
    points: list[Float64Array]  # at each rung so far
    budgets_ahead: tuple[int, ...]  # examples seen at its remaining rungs


CurveT = TypeVar("CurveT", bound=Curve)


@dataclass
class Trial(Generic[CurveT]):
    """A trial and its learning curve; a new trial is running."""

    curve: CurveT
    running: bool = True
    ended: bool = False

    @property
    def budget(self) -> int:
        """Examples seen."""
        return self.curve.budgets[-1]

    @property
    def is_paused(self) -> bool:
        return bool(self.curve.budgets_ahead) and not (self.running or self.ended)

    @property
    def runs_on(self) -> bool:
        """Whether it is running, has had a rung, and has another one ahead."""
        return self.running and bool(self.curve.points) and bool(self.curve.budgets_ahead)


TrialT = TypeVar("TrialT", bound="Trial[Any]")


class Trials(Generic[TrialT]):
    """All trials by number, with indices of the paused and running ones, so that thousands need not be scanned."""

    def __init__(self, new_trial: Callable[[], TrialT]) -> None:
        self.paused: dict[int, TrialT] = {}
        self.running_on: dict[int, TrialT] = {}  # to another rung
        self.begun: list[int] = []  # numbers of trials that have had a rung, in order of their first
        self._all: dict[int, TrialT] = {}
        self._new_trial = new_trial

    def __getitem__(self, number: int) -> TrialT:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def known(self, number: int) -> TrialT:
        """Return the trial with this number, adding it if it is unknown."""
        if number not in self._all:
            self._all[number] = self._new_trial()
        return self._all[number]

    @property
    def any_runs(self) -> bool:
        return any(trial.running for trial in self._all.values())

    def pause(self, number: int) -> None:
        """Pause a trial that had a rung, until it is set running again."""
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
        """Update whether the trial is indexed as paused, as running, or as neither."""
        trial = self._all[number]
        for trials, belongs in ((self.paused, trial.is_paused), (self.running_on, trial.runs_on)):
            if belongs:
                trials[number] = trial
            else:
                trials.pop(number, None)
