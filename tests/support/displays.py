"""A display that keeps what it is told, as a script or a notebook may have one."""

from raysweep.terminal import Display


class ListDisplay(Display):
    """Keeps lines, and of the status its texts and fractions."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.statuses: list[tuple[str, float]] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def status(self, text: str, fraction: float = 0.0) -> None:
        self.statuses.append((text, fraction))
