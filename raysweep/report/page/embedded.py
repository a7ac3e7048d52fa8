"""JSON that can be embedded in a script element of an HTML page."""

import json
from typing import Any

# In addition to JSON's own escapes: `<` could end the element, and a lenient parser could take the others for markup.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def embedded_json(value: Any) -> str:
    """Return ``value`` as ASCII JSON without any ``<``.

    Raises:
        ValueError: If a number is not finite.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)
