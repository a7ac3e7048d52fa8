"""What runs next and what stops: proposals, early stopping and the front, without a clock, files or Ray.

The sweep feeds it what happens, and so does the simulator of ``raysweep replay``. Fed the same again it decides the same,
which is how a sweep resumes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from raysweep.config.space import Space
from raysweep.config.sweep import ObjectiveConfig, SweepConfig
from raysweep.metrics.objective import Objective, Pair, front_of
from raysweep.search.proposer import Proposer
from raysweep.search.replicates import Replicates
from raysweep.search.stopping.base import EarlyStopper, Standing
from raysweep.search.stopping.factory import make_early_stopper

TrialStatus = Literal["running", "held", "completed", "stopped", "failed"]


@dataclass
class TrialState:
    """A trial as it goes; ``held`` is stopped for now, and may be revived."""

    number: int
    values: Mapping[str, Any]
    status: TrialStatus = "running"
    front: tuple[Pair, ...] = ()  # non-dominated points of all its rungs
    reason: str = ""  # why it is held
    replicate_of: int | None = None
    run: int = 0  # of the configuration; of its replicates from 1


@dataclass
class Scheduler:
    """Asked for trials, told their rungs and how they rest. Trials are numbered from 0 as they are proposed.

    ``plateau`` is (trials, growth): the search is over when the front's hypervolume has not grown by more than this
    fraction while so many trials came to rest.
    """

    proposer: Proposer
    early_stopper: EarlyStopper
    objective: Objective
    num_trials: int
    plateau: tuple[int, float] | None = None
    replicates: Replicates = field(default_factory=Replicates)
    trials: dict[int, TrialState] = field(default_factory=dict)
    front: tuple[Pair, ...] = ()
    _rests: int = 0
    _grown_at: int = 0  # of the rests
    _area: float | None = None

    def __post_init__(self) -> None:
        if self.proposer.limit is not None:
            self.num_trials = min(self.num_trials, self.proposer.limit)

    def ask(self) -> TrialState | None:
        """The trial to run next, one that was held or a new one, or a replicate; None when there is none for now."""
        course: TrialState | None = None
        if not self.on_plateau:
            if (revived := self.early_stopper.next_to_resume(self.may_begin)) is not None:
                course = self.go_on(revived)
            elif self.may_begin:
                course = self.propose()
        if course is None and (original := self.replicates.next(self._at_rest, self.objective.area)) is not None:
            course = self.replicate(original)
        return course

    @property
    def num_begun(self) -> int:
        """Trials that were proposed, replicates aside."""
        return len(self.trials) - self.replicates.num_begun

    @property
    def may_begin(self) -> bool:
        """Whether there are trials left to propose."""
        return self.num_begun < self.num_trials

    def _at_rest(self, number: int) -> bool:
        return self.trials[number].status in ("held", "completed", "stopped")

    def go_on(self, number: int) -> TrialState:
        """A trial that was held, or would be, goes on."""
        course = self.trials[number]
        course.status, course.reason = "running", ""
        self.early_stopper.set_running(number, running=True)
        return course

    def propose(self) -> TrialState:
        """A new trial."""
        number = len(self.trials)
        return self._begin(TrialState(number, self.proposer.ask(number)))

    def amend(self, number: int, values: Mapping[str, Any]) -> None:
        """A trial just proposed runs with these values instead, as it does where a table has no others."""
        self.proposer.amend(number, values)
        self._begin(TrialState(number, values))

    def adopt(self, values: Mapping[str, Any]) -> TrialState:
        """A trial that was proposed elsewhere, as the next. ValueError when it does not lie in the space."""
        number = len(self.trials)
        self.proposer.adopt(number, values)
        return self._begin(TrialState(number, values))

    def _begin(self, course: TrialState) -> TrialState:
        self.trials[course.number] = course
        params, _ = self.proposer.known(course.number)
        self.replicates.original(course.number, tuple(sorted(params.items())))
        return course

    def replicate(self, original: int) -> TrialState:
        """The configuration of a trial once more, with another seed."""
        number = len(self.trials)
        run = self.replicates.replicate(number, original)
        course = TrialState(number, self.trials[original].values, replicate_of=original, run=run)
        self.trials[number] = course
        return course

    @property
    def has_more(self) -> bool:
        """Whether a trial could begin or be revived."""
        return self.may_begin or self.early_stopper.next_to_resume(self.may_begin) is not None

    @property
    def on_plateau(self) -> bool:
        return self.plateau is not None and self._rests - self._grown_at >= self.plateau[0]

    def rung(
        self,
        number: int,
        examples_seen: int,
        points: Sequence[Pair],
        ahead: Sequence[int],
        names: Sequence[Hashable] | None = None,
        may_begin: bool | None = None,
    ) -> str | None:
        """Take the points (P, S) of a trial's rung. The reason to hold it, or None.

        ``ahead`` are the examples that it will have seen at its further rungs, none at its last. ``names`` tell the points
        apart, the same in each run of a configuration; their places do if not given. ``may_begin`` is what it was when the
        rung was taken, if that was before. A replicate is judged by nobody.
        """
        course = self.trials[number]
        course.front = front_of([*course.front, *points])
        self.replicates.rung(number, examples_seen, dict(zip(names or range(len(points)), points, strict=True)))
        if course.replicate_of is not None:
            return None
        self.front = front_of([*self.front, *points])
        if self.replicates.has_any(number):
            self._report_means(number)
        else:
            self.proposer.report(number, examples_seen, course.front)
        objective, area = self.objective.best_value(course.front), self.objective.area(course.front)
        feasible = tuple(point for point in course.front if not self.objective.violation(point)) or course.front
        standing = Standing(feasible, objective, area, tuple(points))
        may_begin = self.may_begin if may_begin is None else may_begin
        reason = self.early_stopper.on_rung(number, examples_seen, standing, ahead, may_begin)
        course.reason = reason or "" if ahead else ""
        return course.reason or None

    def hold(self, number: int) -> None:
        """The trial was stopped, for now."""
        self.proposer.tell(number, "stopped")
        self.early_stopper.set_running(number, running=False)
        self._rest(number, "held")

    def end(self, number: int, status: Literal["completed", "stopped", "failed"]) -> None:
        """The trial will not go on."""
        course = self.trials[number]
        self.replicates.end(number, status == "failed")
        if course.replicate_of is not None:
            course.status = status
            if status != "failed":
                self._tell_means(course.replicate_of)
            return
        if course.status == "running":
            self.proposer.tell(number, status)
            self._rest(number, status)
        course.status = status
        self.early_stopper.end(number)

    def _report_means(self, original: int) -> None:
        for seen, front in self.replicates.standings(original).items():
            self.proposer.report(original, seen, front)

    def _tell_means(self, original: int) -> None:
        """Let the means over a configuration's runs replace what the sampler was told of it."""
        self._report_means(original)
        if self._at_rest(original):
            self.proposer.tell(original, "completed" if self.trials[original].status == "completed" else "stopped")

    def _rest(self, number: int, status: TrialStatus) -> None:
        self.trials[number].status = status
        self._rests += 1
        if not self.front:
            return
        area, least = self.objective.area(self.front), self.plateau[1] if self.plateau else 0.0
        if self._area is None or area > self._area + least * abs(self._area):
            self._area, self._grown_at = area, self._rests


def make_objective(objective: ObjectiveConfig, reference: Pair) -> Objective:
    """The goal under an objective, where the reference encoder scores ``reference`` (P, S) on dev."""
    return Objective.of(objective.polarity_weight, objective.similarity, objective.constraints.model_dump(), reference)


def make_scheduler(config: SweepConfig, space: Space, reference: Pair, *, seed_offset: int = 0) -> Scheduler:
    """All that decides a sweep, at its beginning."""
    objective = make_objective(config.objective, reference)
    seed = (config.seed + seed_offset) % 2**32
    proposals = Proposer(space, config.sampler, seed, objective, config.objective.proposals)
    plateau = config.early_stopping.plateau
    # An untrained trial scores as the reference does, unless that is another encoder.
    untrained = reference if config.reference_encoder == config.model else None
    return Scheduler(
        proposals,
        make_early_stopper(config.early_stopping, objective, untrained),
        objective,
        config.budget.trials,
        (plateau.trials, plateau.growth) if plateau else None,
        Replicates(config.replicates.trials, config.replicates.runs),
    )
