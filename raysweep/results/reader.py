"""Read a run's ledger into tables for reports, exports, replays and warm starts."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raysweep.errors import InputError
from raysweep.results.events import (
    CheckpointsRemoved,
    Event,
    GuardsMeasured,
    NodeExcluded,
    NodesCounted,
    PaidEvent,
    PointsScored,
    ReplicatesAveraged,
    RungFinished,
    RungWatched,
    SessionFinished,
    SessionStarted,
    StageBegan,
    StatusChange,
    SweepSteered,
    TrialEnded,
    TrialStarted,
)
from raysweep.results.ledger import NAME as LEDGER
from raysweep.results.ledger import ledger_location, load_events
from raysweep.results.types import (
    Calibration,
    ExcludedNode,
    GuardScore,
    Mean,
    Measure,
    NodeTime,
    Point,
    Results,
    Rung,
    RunInfo,
    Stage,
    StageName,
    Trial,
    TrialStatus,
)
from raysweep.results.watched import Watched, WatchedRung
from raysweep.storage.folder import Folder, LocalFolder, as_folder
from raysweep.storage.line_log import is_held


def load(place: Path | Folder, has_driver: bool | None = None) -> Results:
    """Read the results of the run at ``place``, which may be unfinished.

    Args:
        has_driver: Whether a process is driving the run, or None if unknown. If False, trials that
            appear to be running are marked as interrupted.

    Raises:
        InputError: If the folder does not contain a valid run.
    """
    run = as_folder(place)
    try:
        events = load_events(run)
    except FileNotFoundError:
        raise no_run(run) from None
    return build_results(events, run, has_driver)


def no_run(run: Folder) -> InputError:
    """Return the error for a folder without a ledger."""
    is_there = not isinstance(run, LocalFolder) or run.path.exists()
    return InputError(
        f"{run.location}: {'not a run folder (no ledger in it)' if is_there else 'no such folder'}"
    )


def load_with_driver(run: Folder) -> Results:
    """Check whether a process is driving a run, and read the run like :func:`load`."""
    # If there is no driver, the ledger does not change between the check and the read.
    has_driver = is_held(run, LEDGER)
    return load(run, has_driver)


def build_results(events: Iterable[Event], run: Folder, has_driver: bool | None = None) -> Results:
    """Build results from a ledger's events. Raise ``InputError`` like :func:`load`."""
    path = ledger_location(run)
    tables = _Tables()
    for line, event in enumerate(events, 1):
        try:
            tables.add(event)
        except ValueError as error:
            raise InputError(
                f"{path}: line {line}: {error}; was the ledger edited by hand?"
            ) from None
    if tables.info is None:
        raise InputError(
            f"{path}: contains no settings, because the run ended before its sweep began"
        )
    tables.close(has_driver)
    return Results(
        folder=run.location,
        info=tables.info,
        trials=tuple(tables.trials.values()),
        rungs=tuple(tables.rungs),
        points=tuple(tables.points),
        status=tables.status,
        reason=tables.reason,
        seconds=tables.seconds,
        limit=tables.limit,
        has_failed_for_good=tables.has_failed_for_good,
        means=tables.all_means(),
        nodes=tuple(tables.nodes.values()),
        excluded_nodes=tuple(tables.excluded_nodes),
        is_paused=tables.is_paused,
        workers=tables.workers,
        guards=tables.guards_of(tables.info),
        calibrations=tuple(tables.calibrations.values()),
        measures=tuple(tables.measures.values()),
        labeled=tuple(tables.labeled),
        tasks=tuple(tables.tasks),
        watched=tuple(tables.watched.values()),
        stage=tables.stage,
        has_driver=has_driver,
        without_checkpoints=tuple(tables.without_checkpoints),
        config_digests=tuple(tables.config_digests),
    )


@dataclass
class _Tables:
    """Tables built from the events so far. Methods raise ``ValueError`` for inconsistent events."""

    info: RunInfo | None = None
    trials: dict[int, Trial] = field(default_factory=dict)
    rungs: list[Rung] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    labeled: list[Point] = field(default_factory=list)
    tasks: list[Point] = field(default_factory=list)
    # keyed by trial and step
    watched: dict[tuple[int, int], WatchedRung] = field(default_factory=dict)
    means: dict[int, tuple[Mean, ...]] = field(default_factory=dict)  # keyed by original trial
    # keyed by type and price
    nodes: dict[tuple[str, float | None], NodeTime] = field(default_factory=dict)
    # keyed by front member and guard
    guards: dict[tuple[object, ...], GuardScore] = field(default_factory=dict)
    # keyed by rung and split
    calibrations: dict[tuple[object, ...], Calibration] = field(default_factory=dict)
    # keyed by rung, split and name
    measures: dict[tuple[object, ...], Measure] = field(default_factory=dict)
    excluded_nodes: list[ExcludedNode] = field(default_factory=list)
    config_digests: list[str] = field(default_factory=list)
    without_checkpoints: list[int] = field(default_factory=list)
    stage: Stage | None = None
    status: str = "running"
    reason: str = ""
    seconds: float = 0.0
    limit: Mapping[str, float] = field(default_factory=dict)
    has_failed_for_good: bool = False
    is_paused: bool = False
    workers: int | None = None

    def add(self, event: Event) -> None:
        match event:
            case SessionStarted():
                self._add_session(event)
            case TrialStarted():
                self.trials[event.trial] = Trial(
                    trial=event.trial,
                    config=event.config,
                    replicate_of=event.replicate_of,
                    num_rungs=event.num_rungs,
                )
            case RungFinished():
                self._add_rung(event)
            case ReplicatesAveraged():
                self.means[event.trial] = event.points
            case PointsScored() | GuardsMeasured() | RungWatched():
                self._add_scores(event)
            case NodesCounted():
                self._add_nodes(event)
            case NodeExcluded():
                self.excluded_nodes.append(ExcludedNode(event.node, event.errors, event.reason))
            case SweepSteered():
                self._steer(event)
        self._note_stage(event)
        if isinstance(event, StatusChange | CheckpointsRemoved):
            self._change_status(event)
        self._note_cost(event)
        self._note_ending(event)

    def _note_cost(self, event: Event) -> None:
        if isinstance(event, PaidEvent) and event.cost is not None:
            cost = dataclasses.asdict(event.cost)
            self.trials[event.trial] = dataclasses.replace(self.trials[event.trial], **cost)

    def _note_stage(self, event: Event) -> None:
        match event:
            case StageBegan():
                self.stage = Stage(event.stage, event.count)
            case PointsScored():
                self._advance_stage("test", 1)
            case RungWatched():
                self._advance_stage("watch", 1)
            case GuardsMeasured():
                self._advance_stage("guards", len(event.scores))
            case SessionStarted() | TrialStarted() | SessionFinished():
                self.stage = None

    def _advance_stage(self, name: StageName, num_scores: int) -> None:
        if self.stage is not None and self.stage.name == name:
            num_done = self.stage.num_done + num_scores
            self.stage = dataclasses.replace(self.stage, num_done=num_done)

    def _note_ending(self, event: Event) -> None:
        """Update the run's status. The status is running until the current session ends."""
        if isinstance(event, SessionFinished):
            self.status, self.reason, self.seconds = event.status, event.reason, event.seconds
            self.limit = event.limit or {}
            self.has_failed_for_good = event.is_final is True
        if isinstance(event, SessionStarted | TrialStarted | StatusChange):
            self.status, self.reason, self.has_failed_for_good = "running", "", False

    def _add_session(self, event: SessionStarted) -> None:
        if self.info is not None:
            removed = self.info.guards.keys() - event.info.guards.keys()
            self.guards = {
                key: score for key, score in self.guards.items() if score.guard not in removed
            }
        self.info = event.info
        self.config_digests.append(event.config_digest)

    def _add_rung(self, event: RungFinished) -> None:
        self._check_begun(event.trial)
        self._add_points(event)
        self.rungs.append(
            Rung(
                trial=event.trial,
                step=event.step,
                examples_seen=event.examples_seen,
                seconds=event.seconds,
                loss=event.loss,
            )
        )
        if event.watched is not None:
            self._add_watched(event.trial, event.step, event.watched)

    def _add_watched(self, trial: int, step: int, watched: Watched) -> None:
        self.watched[trial, step] = WatchedRung(trial, step, watched)

    def _add_scores(self, event: PointsScored | GuardsMeasured | RungWatched) -> None:
        if isinstance(event, PointsScored):
            self._add_points(event)
            return
        if isinstance(event, RungWatched):
            self._check_begun(event.trial)
            self._add_watched(event.trial, event.step, event.watched)
            return
        for score in event.scores:
            self.guards[score.trial, score.step, score.kind, score.value, score.guard] = score

    def guards_of(self, info: RunInfo) -> tuple[GuardScore, ...]:
        """Return the guard scores, with limits from the last session if it has the guard."""
        return tuple(
            dataclasses.replace(score, at_least=info.guards.get(score.guard, score.at_least))
            for score in self.guards.values()
        )

    def _add_points(self, event: RungFinished | PointsScored) -> None:
        labeled = event.labeled or ()
        if self.info is not None:
            goals = self.info.goals
            for point in (*event.points, *labeled):
                missing = [goal for goal in goals if goal not in point.scores]
                if point.trial is not None and missing:
                    raise ValueError(f"{missing[0]} of {point.name} is missing")
        self.points += event.points
        self.labeled += labeled
        self.tasks += event.tasks or ()
        calibration = event.calibration
        if calibration is not None:
            self.calibrations[calibration.trial, calibration.step, calibration.split] = calibration
        for measure in event.measures or ():
            self.measures[measure.trial, measure.step, measure.split, measure.name] = measure

    def _add_nodes(self, event: NodesCounted) -> None:
        for node in event.nodes:
            key = node.type, node.price_per_hour
            total = self.nodes.get(key, NodeTime(node.type, 0.0, 0.0))
            boot_seconds = total.boot_seconds + node.boot_seconds
            up_seconds = total.up_seconds + node.up_seconds
            self.nodes[key] = dataclasses.replace(
                node, boot_seconds=boot_seconds, up_seconds=up_seconds
            )

    def _steer(self, event: SweepSteered) -> None:
        if event.action in ("pause", "resume"):
            self.is_paused = event.action == "pause"
        if event.trial is not None:
            self._check_begun(event.trial)
            trial = dataclasses.replace(self.trials[event.trial], stop_was_requested=True)
            self.trials[event.trial] = trial
        if event.workers is not None:
            self.workers = event.workers

    def _change_status(self, event: StatusChange | CheckpointsRemoved) -> None:
        if isinstance(event, CheckpointsRemoved):
            self.without_checkpoints += event.trials
            numbers = event.trials
        else:
            numbers = (event.trial,)
        for number in numbers:
            self._check_begun(number)
            self.trials[number] = dataclasses.replace(
                self.trials[number], status=event.status, reason=event.reason
            )
        if isinstance(event, TrialEnded) and event.traceback:
            self.trials[event.trial] = dataclasses.replace(
                self.trials[event.trial], traceback=event.traceback
            )

    def _check_begun(self, number: int) -> None:
        if number not in self.trials:
            raise ValueError(f"trial {number} has not begun")

    def close(self, has_driver: bool | None) -> None:
        """Set the final statuses. Trials still running when the sweep ended or was killed are interrupted."""
        has_ended = self.status != "running"
        if has_ended:
            self._interrupt_trials("the sweep ended before this trial did")
        elif has_driver is False:
            self._interrupt_trials("the sweep was killed")
        statuses = {trial.status for trial in self.trials.values()}
        all_failed = statuses == {TrialStatus.FAILED}
        if self.status == "completed" and all_failed:
            self.status = "failed"
            self.reason = "none of its trials succeeded"
            self.has_failed_for_good = True

    def _interrupt_trials(self, why: str) -> None:
        for number, trial in self.trials.items():
            if trial.status == TrialStatus.RUNNING:
                interrupted = dataclasses.replace(trial, status=TrialStatus.INTERRUPTED, reason=why)
                self.trials[number] = interrupted

    def all_means(self) -> tuple[Mean, ...]:
        """Return all means in order of trial number."""
        return tuple(mean for _, means in sorted(self.means.items()) for mean in means)
