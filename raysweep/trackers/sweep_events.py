"""Conversion of a ledger's events into calls of trackers."""

from collections.abc import Callable, Mapping, Sequence

from raysweep.metrics.objective import Objective
from raysweep.report.figures import front_figure
from raysweep.report.markdown import markdown
from raysweep.report.summary import Summary, summary_of
from raysweep.report.tables import front_table
from raysweep.results.events import (
    Event,
    PointsScored,
    RungFinished,
    SessionStarted,
    StatusChange,
    TrialStarted,
)
from raysweep.results.types import Point, RunInfo, TrialStatus
from raysweep.storage.folder import Folder
from raysweep.trackers.tracker import FrontPage, Step, TrackedTrial, Tracker


class SweepEvents:
    """A run's events, passed on to a tracker as they arrive."""

    def __init__(self, tracker: Tracker, run: Folder) -> None:
        self._tracker = tracker
        self._run = run
        self._trials: dict[int, TrackedTrial] = {}
        self._info: RunInfo | None = None
        self._reference: Point | None = None

    def take(self, event: Event) -> None:
        """Pass on the next event; raises any error of the tracker's client."""
        match event:
            case SessionStarted():
                self._info = event.info
            case PointsScored():
                found = [point for point in event.points if (point.kind, point.split) == ("reference", "dev")]
                self._reference = found[0] if found else self._reference
            case TrialStarted():
                self._trials[event.trial] = TrackedTrial(event.trial, event.config, event.replicate_of)
            case RungFinished():
                trial = self._trials[event.trial]
                step = Step(event.step, self._metrics(event))
                trial.steps.append(step)
                self._tracker.step(trial, step)
        if isinstance(event, StatusChange):
            self._change_status(event)

    def _change_status(self, event: StatusChange) -> None:
        trial = self._trials[event.trial]
        trial.status, trial.reason = event.status, event.reason
        if event.status != TrialStatus.RUNNING:
            self._tracker.rest(trial)

    def _metrics(self, rung: RungFinished) -> dict[str, float]:
        """Return the metrics of the rung's best point, of its plain point, and of the rung itself."""
        metrics = {"loss": rung.loss, "examples_seen": float(rung.examples_seen), "seconds": rung.seconds}
        if rung.points and self._info is not None:
            best = self._best_of(rung.points, self._info)
            metrics |= _scores(best)
            metrics["objective"] = self._info.objective(best)
        for point in rung.points:
            if point.kind == "plain":
                metrics |= {f"plain/{name}": value for name, value in _scores(point).items()}
        return metrics

    def _best_of(self, points: Sequence[Point], info: RunInfo) -> Point:
        """Return the best point by the sweep's own rule.

        A point that meets the constraints beats any that does not.
        """
        if self._reference is None:
            return max(points, key=info.objective)
        reference = self._reference.polarity, self._reference.similarity
        objective = Objective.of(info.polarity_weight, info.similarity, info.constraints, reference)
        by_pair = {(point.polarity, point.similarity): point for point in points}
        return by_pair[objective.best_point(list(by_pair))]

    def finish(self, moved: Callable[[], None] = lambda: None) -> None:
        """Pass the front, from the current ledger, to the tracker and close it.

        ``moved`` is called after each trial that is closed, to show progress.
        """
        try:
            summary = summary_of(self._run)
            if summary.members:
                self._tracker.front(_front_page(summary))
        finally:
            for trial in self._trials.values():
                self._tracker.close_trial(trial)
                moved()
            self._tracker.close()


def _scores(point: Point) -> dict[str, float]:
    return {"polarity": point.polarity, "similarity": point.similarity, "retention": point.retention}


def _front_page(summary: Summary) -> FrontPage:
    table = front_table(summary)
    return FrontPage(table.columns, table.rows, markdown(summary), front_figure(summary), _front_metrics(summary))


def _front_metrics(summary: Summary) -> Mapping[str, float]:
    """Return the size of the front and its hypervolume on each split, with scores in [0, 1]."""
    metrics = {"members": float(len(summary.members))}
    for split, area in summary.areas.items():
        metrics[f"{split}/hypervolume"] = area.front
        if area.share is not None:
            metrics[f"{split}/oracle_share"] = area.share
    return metrics
