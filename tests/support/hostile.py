"""Hostile file content, and a canary that shows whether any of it ran."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.command_line import Done


class _TouchesWhenLoaded:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (str(self.path), "w")


@dataclass(frozen=True)
class Canary:
    """A file that exists once hostile code has run, and a folder whose content must not change.

    ``folder`` is outside of everything that is passed to raysweep, and has ``precious.txt`` and ``inner/precious.txt``.
    """

    path: Path
    folder: Path

    @classmethod
    def make(cls, place: Path) -> "Canary":
        folder = place / "outside"
        (folder / "inner").mkdir(parents=True)
        for file in (folder / "precious.txt", folder / "inner" / "precious.txt"):
            file.write_text("precious")
        return cls(place / "canary", folder)

    @property
    def object(self) -> Any:
        """Return an object whose pickle touches the canary."""
        return _TouchesWhenLoaded(self.path)

    @property
    def pickle(self) -> bytes:
        """Return a pickle that touches the canary."""
        return pickle.dumps(self.object)

    @property
    def source(self) -> str:
        """Return Python code that touches the canary."""
        return f"open({str(self.path)!r}, 'w').close()\n"

    @property
    def yaml(self) -> str:
        """Return a YAML value that touches the canary if Python objects are constructed."""
        return f"!!python/object/apply:builtins.open [{str(self.path)!r}, w]"

    @property
    def is_touched(self) -> bool:
        return self.path.exists()

    def check(self) -> None:
        """Check that nothing ran and that the folder is unchanged."""
        assert not self.path.exists(), "hostile code ran"
        names = {file.relative_to(self.folder).as_posix() for file in self.folder.rglob("*")}
        assert names == {"precious.txt", "inner", "inner/precious.txt"}
        for name in ("precious.txt", "inner/precious.txt"):
            assert (self.folder / name).read_text() == "precious"


def check_rejected(done: Done, *expected: str) -> None:
    """Check that the command ended with exit code 2 and one clear line that contains the expected texts."""
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert len(line) < 1000
    assert "Traceback" not in line
    missing = [text for text in expected if text not in line]
    assert not missing, f"{line!r} lacks {missing}"
