"""How a trial stands: one vocabulary for the search, the ledger, the Optuna study and the report."""

from enum import StrEnum


class TrialStatus(StrEnum):
    """The values are what the ledger and the report write."""

    RUNNING = "running"
    HELD = "held"  # stopped for now, with its checkpoint kept; it may be resumed
    COMPLETED = "completed"  # ran to its last rung
    STOPPED = "stopped"  # for good: by early stopping, by a rule of its own, or for want of disk
    INTERRUPTED = "interrupted"  # cut off by a budget or the end of the search; a resume goes on with it
    FAILED = "failed"
