"""How trial statuses appear in the report's tables and figures."""

from collections.abc import Mapping
from dataclasses import dataclass

from raysweep.results.types import Trial, TrialStatus

STOPPED_BY_A_PERSON = "stopped by a person"


@dataclass(frozen=True)
class StatusStyle:
    """A status's sign in tables, its matplotlib marker and its legend text."""

    sign: str
    marker: str
    legend: str


STATUS_STYLES: Mapping[str, StatusStyle] = {
    TrialStatus.COMPLETED: StatusStyle("●", "o", "completed"),
    TrialStatus.STOPPED: StatusStyle("▼", "v", "stopped early"),
    STOPPED_BY_A_PERSON: StatusStyle("◀", "<", STOPPED_BY_A_PERSON),
    TrialStatus.PAUSED: StatusStyle("■", "s", "paused, may resume"),
    TrialStatus.INTERRUPTED: StatusStyle("▲", "^", "interrupted"),
    TrialStatus.FAILED: StatusStyle("✕", "x", "failed"),
    TrialStatus.RUNNING: StatusStyle("▶", ">", "running"),
}
"""The style for each value that :func:`standing` returns, in legend order."""


def standing(trial: Trial) -> str:
    """Return the trial's status, or ``STOPPED_BY_A_PERSON`` if a user stopped it."""
    is_by_person = trial.stop_was_requested and trial.status == TrialStatus.STOPPED
    return STOPPED_BY_A_PERSON if is_by_person else trial.status


def with_sign(kind: str) -> str:
    """Prefix a status with its sign; return other kinds, such as ``replicates``, unchanged."""
    if kind not in STATUS_STYLES:
        return kind
    return f"{STATUS_STYLES[kind].sign}\N{NO-BREAK SPACE}{kind}"
