"""Folders that only their owner can read, for data and model weights."""

from pathlib import Path

OWNER_ONLY = 0o700


def make_private(folder: Path) -> None:
    """Create a folder and any missing parents, readable only by their owner.

    Existing folders keep their permissions. Raises OSError, as ``Path.mkdir`` does.
    """
    if folder.is_dir():
        return
    make_private(folder.parent)
    folder.mkdir(mode=OWNER_ONLY, exist_ok=True)
