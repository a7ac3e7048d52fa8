"""What a person would see on a terminal."""

import io

from rich.console import Console, RenderableType


def printed(thing: RenderableType, width: int = 400) -> str:
    """The text that rich prints, ``width`` columns wide."""
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(thing)
    return capture.get()
