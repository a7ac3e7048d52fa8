"""Progress of long-running work, reported to a callback in scripts and notebooks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from raysweep.terminal import Display

SECONDS_BETWEEN_STATUSES = 2.0  # limits the output from callbacks that print


@dataclass(frozen=True)
class Progress:
    """A message about long-running work; ``print`` shows its text.

    ``kind`` is ``line`` for an event, ``warning`` for a warning, or ``status`` for the current state, which holds until
    the next status. ``fraction`` is the share of the work that has started, in [0, 1], or 0 if unknown.
    """

    kind: Literal["line", "warning", "status"]
    text: str
    fraction: float = 0.0

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.kind == "warning" else self.text


OnProgress = Callable[[Progress], None]


class CallbackDisplay(Display):
    """A display that passes everything to a callback, or is silent without one."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress or (lambda progress: None)
        self._last_status = -SECONDS_BETWEEN_STATUSES

    def line(self, text: str) -> None:
        self._on_progress(Progress("line", text))

    def warn(self, text: str) -> None:
        self._on_progress(Progress("warning", text))

    def status(self, text: str, fraction: float = 0.0) -> None:
        now = time.monotonic()
        if now - self._last_status >= SECONDS_BETWEEN_STATUSES:
            self._last_status = now
            self._on_progress(Progress("status", text, fraction))
