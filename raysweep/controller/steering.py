"""What people have asked of a sweep while it ran, as far as it still matters."""

from dataclasses import dataclass, field

from raysweep.results.events import SweepSteered


@dataclass
class Steering:
    """What the ``steer`` events of a ledger amount to, but for the configurations to try, which the scheduler has."""

    paused_at: float | None = None  # in seconds that the sweep had run; None where it is not paused
    workers: int | None = None  # most trials at a time; None where nobody has said so
    stopping: dict[int, str] = field(default_factory=dict)  # trials that are to stop, with the request that said so
    requests: set[str] = field(default_factory=set)  # those that were acted on, by identity

    @property
    def is_paused(self) -> bool:
        """Whether no trial is begun, and those that run end their rung."""
        return self.paused_at is not None

    def take(self, event: SweepSteered) -> None:
        """Let an event that is in the ledger count."""
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
