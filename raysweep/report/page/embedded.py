"""Values as JSON that an HTML page can carry inside a script element."""

import json
from typing import Any

# Beyond what JSON escapes: `<` could end the element, and the others are markup to a reader that takes it for HTML.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def embedded_json(value: Any) -> str:
    """``value`` as JSON in ASCII, without any ``<``. ValueError where a number is not finite."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)
