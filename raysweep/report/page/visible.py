"""User text made safe to display: invisible characters and those that reorder their surroundings become visible."""

import re
from html import escape as _escape

_CONTROL_PICTURES = 0x2400  # Unicode block of control pictures, in the order of the control characters

_DELETE, _DELETE_PICTURE = 0x7F, 0x2421

# Overrides and isolates reorder the text after them. Marks (U+200E, U+200F) are only hints and are kept.
_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))

_SEPARATORS = (0x2028, 0x2029)  # end a line in some viewers only

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which cannot be encoded


def _replacements() -> dict[int, str]:
    kept = (ord("\t"), ord("\n"), ord("\r"))
    controls = {code: chr(_CONTROL_PICTURES + code) for code in range(0x20) if code not in kept}
    named = {code: f"[U+{code:04X}]" for code in (*_REORDERING, *_SEPARATORS)}
    return {**controls, _DELETE: chr(_DELETE_PICTURE), **named}


_REPLACEMENTS = _replacements()


def visible(text: str) -> str:
    """Replace control characters with their pictures, and reordering characters with their code points.

    Tabs and line ends are kept. Half a surrogate pair becomes U+FFFD.
    """
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text.translate(_REPLACEMENTS))


def escape(text: str) -> str:
    """Return the visible text escaped for HTML elements and attributes."""
    return _escape(visible(text))
