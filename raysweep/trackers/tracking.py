"""Trackers fed with a run's events, while a sweep runs or afterwards.

While a sweep runs, each tracker has its own thread, so that a tracker that fails or hangs does not delay anything.
"""

import itertools
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from raysweep.config.document import join_key
from raysweep.config.strict import explain
from raysweep.config.trackers import SETTINGS, TRACKERS, TrackersConfig
from raysweep.errors import InputError
from raysweep.report.figures import front_figure
from raysweep.report.front import Criterion
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
from raysweep.results.ledger import load_events
from raysweep.results.reader import load
from raysweep.results.settings_file import read_settings
from raysweep.results.types import OWN_KINDS, Point, RunInfo, ScoredSplit, TrialStatus
from raysweep.storage.folder import Folder
from raysweep.trackers.opening import Destination, check_trackers, tracker_openers
from raysweep.trackers.tracker import FrontPage, Step, TrackedTrial, Tracker

FINISH_SECONDS = 60.0  # the end of a sweep waits this long for a tracker that makes no progress

Warn = Callable[[str], None]


class Tracking:
    """The trackers of a run's session.

    :meth:`take` never blocks, and :meth:`finish` returns in bounded time, whatever the trackers do.
    """

    def __init__(self, config: TrackersConfig, run: Folder, sweep: str, warn: Warn) -> None:
        openers = tracker_openers(config, Destination(run, sweep))
        self._feeds = [_Feed(name, opener, run, warn) for name, opener in openers.items()]

    def take_all(self, events: Iterable[Event]) -> None:
        """Pass the events of the run so far to all trackers."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Pass the next event to all trackers."""
        for feed in self._feeds:
            feed.put(event)

    def finish(self) -> None:
        """Close the trackers with the current front and warn about those that do not finish."""
        for feed in self._feeds:
            feed.put(None)
        for feed in self._feeds:
            feed.wait()


class _Feed:
    """One tracker and its thread. After an error it warns once and drops the tracker."""

    def __init__(self, name: str, opener: Callable[[], Tracker], run: Folder, warn: Warn) -> None:
        self._name, self._opener, self._run, self._warn = name, opener, run, warn
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._progress_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def put(self, event: Event | None) -> None:
        """Queue the next event, or None to close the tracker."""
        if self._thread.is_alive():
            self._events.put(event)

    def _work(self) -> None:
        try:
            tracker = self._opener()
            sweep_events = SweepEvents(tracker, self._run)
            while (event := self._events.get()) is not None:
                sweep_events.take(event)
                self._note_progress()
            sweep_events.finish(self._note_progress)
        except Exception as error:  # clients pass on any error of their layers
            self._warn(f"trackers: {self._name} disabled (error={_one_line(error)}); {self._hint}")

    def _note_progress(self) -> None:
        self._progress_at = time.monotonic()

    @property
    def _hint(self) -> str:
        return f"to write it later: raysweep track {self._run.location} --to {self._name}"

    def wait(self) -> None:
        """Wait until the thread ends or has made no progress for FINISH_SECONDS."""
        self._progress_at = time.monotonic()
        while self._thread.is_alive():
            seconds_left = self._progress_at + FINISH_SECONDS - time.monotonic()
            if seconds_left <= 0:
                self._warn(
                    f"trackers: {self._name} abandoned (seconds_without_progress={FINISH_SECONDS:g}); {self._hint}"
                )
                return
            self._thread.join(min(seconds_left, 0.5))


def fill(config: TrackersConfig, run: Folder) -> Sequence[str]:
    """Pass all events of a run's ledger to the trackers, in this thread, and return the trackers' names.

    Raises:
        InputError: If a tracker fails.
    """
    check_trackers(config, run.location)
    sweep = load(run).info.name
    openers = tracker_openers(config, Destination(run, sweep))
    for name, opener in openers.items():
        try:
            sweep_events = SweepEvents(opener(), run)
            for event in load_events(run):
                sweep_events.take(event)
            sweep_events.finish()
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{name}: {_one_line(error)}") from None
    return tuple(openers)


def _one_line(error: Exception) -> str:
    message = " ".join(str(error).split())
    without_passwords = re.sub(r"://[^/\s@]*@", "://", message)
    return without_passwords[:300] or type(error).__name__


def merge_settings(run: Folder, names: Sequence[str], options: Mapping[str, str]) -> TrackersConfig:
    """Return the settings of these trackers: those of the run's own file, updated with ``options``.

    Each option applies to all of the trackers that have such a key.

    Raises:
        InputError: If a name is unknown, no tracker has an option's key, or a value is invalid.
    """
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"--to is {name!r}; allowed: {', '.join(TRACKERS)}")
    stored = _stored_settings(run)
    values: dict[str, dict[str, Any]] = {}
    for name in names:
        config = getattr(stored, name)
        values[name] = {} if config is None else config.model_dump()
    for key, value in options.items():
        receivers = [name for name in values if key in SETTINGS[name]]
        if not receivers:
            keys = itertools.chain.from_iterable(SETTINGS[name] for name in names)
            allowed = ", ".join(dict.fromkeys(keys))
            raise InputError(f"--{key}: unknown setting of {', '.join(names)}; allowed: {allowed}")
        for name in receivers:
            values[name][key] = value
    try:
        return TrackersConfig.model_validate(values)
    except ValidationError as error:
        first: dict[str, Any] = dict(error.errors()[0])
        path = tuple(first["loc"])
        problem = explain(first, path, TrackersConfig)
        raise InputError(join_key(f"--{path[-1]}", problem)) from None


def _stored_settings(run: Folder) -> TrackersConfig:
    """Return the settings in the run's own file, or the defaults if it lists only names."""
    settings = read_settings(run, load(run))
    try:
        return TrackersConfig.model_validate(settings.get("trackers", {}))
    except ValidationError:
        return TrackersConfig()


class SweepEvents:
    """Translation of a run's events into calls to one tracker."""

    def __init__(self, tracker: Tracker, run: Folder) -> None:
        self._tracker = tracker
        self._run = run
        self._trials: dict[int, TrackedTrial] = {}
        self._info: RunInfo | None = None
        self._references: dict[ScoredSplit, Point] = {}

    def take(self, event: Event) -> None:
        """Pass on the next event; errors from the tracker's client propagate."""
        match event:
            case SessionStarted():
                self._info = event.info
            case PointsScored():
                for point in event.points:
                    if point.kind == "reference":
                        self._references[point.split] = point
            case TrialStarted():
                self._trials[event.trial] = TrackedTrial(event.trial, event.config, event.replicate_of)
            case RungFinished():
                trial = self._trials[event.trial]
                step = Step(event.step, self._metrics(event))
                trial.steps.append(step)
                self._tracker.log_step(trial, step)
        if isinstance(event, StatusChange):
            trial = self._trials[event.trial]
            trial.status = event.status
            trial.reason = event.reason
            if event.status != TrialStatus.RUNNING:
                self._tracker.log_status(trial)

    def _metrics(self, rung: RungFinished) -> dict[str, float]:
        """Return the metrics of the rung's best point, of its plain point, and of the rung itself."""
        metrics = {"loss": rung.loss, "examples_seen": float(rung.examples_seen), "seconds": rung.seconds}
        if rung.points and self._info is not None:
            criterion = Criterion.of(self._info, self._references)
            best = max(rung.points, key=criterion.rank)
            metrics |= _scores(best)
            metrics["objective"] = self._info.objective(best)
        for point in rung.points:
            if point.kind in OWN_KINDS:
                for name, score in _scores(point).items():
                    metrics[f"{point.kind}/{name}"] = score
        return metrics

    def finish(self, on_progress: Callable[[], None] = lambda: None) -> None:
        """Pass the front, from the current ledger, to the tracker and close it.

        ``on_progress`` is called after each trial is closed.
        """
        try:
            summary = summary_of(self._run)
            if summary.members:
                self._tracker.log_front(_front_page(summary))
        finally:
            for trial in self._trials.values():
                self._tracker.close_trial(trial)
                on_progress()
            self._tracker.close()


def _scores(point: Point) -> dict[str, float]:
    return {name: score.mean for name, score in point.scores.items() if name != "accuracy"}


def _front_page(summary: Summary) -> FrontPage:
    """Return the front; its metrics are its size and its hypervolume on each split, with scores in [0, 1]."""
    metrics = {"members": float(len(summary.members))}
    for split, area in summary.areas.items():
        metrics[f"{split}/hypervolume"] = area.front
        if area.share is not None:
            metrics[f"{split}/oracle_share"] = area.share
    table = front_table(summary)
    return FrontPage(table.columns, table.rows, markdown(summary), front_figure(summary), metrics)
