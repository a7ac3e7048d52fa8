"""Pictures for tests that do not look at them."""

import io

from PIL import Image


def blank_png(width: int = 1) -> bytes:
    """A white picture, a pixel high."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, 1), "white").save(buffer, format="png")
    return buffer.getvalue()
