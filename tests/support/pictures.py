"""Dummy pictures."""

import io

from PIL import Image


def blank_png(width: int = 1) -> bytes:
    """Return a white picture, one pixel high."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, 1), "white").save(buffer, format="png")
    return buffer.getvalue()
