"""Passes a run's events to its trackers, during the sweep or afterwards.

During the sweep, each tracker has its own thread, so that a slow tracker does not block the sweep.
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
from raysweep.results.commands import format_command
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

MAX_CHARACTERS = 1000  # longer error messages are truncated
FINISH_SECONDS = 60.0  # a tracker without progress for this long is abandoned at the end of a sweep

Warn = Callable[[str], None]


class Tracking:
    """The trackers for one session of a run.

    :meth:`take` never blocks. :meth:`finish` abandons trackers that hang.
    """

    def __init__(self, config: TrackersConfig, run: Folder, sweep: str, warn: Warn) -> None:
        openers = tracker_openers(config, Destination(run, sweep))
        self._feeds = [_Feed(name, opener, run, warn) for name, opener in openers.items()]

    def take_all(self, events: Iterable[Event]) -> None:
        """Pass the run's existing events to all trackers."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Pass the next event to all trackers."""
        for feed in self._feeds:
            feed.put(event)

    def finish(self) -> None:
        """Log the current front, close the trackers, and warn about trackers that do not finish."""
        for feed in self._feeds:
            feed.put(None)
        for feed in self._feeds:
            feed.wait()


class _Feed:
    """A tracker and its thread. A tracker that fails is disabled with a warning."""

    def __init__(self, name: str, opener: Callable[[], Tracker], run: Folder, warn: Warn) -> None:
        self._name, self._opener, self._run, self._warn = name, opener, run, warn
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._progress_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def put(self, event: Event | None) -> None:
        """Queue the next event; None closes the tracker."""
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
        except Exception as error:  # clients may raise any type of error
            self._warn(f"trackers: {self._name} disabled (error={_one_line(error)}); {self._hint}")

    def _note_progress(self) -> None:
        self._progress_at = time.monotonic()

    @property
    def _hint(self) -> str:
        return f"to track the run later: {format_command('track', self._run.location, '--to', self._name)}"

    def wait(self) -> None:
        """Wait until the thread ends or makes no progress for FINISH_SECONDS."""
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
    """Pass all events in a run's ledger to the trackers, and return the trackers' names.

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
    return without_passwords[:MAX_CHARACTERS] or type(error).__name__


def merge_settings(run: Folder, names: Sequence[str], options: Mapping[str, str]) -> TrackersConfig:
    """Return the named trackers' settings that are stored with the run, updated with ``options``.

    Each option applies to every named tracker that has a setting with its key.

    Raises:
        InputError: If a name is unknown, an option's key belongs to none of the named trackers, or a value is invalid.
    """
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"--to is {name!r}; allowed: {', '.join(TRACKERS)}")
    settings = read_settings(run, load(run))
    try:
        stored = TrackersConfig.model_validate(settings.get("trackers", {}))
    except ValidationError:  # the run has a list of names instead of settings
        stored = TrackersConfig()
    values: dict[str, dict[str, Any]] = {}
    for name in names:
        config = getattr(stored, name)
        values[name] = {} if config is None else config.model_dump()
    for key, value in options.items():
        receivers = [name for name in values if key in SETTINGS[name]]
        if not receivers:
            keys = itertools.chain.from_iterable(SETTINGS[name] for name in names)
            allowed = ", ".join(dict.fromkeys(keys))
            raise InputError(f"--{key}: unknown setting for {', '.join(names)}; allowed: {allowed}")
        for name in receivers:
            values[name][key] = value
    try:
        return TrackersConfig.model_validate(values)
    except ValidationError as error:
        first: dict[str, Any] = dict(error.errors()[0])
        path = tuple(first["loc"])
        problem = explain(first, path, TrackersConfig)
        raise InputError(join_key(f"--{path[-1]}", problem)) from None


class SweepEvents:
    """Passes a run's events to a tracker."""

    def __init__(self, tracker: Tracker, run: Folder) -> None:
        self._tracker = tracker
        self._run = run
        self._trials: dict[int, TrackedTrial] = {}
        self._info: RunInfo | None = None
        self._references: dict[ScoredSplit, Point] = {}

    def take(self, event: Event) -> None:
        """Pass the next event to the tracker."""
        match event:
            case SessionStarted():
                self._info = event.info
            case PointsScored():
                for point in event.points:
                    if point.kind == "reference":
                        self._references[point.split] = point
            case TrialStarted():
                self._trials[event.trial] = TrackedTrial(
                    event.trial, event.config, event.replicate_of
                )
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
        """Return the metrics of the rung, its best point, and the tuned encoder's own point."""
        metrics = {
            "loss": rung.loss,
            "examples_seen": float(rung.examples_seen),
            "seconds": rung.seconds,
        }
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
        """Log the current front and, if the sweep has ended, its status; then close the tracker.

        ``on_progress`` is called after each trial is closed.
        """
        try:
            summary = summary_of(self._run)
            if summary.members:
                self._tracker.log_front(_front_page(summary))
            results = summary.results
            if results.status != "running":
                self._tracker.log_end(results.status, results.reason)
        finally:
            for trial in self._trials.values():
                self._tracker.close_trial(trial)
                on_progress()
            self._tracker.close()


def _scores(point: Point) -> dict[str, float]:
    return {name: score.mean for name, score in point.scores.items() if name != "accuracy"}


def _front_page(summary: Summary) -> FrontPage:
    """Return the front. Its hypervolumes are computed from scores in [0, 1]."""
    metrics = {"members": float(len(summary.members))}
    for split, area in summary.areas.items():
        metrics[f"{split}/hypervolume"] = area.front
        if area.share is not None:
            metrics[f"{split}/oracle_share"] = area.share
    table = front_table(summary)
    return FrontPage(table.columns, table.rows, markdown(summary), front_figure(summary), metrics)
