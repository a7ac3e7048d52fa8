"""A run's configuration and the fingerprints of its inputs."""

import json
import re
from dataclasses import dataclass
from typing import Any

from raysweep.storage.folder import Folder

# Pages may be shared, so they contain neither URI credentials nor local folders.
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_FOLDERS = re.compile(r"""(?<=[:-] |.["'])(?:~|[A-Za-z]:)?[/\\][^"'\n]*[/\\]""")


@dataclass(frozen=True)
class Origin:
    """A run's ``configuration`` in YAML and the ``identities`` of its inputs as (name, fingerprint) pairs."""

    configuration: str = ""
    identities: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, run: Folder) -> "Origin":
        """Read the origin of a run; missing files are ignored."""
        configuration = _read_text(run, "config.yaml")
        return cls(hide_places(configuration), _read_identities(run))


def hide_places(text: str) -> str:
    """Replace URI credentials and the folders of absolute local paths with ``…``."""
    return _FOLDERS.sub("…/", _CREDENTIALS.sub("…@", text))


def _read_identities(run: Folder) -> tuple[tuple[str, str], ...]:
    """Return the fingerprints of the data and the encoders."""
    try:
        prepared = json.loads(_read_text(run, "prepared.json"))
    except (ValueError, RecursionError):
        return ()
    if not isinstance(prepared, dict):
        return ()
    fingerprints: dict[str, Any] = {
        "data (sentences and splits)": prepared.get("sentences"),
        "tokens": prepared.get("tokens"),
        "reference embeddings": prepared.get("reference_embeddings"),
        "model": prepared.get("model_identity"),
        "reference encoder R": prepared.get("reference_identity"),
    }
    examples = prepared.get("examples")
    if isinstance(examples, dict):
        fingerprints |= {f"examples, {kind}": artifact for kind, artifact in examples.items()}
    return tuple((name, value) for name, value in fingerprints.items() if isinstance(value, str))


def _read_text(run: Folder, name: str) -> str:
    """Return the content of a small file; empty if it is missing or unreadable."""
    try:
        (content,) = run.read([name])
    except OSError:
        return ""
    return content.decode("utf-8", errors="replace")
