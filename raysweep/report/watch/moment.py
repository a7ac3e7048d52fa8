"""A run at one moment: what its ledger holds, and whether a process is driving it."""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from raysweep.control.command import no_driver
from raysweep.results.events import Event, SessionStarted
from raysweep.results.ledger import NAME as LEDGER
from raysweep.results.ledger import GrowingLedger, events_of
from raysweep.results.reader import no_run, results_of
from raysweep.results.types import Results
from raysweep.storage.folder import Folder
from raysweep.storage.line_log import is_held


@dataclass(frozen=True)
class Moment:
    """``results`` are None where the sweep has not begun. ``seconds`` is how long it has run, as far as a look tells."""

    results: Results | None
    has_driver: bool | None  # None where that cannot be told
    seconds: float = 0.0

    @property
    def is_live(self) -> bool:
        """Whether there may be more to come."""
        if self.has_driver is None:
            return self.results is None or self.results.status == "running"
        return self.has_driver

    @property
    def state(self) -> str:
        """How the sweep stands, in a word."""
        if self.results is None:
            return "beginning"
        if self.results.status != "running":
            return "resuming" if self.has_driver else self.results.status
        if not self.is_live:
            return "killed"
        return "paused" if self.results.is_paused else "running"

    @property
    def stage(self) -> str:
        """How far a sweep is that scores its front after the search; empty for others."""
        stage = None if self.results is None or not self.is_live else self.results.stage
        if stage is None:
            return ""
        counted = "rungs of the front scored" if stage.name == "test" else "scores of the front measured"
        return f"{stage.name}: {stage.num_done} of {stage.count} {counted}"

    @property
    def ending(self) -> str:
        """What is to be said at last of a run that nothing drives: how it ended, and how it goes on."""
        results = self.results
        if results is None or self.is_live:
            return ""
        if results.status == "completed":
            return f"the sweep is completed; its report: raysweep report {shlex.quote(results.folder)}"
        return no_driver(results).removeprefix(f"{results.folder}: ")


@dataclass
class Clock:
    """How long a sweep has run, between its events too: its events have its own clock, this one goes on from there."""

    now: Callable[[], float] = time.monotonic
    _at: float = field(default=-1.0, init=False)  # of the last event that has a time, in seconds of the sweep
    _seen_at: float = field(default=0.0, init=False)  # when that was seen first, by ``now``

    def seconds(self, events: list[Event], *, is_going: bool) -> float:
        """Of a sweep with these events, that goes on or stands still: the latter's clock shows its last event."""
        at = max((event.at for event in events if event.at is not None), default=0.0)
        now = self.now()
        if at != self._at or not is_going:
            self._at, self._seen_at = at, now
        return at + now - self._seen_at


def look(run: Folder, ledger: GrowingLedger, clock: Clock) -> Moment:
    """The run as it is now. InputError where it is none, is damaged, or ended before it began."""
    has_driver = is_held(run, LEDGER)  # before the ledger is read: one without a driver says all there is then
    try:
        ledger.read()
    except FileNotFoundError:
        if has_driver:
            return Moment(None, has_driver)
        raise no_run(run) from None
    if has_driver is False:
        events_of(run)  # nothing writes it any more, so it has to hold all that other files of the run depend on
    events = ledger.events
    if has_driver and not any(isinstance(event, SessionStarted) for event in events):
        return Moment(None, has_driver)
    results = results_of(events, run, has_driver)
    is_off_the_clock = results.is_paused or (results.stage is not None and results.stage.name == "guards")
    is_going = has_driver is True and results.status == "running" and not is_off_the_clock
    return Moment(results, has_driver, clock.seconds(events, is_going=is_going))
