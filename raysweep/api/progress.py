"""Progress events, and a display that passes them to a callback."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rich.console import RenderableType

from raysweep.output import escape_line
from raysweep.terminal import Display

MAX_REPR = 80  # maximum length of the text in a repr


@dataclass(frozen=True, repr=False)
class Progress:
    """A warning, or an event such as the end of a rung."""

    kind: Literal["event", "warning"]
    text: str

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.kind == "warning" else self.text

    def __repr__(self) -> str:
        line = escape_line(self.text)
        shown = line if len(line) <= MAX_REPR else f"{line[: MAX_REPR - 3]}..."
        return f"Progress({self.kind!r}, {shown!r})"


OnProgress = Callable[[Progress], None]


class CallbackDisplay(Display):
    """A display that passes events and warnings to a callback, if there is one."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress or (lambda progress: None)

    def line(self, text: str) -> None:
        self._on_progress(Progress("event", text))

    def warn(self, text: str) -> None:
        self._on_progress(Progress("warning", text))

    def status(self, text: str, fraction: float = 0.0, view: RenderableType | None = None) -> None:
        """Ignore the status, because a callback such as ``print`` would show every update."""
