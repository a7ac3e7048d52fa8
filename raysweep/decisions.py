"""What runs next and what stops: proposals, early stopping and the front, without a clock, files or Ray.

The sweep feeds it what happens, and so does the simulator of ``raysweep replay``. Fed the same again it decides the same,
which is how a sweep resumes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from raysweep.goal import Goal, Pair, front_of
from raysweep.proposals import Proposals
from raysweep.stopping import Standing, Stopper

State = Literal["running", "held", "completed", "stopped", "failed"]


@dataclass
class Course:
    """A trial as it goes; ``held`` is stopped for now, and may be revived."""

    number: int
    values: Mapping[str, Any]
    state: State = "running"
    front: tuple[Pair, ...] = ()  # non-dominated points of all its rungs
    reason: str = ""  # why it is held


@dataclass
class Decisions:
    """Asked for trials, told their rungs and how they rest. Trials are numbered from 0 as they are proposed.

    ``plateau`` is (trials, growth): the search is over when the front's hypervolume has not grown by more than this
    fraction while so many trials came to rest.
    """

    proposals: Proposals
    stopper: Stopper
    goal: Goal
    num_trials: int
    plateau: tuple[int, float] | None = None
    trials: dict[int, Course] = field(default_factory=dict)
    front: tuple[Pair, ...] = ()
    _rests: int = 0
    _grown_at: int = 0  # of the rests
    _area: float = 0.0

    def __post_init__(self) -> None:
        if self.proposals.limit is not None:
            self.num_trials = min(self.num_trials, self.proposals.limit)

    def ask(self) -> Course | None:
        """The trial to run next, one that was held or a new one; None when there is none for now."""
        if self.on_plateau:
            return None
        course = self.revive(self.may_begin)
        if course is None and self.may_begin:
            course = self.propose()
        return course

    @property
    def may_begin(self) -> bool:
        """Whether there are trials left to propose."""
        return len(self.trials) < self.num_trials

    def revive(self, may_begin: bool = False) -> Course | None:
        """A trial that was held and is to go on; with ``may_begin`` None where a new one promises more."""
        number = self.stopper.revive(may_begin)
        if number is None:
            return None
        course = self.trials[number]
        course.state, course.reason = "running", ""
        return course

    def propose(self) -> Course:
        """A new trial."""
        number = len(self.trials)
        course = self.trials[number] = Course(number, self.proposals.ask(number))
        return course

    def adopt(self, values: Mapping[str, Any]) -> Course:
        """A trial that was proposed elsewhere, as the next. ValueError when it does not lie in the space."""
        number = len(self.trials)
        self.proposals.adopt(number, values)
        course = self.trials[number] = Course(number, values)
        return course

    @property
    def on_plateau(self) -> bool:
        return self.plateau is not None and self._rests - self._grown_at >= self.plateau[0]

    def rung(self, number: int, examples_seen: int, points: Sequence[Pair], ahead: Sequence[int]) -> str | None:
        """Take the points (P, S) of a trial's rung. The reason to hold it, or None.

        ``ahead`` are the examples that it will have seen at its further rungs, none at its last.
        """
        course = self.trials[number]
        course.front = front_of([*course.front, *points])
        self.front = front_of([*self.front, *points])
        self.proposals.report(number, examples_seen, course.front)
        objective, area = self.goal.objective(course.front), self.goal.area(course.front)
        standing = Standing(course.front, objective, area, tuple(points))
        reason = self.stopper.judge(number, examples_seen, standing, ahead, self.may_begin)
        course.reason = reason or "" if ahead else ""
        return course.reason or None

    def hold(self, number: int) -> None:
        """The trial was stopped, for now."""
        self.proposals.tell(number, "stopped")
        self._rest(number, "held")

    def end(self, number: int, status: Literal["completed", "stopped", "failed"]) -> None:
        """The trial will not go on."""
        if self.trials[number].state == "running":
            self.proposals.tell(number, status)
            self._rest(number, status)
        self.trials[number].state = status
        self.stopper.end(number)

    def _rest(self, number: int, state: State) -> None:
        self.trials[number].state = state
        self._rests += 1
        area = self.goal.area(self.front) if self.front else 0.0
        if area > self._area * (1 + (self.plateau[1] if self.plateau else 0.0)):
            self._area, self._grown_at = area, self._rests
