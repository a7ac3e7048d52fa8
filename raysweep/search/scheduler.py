"""The scheduler, which decides which trial runs next. It does not use a clock, files or Ray.

Both the sweep and the simulator behind ``raysweep replay`` use it. The same events always lead to the
same decisions, so an interrupted sweep can be resumed.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.config.preset import Preset, preset_of
from raysweep.config.space import Space
from raysweep.config.sweep import PlateauConfig, SweepConfig
from raysweep.errors import InputError
from raysweep.metrics.objective import Objective, front_of
from raysweep.metrics.scores import Pair
from raysweep.results.types import TrialStatus
from raysweep.search.proposer import Proposer
from raysweep.search.replicates import Replicates
from raysweep.search.stopping.base import EarlyStopper, Standing
from raysweep.search.stopping.policies import make_early_stopper

AT_REST = (TrialStatus.PAUSED, TrialStatus.COMPLETED, TrialStatus.STOPPED)


@dataclass
class TrialState:
    """A trial's current state."""

    number: int
    values: Mapping[str, Any]  # the values of its configuration
    status: TrialStatus = TrialStatus.RUNNING
    front: tuple[Pair, ...] = ()  # non-dominated points from all its rungs
    reason: str = ""  # why the trial is paused
    replicate_of: int | None = None
    run: int = 0  # run number within the configuration: 0 for an original, from 1 for replicates
    origin: str | None = None  # name of the requested configuration that the trial runs, if any


@dataclass(frozen=True)
class RequestedConfig:
    """A configuration requested in the sweep file (under ``first``) or during the sweep."""

    name: str
    preset: Preset


def first_name(index: int) -> str:
    """Return the name of the requested configuration at this position under ``first``."""
    return f"first[{index}]"


@dataclass
class RequestedConfigs:
    """The queue of requested configurations. Those requested during the sweep come first."""

    _requested: deque[RequestedConfig] = field(default_factory=deque)
    _first: deque[RequestedConfig] = field(default_factory=deque)

    @classmethod
    def of(cls, first: Iterable[Preset]) -> "RequestedConfigs":
        """Return a queue of the presets under ``first`` in a sweep file."""
        requested = [
            RequestedConfig(first_name(index), preset) for index, preset in enumerate(first)
        ]
        return cls(_first=deque(requested))

    def __len__(self) -> int:
        return len(self._requested) + len(self._first)

    def add(self, requested: RequestedConfig) -> None:
        """Add a configuration requested during the sweep."""
        self._requested.append(requested)

    def has(self, preset: Preset) -> bool:
        """Return whether the queue contains this configuration; False if the preset is incomplete."""
        if not preset.is_complete:
            return False
        queued = [requested.preset for requested in (*self._requested, *self._first)]
        return any(other.is_complete and other.params == preset.params for other in queued)

    def take(self) -> RequestedConfig:
        """Remove and return the next configuration; the queue must not be empty."""
        return self._requested.popleft() if self._requested else self._first.popleft()

    def drop(self, name: str) -> None:
        """Remove the configuration with this name."""
        self._requested = deque(
            requested for requested in self._requested if requested.name != name
        )
        self._first = deque(requested for requested in self._first if requested.name != name)


@dataclass
class Scheduler:
    """The scheduler of a sweep, which chooses the next trial to run.

    Trials are numbered from 0 in the order they start. On a plateau, only replicates start.
    """

    proposer: Proposer
    early_stopper: EarlyStopper
    objective: Objective
    num_trials: int
    plateau: PlateauConfig | None = None
    replicates: Replicates = field(default_factory=Replicates)
    requested: RequestedConfigs = field(default_factory=RequestedConfigs)
    trials: dict[int, TrialState] = field(default_factory=dict)
    front: tuple[Pair, ...] = ()  # front of the entire search
    _num_rests: int = 0  # number of times a trial paused or ended
    _num_rests_at_growth: int = 0  # value of _num_rests when the front last grew enough
    _area_at_growth: float | None = None

    def __post_init__(self) -> None:
        if self.proposer.limit is not None:
            self.num_trials = min(self.num_trials, self.proposer.limit)

    @property
    def num_started(self) -> int:
        """The number of proposed trials, excluding replicates."""
        return len(self.trials) - self.replicates.num_started

    @property
    def can_start(self) -> bool:
        """Whether any new trials are left to start, excluding replicates."""
        return self.num_started < self.num_trials

    @property
    def has_more(self) -> bool:
        """Whether a trial could start or resume."""
        return self.can_start or self.early_stopper.next_to_resume(self.can_start) is not None

    @property
    def is_done(self) -> bool:
        """Whether :meth:`ask` would currently return None."""
        has_search = self.has_more and not self.on_plateau
        return not has_search and self._next_to_replicate() is None

    @property
    def on_plateau(self) -> bool:
        """Whether ``plateau.trials`` trials have paused or ended since the front last grew sufficiently."""
        return (
            self.plateau is not None
            and self._num_rests - self._num_rests_at_growth >= self.plateau.trials
        )

    def ask(self) -> TrialState | None:
        """Return the next trial to run (paused, new or a replicate), or None if nothing can run now."""
        if not self.on_plateau:
            if self.requested and self.can_start:  # takes precedence over resuming paused trials
                return self.propose()
            resumed = self.early_stopper.next_to_resume(self.can_start)
            if resumed is not None:
                return self.resume(resumed)
            if self.can_start:
                return self.propose()
        original = self._next_to_replicate()
        return None if original is None else self.replicate(original)

    def _next_to_replicate(self) -> int | None:
        return self.replicates.next(self._is_at_rest, self.objective.area)

    def _is_at_rest(self, number: int) -> bool:
        return self.trials[number].status in AT_REST

    def resume(self, number: int) -> TrialState:
        """Resume a trial that is paused or about to pause."""
        trial = self.trials[number]
        trial.status, trial.reason = TrialStatus.RUNNING, ""
        self.early_stopper.set_running(number, running=True)
        return trial

    def propose(self) -> TrialState:
        """Start a new trial that runs the next requested configuration or the sampler's proposal."""
        number = len(self.trials)
        proposer = self.proposer
        while self.requested:
            requested = self.requested.take()
            preset = requested.preset
            is_new = proposer.trial_with(preset) is None  # another run would have the same scores
            if is_new and proposer.has_left(preset):
                values = proposer.ask(number, preset)
                return self._begin(number, values, requested.name)
        values = proposer.ask(number)
        return self._begin(number, values)

    def try_next(self, name: str, values: Mapping[str, Any]) -> None:
        """Request a configuration, complete or partial, for the next new trial.

        Raises:
            ParameterError: If the values are not in the space.
        """
        preset = preset_of(self.proposer.space, values)
        self.requested.add(RequestedConfig(name, preset))

    def amend(self, number: int, values: Mapping[str, Any]) -> None:
        """Replace the values of a trial that was just proposed."""
        self.proposer.amend(number, values)
        self._begin(number, values)

    def adopt(self, values: Mapping[str, Any], origin: str | None = None) -> TrialState:
        """Start a trial that was proposed elsewhere. ``origin`` names its requested configuration, if any.

        Raises:
            ValueError: If the values are not in the space. Numbers may be outside their ranges.
        """
        number = len(self.trials)
        self.proposer.adopt(number, values, widened=values.keys())
        if origin is not None:
            self.requested.drop(origin)
        return self._begin(number, values, origin)

    def _begin(
        self, number: int, values: Mapping[str, Any], origin: str | None = None
    ) -> TrialState:
        trial = self.trials[number] = TrialState(number, values, origin=origin)
        params = self.proposer.known_trial(number).params
        self.replicates.original(number, tuple(sorted(params.items())))
        return trial

    def replicate(self, original: int) -> TrialState:
        """Start another run of a trial's configuration with a different seed."""
        number = len(self.trials)
        run = self.replicates.replicate(number, original)
        trial = TrialState(number, self.trials[original].values, replicate_of=original, run=run)
        self.trials[number] = trial
        return trial

    def rung(
        self,
        number: int,
        examples_seen: int,
        points: Sequence[Pair],
        ahead: Sequence[int],
        names: Sequence[Hashable] | None = None,
        can_start: bool | None = None,
    ) -> str | None:
        """Record a trial's rung, and return the reason to pause the trial, or None to continue.

        Replicates always continue.

        Args:
            points: Operating points (P, S).
            ahead: Examples seen at each remaining rung; empty at the last rung.
            names: Names of the points, identical in all runs of a configuration. Defaults to their
                positions.
            can_start: Whether new trials could start when the rung was recorded. Defaults to the
                current state.

        Raises:
            InputError: If a score is not finite. The scheduler is unchanged, and the trial can only end
                as failed.
        """
        for polarity, similarity in points:
            if not (math.isfinite(polarity) and math.isfinite(similarity)):
                raise InputError(
                    f"trial {number}, after {examples_seen:,} examples: a point scores P {polarity} and S {similarity}; "
                    "allowed: finite numbers"
                )
        trial = self.trials[number]
        trial.front = front_of([*trial.front, *points])
        point_names = names or range(len(points))
        named_points = dict(zip(point_names, points, strict=True))
        self.replicates.rung(number, examples_seen, named_points)
        if trial.replicate_of is not None:
            return None
        self.front = front_of([*self.front, *points])
        if self.replicates.has_any(number):
            self._report_means(number)
        else:
            self.proposer.report(number, examples_seen, trial.front)
        feasible = tuple(point for point in trial.front if not self.objective.violation(point))
        standing = Standing(
            front=feasible or trial.front,
            objective=self.objective.best_value(trial.front),
            area=self.objective.area(trial.front),
            points=tuple(points),
        )
        if can_start is None:
            can_start = self.can_start
        reason = self.early_stopper.on_rung(number, examples_seen, standing, ahead, can_start)
        trial.reason = reason if reason and ahead else ""
        return trial.reason or None

    def pause(self, number: int) -> None:
        """Mark the trial as paused."""
        self.proposer.tell(number, TrialStatus.PAUSED)
        self.early_stopper.set_running(number, running=False)
        self._rest(number, TrialStatus.PAUSED)

    def end(self, number: int, status: TrialStatus) -> None:
        """Mark the trial as completed, stopped or failed."""
        trial = self.trials[number]
        status = TrialStatus(status)
        self.replicates.end(number, status == TrialStatus.FAILED)
        original = trial.replicate_of
        if original is not None:
            trial.status = status
            if status == TrialStatus.FAILED:
                return
            self._report_means(original)
            if self._is_at_rest(original):
                self.proposer.tell(original, self.trials[original].status)
            return
        if trial.status == TrialStatus.RUNNING:
            self.proposer.tell(number, status)
            self._rest(number, status)
        trial.status = status
        self.early_stopper.end(number)

    def _report_means(self, original: int) -> None:
        """Report a configuration's mean scores to the sampler, replacing earlier results."""
        fronts = self.replicates.mean_fronts(original)
        for examples_seen, front in fronts.items():
            self.proposer.report(original, examples_seen, front)

    def _rest(self, number: int, status: TrialStatus) -> None:
        self.trials[number].status = status
        self._num_rests += 1
        if not self.front:
            return
        area = self.objective.area(self.front)
        last_area = self._area_at_growth
        relative_growth = self.plateau.growth if self.plateau else 0.0
        has_grown = last_area is None or area > last_area + relative_growth * abs(last_area)
        if has_grown:
            self._area_at_growth = area
            self._num_rests_at_growth = self._num_rests


def make_scheduler(
    config: SweepConfig, space: Space, reference: Pair, *, seed_offset: int = 0
) -> Scheduler:
    """Create the scheduler of a new sweep. ``reference`` is (P, S) of the reference encoder on dev."""
    settings = config.objective
    constraints = settings.constraints.model_dump()
    objective = Objective.of(
        settings.polarity_weight, settings.similarity, constraints, reference, settings.goals
    )
    first = [preset_of(space, values) for values in config.first]
    seed = (config.seed + seed_offset) % 2**32
    # The scores of an untrained trial are known only if the reference encoder is the model to train.
    untrained = reference if config.reference_encoder == config.model else None
    proposer = Proposer(space, config.sampler, seed, objective, settings.proposals)
    early_stopper = make_early_stopper(config.early_stopping, objective, untrained)
    replicates = Replicates(config.replicates.trials, config.replicates.runs)
    return Scheduler(
        proposer=proposer,
        early_stopper=early_stopper,
        objective=objective,
        num_trials=config.budget.trials,
        plateau=config.early_stopping.plateau,
        replicates=replicates,
        requested=RequestedConfigs.of(first),
    )
