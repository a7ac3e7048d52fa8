"""What a test's code has flushed to the disk."""

import os
from pathlib import Path

import pytest


def note_flushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of files and folders that are flushed from now on, as they are called at that moment; none is flushed."""
    flushed: list[str] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append(str(path))

    monkeypatch.setattr(os, "fsync", note)
    return flushed
