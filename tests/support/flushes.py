"""Records which paths are flushed to disk."""

import os
from pathlib import Path

import pytest


def note_flushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Yield a list of the paths that are flushed from now on, by their names at that moment; nothing is actually flushed."""
    flushed: list[str] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append(str(path))

    monkeypatch.setattr(os, "fsync", note)
    return flushed
