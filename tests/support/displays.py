"""A display that records its calls, such as a script or notebook might use."""

from rich.console import RenderableType

from raysweep.terminal import Display


class ListDisplay(Display):
    """Records lines, and the texts and fractions of the status."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.statuses: list[tuple[str, float]] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def status(self, text: str, fraction: float = 0.0, view: RenderableType | None = None) -> None:
        self.statuses.append((text, fraction))
