"""How a trial stands, and how that looks in the report's tables and figures."""

from collections.abc import Mapping
from dataclasses import dataclass

from raysweep.results.types import Trial
from raysweep.trial_status import TrialStatus

STOPPED_BY_A_PERSON = "stopped by a person"  # and not by early stopping, as others that are stopped


@dataclass(frozen=True)
class StatusStyle:
    """``sign`` stands before the status in tables; ``marker`` is matplotlib's name of a marker that looks like it."""

    sign: str
    marker: str
    legend: str


STATUS_STYLES: Mapping[str, StatusStyle] = {
    TrialStatus.COMPLETED: StatusStyle("●", "o", "completed"),
    TrialStatus.STOPPED: StatusStyle("▼", "v", "stopped early"),
    STOPPED_BY_A_PERSON: StatusStyle("◀", "<", STOPPED_BY_A_PERSON),
    TrialStatus.HELD: StatusStyle("■", "s", "held, may go on"),
    TrialStatus.INTERRUPTED: StatusStyle("▲", "^", "interrupted"),
    TrialStatus.FAILED: StatusStyle("✕", "x", "failed"),
    TrialStatus.RUNNING: StatusStyle("▶", ">", "running"),
}
"""Everything that :func:`standing` gives, in the order of legends."""


def standing(trial: Trial) -> str:
    """The trial's status, or who stopped it where that was a person."""
    is_by_person = trial.stop_was_asked and trial.status == TrialStatus.STOPPED
    return STOPPED_BY_A_PERSON if is_by_person else trial.status


def with_sign(kind: str) -> str:
    """How a trial stands after its sign; any other kind of trial, such as ``replicates``, as it is."""
    if kind not in STATUS_STYLES:
        return kind
    return f"{STATUS_STYLES[kind].sign}\N{NO-BREAK SPACE}{kind}"
