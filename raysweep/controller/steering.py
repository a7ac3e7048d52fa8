"""User requests in effect in a running sweep."""

from dataclasses import dataclass, field

from raysweep.results.events import SweepSteered


@dataclass
class Steering:
    """The state set by a ledger's ``steer`` events. Requested configurations are stored in the scheduler."""

    # running time in seconds at which the sweep was paused; None if it is not paused
    paused_at: float | None = None
    workers: int | None = None  # maximum number of concurrent trials, if requested
    stopping: dict[int, str] = field(default_factory=dict)  # IDs of stop requests, keyed by trial
    requests: set[str] = field(default_factory=set)  # IDs of the requests executed so far

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    def was_paused_before(self, began: float | None) -> bool:
        """Return whether the sweep was paused before a rung began; False if the rung has not begun."""
        return self.paused_at is not None and began is not None and began > self.paused_at

    def take(self, event: SweepSteered) -> None:
        """Apply an event that is already in the ledger."""
        self.requests.add(event.request)
        match event.action:
            case "pause":
                self.paused_at = event.at or 0.0
            case "resume":
                self.paused_at = None
            case "workers":
                self.workers = event.workers
            case "stop-trial":
                assert event.trial is not None
                self.stopping[event.trial] = event.request
