"""Trackers fed while a sweep runs, each in its own thread, so that one that fails or hangs delays nothing."""

import contextlib
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
from raysweep.results.events import Event
from raysweep.results.ledger import events_of
from raysweep.results.reader import load
from raysweep.results.settings_file import read_settings
from raysweep.storage.folder import Folder
from raysweep.trackers.opening import Destination, check, openers
from raysweep.trackers.sweep_events import SweepEvents
from raysweep.trackers.tracker import Tracker

FINISH_SECONDS = 60.0  # the end of a sweep waits this long for a tracker without progress

Warn = Callable[[str], None]

_END = object()  # ends a tracker's thread


class Tracking:
    """The trackers of a run's session.

    :meth:`take` never blocks, and :meth:`finish` returns in bounded time, whatever the trackers do.
    """

    def __init__(self, config: TrackersConfig, run: Folder, sweep: str, warn: Warn) -> None:
        opened = openers(config, Destination(run, sweep))
        self._feeds = [_Feed(name, opener, run, warn) for name, opener in opened.items()]

    def take_all(self, events: Iterable[Event]) -> None:
        """Take the events of the run so far."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Take the next event."""
        for feed in self._feeds:
            feed.put(event)

    def finish(self) -> None:
        """Close the trackers with the current front and warn about those that do not finish."""
        for feed in self._feeds:
            feed.put(_END)
        for feed in self._feeds:
            feed.wait()


class _Feed:
    """One tracker and its thread. After an error it warns once and drops the tracker."""

    def __init__(self, name: str, opener: Callable[[], Tracker], run: Folder, warn: Warn) -> None:
        self._name, self._opener, self._run, self._warn = name, opener, run, warn
        self._waiting: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._moved_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def put(self, event: object) -> None:
        if self._thread.is_alive():
            self._waiting.put(event)

    def _work(self) -> None:
        try:
            events = SweepEvents(self._opener(), self._run)
            while (event := self._waiting.get()) is not _END:
                assert isinstance(event, Event)
                events.take(event)
                self._move()
            events.finish(self._move)
        except Exception as error:  # clients pass on any error of their layers
            self._warn(f"trackers: {self._name} is left out from now on: {_one_line(error)}; {self._hint}")

    def _move(self) -> None:
        self._moved_at = time.monotonic()

    @property
    def _hint(self) -> str:
        return f"later: raysweep track {self._run.location} --to {self._name}"

    def wait(self) -> None:
        """Wait until the thread ends or has made no progress for FINISH_SECONDS."""
        self._moved_at = time.monotonic()
        while self._thread.is_alive():
            left = self._moved_at + FINISH_SECONDS - time.monotonic()
            if left <= 0:
                self._warn(f"trackers: {self._name} does not come to an end and is left alone; {self._hint}")
                return
            self._thread.join(min(left, 0.5))


def fill(config: TrackersConfig, run: Folder) -> Sequence[str]:
    """Pass all events of a run's ledger to the trackers, in this thread, and return the trackers' names.

    Raises:
        InputError: If a tracker fails.
    """
    check(config, run.location)
    sweep = load(run).info.name
    opened = openers(config, Destination(run, sweep))
    for name, opener in opened.items():
        try:
            events = SweepEvents(opener(), run)
            for event in events_of(run):
                events.take(event)
            events.finish()
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{name}: {_one_line(error)}") from None
    return tuple(opened)


def _one_line(error: Exception) -> str:
    without_passwords = re.sub(r"://[^/\s@]*@", "://", " ".join(str(error).split()))
    return without_passwords[:300] or type(error).__name__


def settings(run: Folder, names: Sequence[str], given: Mapping[str, str]) -> TrackersConfig:
    """Return the settings of these trackers: those of the run's own file, updated with ``given``.

    Each given value applies to all of the trackers that have such a key.

    Raises:
        InputError: If a name is unknown, no tracker has a given key, or a value is invalid.
    """
    own = TrackersConfig()
    stored = read_settings(run, load(run)).get("trackers", {})
    with contextlib.suppress(ValidationError):
        own = TrackersConfig.model_validate(stored)
    values: dict[str, dict[str, Any]] = {}
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"--to is {name!r}; allowed: {', '.join(TRACKERS)}")
        before = getattr(own, name)
        values[name] = {} if before is None else before.model_dump()
    for key, value in given.items():
        takers = [name for name in values if key in SETTINGS[name]]
        if not takers:
            raise InputError(f"--{key} goes with none of {', '.join(names)}")
        for name in takers:
            values[name][key] = value
    try:
        return TrackersConfig.model_validate(values)
    except ValidationError as error:
        first: dict[str, Any] = dict(error.errors()[0])
        problem = explain(first, tuple(first["loc"]), TrackersConfig)
        raise InputError(join_key(f"--{first['loc'][-1]}", problem)) from None
