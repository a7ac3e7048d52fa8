"""What a run was made from, as its folder says: the whole configuration, and the names of what it read."""

import json
import re
from dataclasses import dataclass
from typing import Any

from raysweep.storage.folder import Folder

MAX_CHARACTERS = 200_000  # of a configuration; somebody may have put anything there

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")  # of a URI, which a page that is passed on must not have


@dataclass(frozen=True)
class Origin:
    """``configuration`` as YAML, empty where the run has none; ``identities`` by what they are of."""

    configuration: str = ""
    identities: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, run: Folder) -> "Origin":
        """What there is: a damaged run may lack either."""
        return cls(_configuration(run), _identities(run))


def _configuration(run: Folder) -> str:
    text = _text(run, "config.yaml")
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS] + "\n…"
    return _CREDENTIALS.sub("…@", text)


def _identities(run: Folder) -> tuple[tuple[str, str], ...]:
    """Of the data and the encoders: names of artifacts hash the data, the encoder's weights and the parameters."""
    try:
        prepared = json.loads(_text(run, "prepared.json"))
    except (ValueError, RecursionError):
        return ()
    if not isinstance(prepared, dict):
        return ()
    named: dict[str, Any] = {
        "data (sentences and splits)": prepared.get("sentences"),
        "tokens": prepared.get("tokens"),
        "reference embeddings": prepared.get("reference_embeddings"),
        "model": prepared.get("model_identity"),
        "reference encoder R": prepared.get("reference_identity"),
    }
    examples = prepared.get("examples")
    if isinstance(examples, dict):
        named |= {f"examples, {kind}": name for kind, name in examples.items()}
    return tuple((name, value) for name, value in named.items() if isinstance(value, str))


def _text(run: Folder, name: str) -> str:
    """The content of a small file, empty where it is not there or cannot be read."""
    try:
        (content,) = run.read([name])
    except OSError:
        return ""
    return content.decode("utf-8", errors="replace")
