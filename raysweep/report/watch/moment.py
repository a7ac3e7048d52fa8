"""Snapshots of a run: its results, and whether it has a driver."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from raysweep.control.command import explain_missing_driver
from raysweep.results.commands import format_command
from raysweep.results.events import Event, SessionStarted
from raysweep.results.ledger import NAME as LEDGER
from raysweep.results.ledger import GrowingLedger, ledger_location, load_events
from raysweep.results.reader import build_results, no_run
from raysweep.results.types import Results
from raysweep.storage.folder import Folder, LocalFolder
from raysweep.storage.line_log import is_held


@dataclass(frozen=True)
class Moment:
    """A snapshot of a run."""

    results: Results | None  # None before the sweep starts
    has_driver: bool | None  # None if unknown
    seconds: float = 0.0  # approximate running time

    @property
    def is_live(self) -> bool:
        """Whether more results may follow."""
        if self.has_driver is None:
            return self.results is None or self.results.status == "running"
        return self.has_driver

    @property
    def state(self) -> str:
        if self.results is None:
            return "starting"
        if self.results.status != "running":
            return "resuming" if self.has_driver else self.results.status
        if not self.is_live:
            return "killed"
        return "paused" if self.results.is_paused else "running"

    @property
    def stage(self) -> str:
        """The progress of the current stage after the search, or an empty string."""
        stage = None if self.results is None or not self.is_live else self.results.stage
        if stage is None:
            return ""
        work = {
            "test": "rungs of the front scored",
            "watch": "trials measured on watched data",
            "guards": "scores of the front measured",
        }[stage.name]
        return f"{stage.name}: {stage.num_done} of {stage.count} {work}"

    @property
    def ending(self) -> str:
        """How the run ended and how to resume it, or an empty string if it is live."""
        results = self.results
        if results is None or self.is_live:
            return ""
        if results.status == "completed":
            return f"the sweep has completed; report: {format_command('report', results.folder)}"
        return explain_missing_driver(results).removeprefix(f"{results.folder}: ")


@dataclass
class Clock:
    """Extrapolates a sweep's running time from its last event with a local clock.

    ``first_age`` is the age of the last event in seconds when the ledger is first read.
    """

    now: Callable[[], float] = time.monotonic
    first_age: float = 0.0
    # sweep time of the last timed event, in seconds
    _at: float = field(default=-1.0, init=False)
    # value of ``now()`` when that event was first seen
    _seen_at: float = field(default=0.0, init=False)

    def seconds(self, events: list[Event], *, is_running: bool) -> float:
        """Return the sweep's running time in seconds, which ends at the last event if it is not running."""
        at = max((event.at for event in events if event.at is not None), default=0.0)
        now = self.now()
        if at != self._at or not is_running:
            is_first = self._at < 0 and is_running
            self._at = at
            self._seen_at = now - self.first_age if is_first else now
        return at + now - self._seen_at


def ledger_age(run: Folder) -> float:
    """Return the seconds since a local ledger was last written, or 0 if the ledger is remote or missing."""
    if not isinstance(run, LocalFolder):
        return 0.0
    try:
        written_at = Path(ledger_location(run)).stat().st_mtime
    except OSError:
        return 0.0
    return max(0.0, time.time() - written_at)


def look(run: Folder, ledger: GrowingLedger, clock: Clock) -> Moment:
    """Return the current state of a run.

    Raises:
        InputError: If the run does not exist, is damaged, or ended before the sweep started.
    """
    # Check the driver first: without one, the ledger that is read afterwards is final.
    has_driver = is_held(run, LEDGER)
    try:
        ledger.read()
    except FileNotFoundError:
        if has_driver:
            return Moment(None, has_driver)
        raise no_run(run) from None
    if has_driver is False:
        # The ledger is final, so reject it if it has lost events.
        load_events(run)
    events = ledger.events
    has_started = any(isinstance(event, SessionStarted) for event in events)
    if has_driver and not has_started:
        return Moment(None, has_driver)
    results = build_results(events, run, has_driver)
    is_clock_stopped = results.is_paused or (
        results.stage is not None and results.stage.name == "guards"
    )
    is_running = has_driver is True and results.status == "running" and not is_clock_stopped
    seconds = clock.seconds(events, is_running=is_running)
    return Moment(results, has_driver, seconds)


def changes(
    run: Folder, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Moment]:
    """Check a run every ``seconds`` seconds and yield each change until its driver exits.

    Nothing is yielded before the first session starts.

    Raises:
        InputError: If the run does not exist or is damaged.
    """
    ledger, clock = GrowingLedger(run), Clock()
    last = None
    while True:
        moment = look(run, ledger, clock)
        if not moment.is_live:
            return
        if moment.results is not None and moment.results != last:
            last = moment.results
            yield moment
        sleep(seconds)
