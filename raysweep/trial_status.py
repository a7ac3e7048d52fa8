"""Trial statuses, shared by the search, the ledger, the Optuna study and the report."""

from enum import StrEnum


class TrialStatus(StrEnum):
    """Status of a trial, with the values that the ledger and the report use."""

    RUNNING = "running"
    PAUSED = "paused"  # paused with its checkpoint kept; may be resumed
    COMPLETED = "completed"  # reached its last rung
    STOPPED = "stopped"  # permanently: by early stopping, the trial's own rule, or lack of disk space
    INTERRUPTED = "interrupted"  # ended by a budget or the end of the search; continues when the run is resumed
    FAILED = "failed"
