"""How a trial's status looks in the report's tables and figures."""

from collections.abc import Mapping
from dataclasses import dataclass

from raysweep.trial_status import TrialStatus


@dataclass(frozen=True)
class StatusStyle:
    """``sign`` stands before the status in tables; ``marker`` is matplotlib's name of a marker that looks like it."""

    sign: str
    marker: str
    legend: str


STATUS_STYLES: Mapping[str, StatusStyle] = {
    TrialStatus.COMPLETED: StatusStyle("●", "o", "completed"),
    TrialStatus.STOPPED: StatusStyle("✕", "x", "stopped early"),
    TrialStatus.HELD: StatusStyle("■", "s", "held, may go on"),
    TrialStatus.INTERRUPTED: StatusStyle("▲", "^", "interrupted"),
    TrialStatus.FAILED: StatusStyle("✚", "P", "failed"),
    TrialStatus.RUNNING: StatusStyle("▶", ">", "running"),
}
"""Every status, in the order of legends."""


def with_sign(kind: str) -> str:
    """A status after its sign; any other kind of trial, such as ``replicates``, as it is."""
    if kind not in STATUS_STYLES:
        return kind
    return f"{STATUS_STYLES[kind].sign}\N{NO-BREAK SPACE}{kind}"
