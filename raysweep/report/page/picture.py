"""A smaller version of a figure, which is made for print, for readers without scripts: a tenth of the file size."""

import io

MAX_WIDTH_PIXELS = 1400

NUM_COLORS = 128


def smaller(png: bytes) -> bytes:
    """Reduce a PNG to at most ``MAX_WIDTH_PIXELS`` and ``NUM_COLORS``."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as given:
        picture = given.convert("RGB")
    if picture.width > MAX_WIDTH_PIXELS:
        height = max(1, round(picture.height * MAX_WIDTH_PIXELS / picture.width))
        picture = picture.resize((MAX_WIDTH_PIXELS, height), Image.Resampling.LANCZOS)
    reduced = picture.quantize(NUM_COLORS, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    reduced.save(buffer, format="png", optimize=True)
    return buffer.getvalue()
