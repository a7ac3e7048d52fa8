"""A figure as the page carries it, for readers without scripts: a tenth of the file's size, which is made for print."""

import io

MAX_WIDTH_PIXELS = 1400

NUM_COLOURS = 128


def smaller(png: bytes) -> bytes:
    """The same picture as a PNG of no more than ``MAX_WIDTH_PIXELS`` and ``NUM_COLOURS``."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as given:
        picture = given.convert("RGB")
    if picture.width > MAX_WIDTH_PIXELS:
        height = max(1, round(picture.height * MAX_WIDTH_PIXELS / picture.width))
        picture = picture.resize((MAX_WIDTH_PIXELS, height), Image.Resampling.LANCZOS)
    reduced = picture.quantize(NUM_COLOURS, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    reduced.save(buffer, format="png", optimize=True)
    return buffer.getvalue()
