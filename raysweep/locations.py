"""Where a sweep's file may point: sources, folders and encoders, made absolute as the file is read."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def _absolute_source(source: str) -> str:
    """Workers have working folders of their own, so a relative path would mean another file there."""
    if source == "demo" or source.startswith("hub:") or "://" in source:
        return source
    return str(Path(source).expanduser().absolute())


def absolute_model(name: str) -> str:
    if not name:
        raise ValueError("must name an encoder: demo, a folder, or a name on the hub; it is empty")
    folder = Path(name).expanduser()
    return str(folder.absolute()) if name != "demo" and folder.is_dir() else name


def _local(folder: Path) -> Path:
    if "://" in str(folder) or ":/" in str(folder):
        raise ValueError(f"must be a folder that every node sees, not the URI {str(folder)!r}")
    return folder.expanduser().absolute()


Source = Annotated[str, AfterValidator(_absolute_source)]
Folder = Annotated[Path, AfterValidator(_local)]
