"""Text of users as a page may show it: what would be invisible, or would turn its surroundings round, is made visible."""

import re
from html import escape as _escape

_CONTROL_PICTURES = 0x2400  # Unicode's block of pictures of the control characters, in their order

_DELETE, _DELETE_PICTURE = 0x7F, 0x2421

# Overrides and isolates: they reorder the text after them. Marks (U+200E, U+200F) only hint, and stay.
_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))

_SEPARATORS = (0x2028, 0x2029)  # end a line in some readers and not in others

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no encoding has


def _replacements() -> dict[int, str]:
    kept = (ord("\t"), ord("\n"), ord("\r"))
    controls = {code: chr(_CONTROL_PICTURES + code) for code in range(0x20) if code not in kept}
    named = {code: f"[U+{code:04X}]" for code in (*_REORDERING, *_SEPARATORS)}
    return {**controls, _DELETE: chr(_DELETE_PICTURE), **named}


_REPLACEMENTS = _replacements()


def visible(text: str) -> str:
    """The text with every control character as its picture, and every reordering one by its code point.

    Tabs and ends of lines stay as they are. Half a surrogate pair becomes U+FFFD.
    """
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text.translate(_REPLACEMENTS))


def escape(text: str) -> str:
    """The visible text as HTML, within an element or an attribute."""
    return _escape(visible(text))
