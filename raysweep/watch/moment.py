"""A run at one moment: what its ledger holds, and whether a process is driving it."""

import shlex
from dataclasses import dataclass

from raysweep.control.command import no_driver
from raysweep.errors import InputError
from raysweep.results.events import Event, SessionStarted
from raysweep.results.ledger import NAME as LEDGER
from raysweep.results.ledger import GrowingLedger, events_of
from raysweep.results.reader import results_of
from raysweep.results.types import Results
from raysweep.storage.folder import Folder
from raysweep.storage.line_log import is_held


@dataclass(frozen=True)
class Moment:
    """``results`` are None where the sweep has not begun. ``seconds`` is how long it had run at its last event."""

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
    def ending(self) -> str:
        """What is to be said at last of a run that nothing drives: how it ended, and how it goes on."""
        results = self.results
        if results is None or self.is_live:
            return ""
        if results.status == "completed":
            return f"the sweep is completed; its report: raysweep report {shlex.quote(results.folder)}"
        return no_driver(results).removeprefix(f"{results.folder}: ")


def look(run: Folder, ledger: GrowingLedger) -> Moment:
    """The run as it is now. InputError where it is none, is damaged, or ended before it began."""
    has_driver = is_held(run, LEDGER)  # before the ledger is read: one without a driver says all there is then
    try:
        ledger.read()
    except FileNotFoundError:
        if has_driver:
            return Moment(None, has_driver)
        raise InputError(f"{run.location}: not a run folder (no ledger in it)") from None
    if has_driver is False:
        events_of(run)  # nothing writes it any more, so it has to hold all that other files of the run depend on
    events = ledger.events
    if has_driver and not any(isinstance(event, SessionStarted) for event in events):
        return Moment(None, has_driver)
    return Moment(results_of(events, run, has_driver), has_driver, _seconds(events))


def _seconds(events: list[Event]) -> float:
    return max((event.at for event in events if event.at is not None), default=0.0)
