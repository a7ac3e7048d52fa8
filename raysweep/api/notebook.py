"""A progress display for Jupyter notebooks."""

import contextlib
import html
import io
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from rich.console import Console, RenderableType

from raysweep.api.progress import CallbackDisplay, OnProgress
from raysweep.output import escape_controls
from raysweep.terminal import Display

MAX_LINES = 5  # only the latest events are shown
WIDTH = 100
HEIGHT = 16  # lines for the status
SECONDS_BETWEEN_STATUSES = 1.0


def is_in_notebook() -> bool:
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return hasattr(shell, "kernel")  # IPython in a terminal has no kernel


def make_display(on_progress: OnProgress | None) -> Display:
    """Return a display that calls ``on_progress`` or, if it is None, the default display."""
    return (
        NotebookDisplay()
        if on_progress is None and is_in_notebook()
        else CallbackDisplay(on_progress)
    )


class NotebookDisplay(Display):
    """A display of warnings, recent events and the status in the output of a notebook cell."""

    def __init__(self) -> None:
        self._warnings: list[str] = []
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._status = ""
        self._status_at = -SECONDS_BETWEEN_STATUSES
        self._handle: Any = None

    def line(self, text: str) -> None:
        self._lines.append(text)
        self._show()

    def warn(self, text: str) -> None:
        self._warnings.append(f"warning: {text}")
        self._show()

    def status(self, text: str, fraction: float = 0.0, view: RenderableType | None = None) -> None:
        now = time.monotonic()
        if now - self._status_at >= SECONDS_BETWEEN_STATUSES:
            self._status_at = now
            console = Console(
                file=io.StringIO(),
                width=WIDTH,
                height=HEIGHT,
                color_system=None,
                force_jupyter=False,  # keep rich from displaying the output a second time
                record=True,
            )
            console.print(
                text if view is None else view, markup=False, emoji=False, highlight=False
            )
            self._status = console.export_text().rstrip()
            self._show()

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Remove the status when the context exits."""
        try:
            yield
        finally:
            self._status = ""
            self._show()

    def _show(self) -> None:
        text = escape_controls("\n".join([*self._warnings, *self._lines, self._status]).rstrip())
        escaped = html.escape(text)
        data = {
            "text/plain": text,
            "text/html": f'<pre style="white-space: pre-wrap">{escaped}</pre>',
        }
        if self._handle is None:
            from IPython.display import display

            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
