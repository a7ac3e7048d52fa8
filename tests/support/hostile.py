"""What an attacker would put into a file, and the canary by which it shows that some of it ran."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.command_line import Done


class _TouchesWhenLoaded:
    """An object whose pickle makes a file as it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (str(self.path), "w")


@dataclass(frozen=True)
class Canary:
    """A file that is there once hostile code has run, and a folder of which nothing may go or change.

    ``folder`` lies outside of all that is given to raysweep, and has ``precious.txt`` and ``inner/precious.txt``.
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
        """An object whose pickle touches it."""
        return _TouchesWhenLoaded(self.path)

    @property
    def pickle(self) -> bytes:
        """A pickle that touches it."""
        return pickle.dumps(self.object)

    @property
    def source(self) -> str:
        """Python that touches it."""
        return f"open({str(self.path)!r}, 'w').close()\n"

    @property
    def yaml(self) -> str:
        """A value of YAML that touches it where objects of Python are made."""
        return f"!!python/object/apply:builtins.open [{str(self.path)!r}, w]"

    @property
    def is_touched(self) -> bool:
        return self.path.exists()

    def check(self) -> None:
        """Nothing has run, and nothing outside is gone, changed or new."""
        assert not self.path.exists(), "hostile code ran"
        found = {file.relative_to(self.folder).as_posix() for file in self.folder.rglob("*")}
        assert found == {"precious.txt", "inner", "inner/precious.txt"}
        for name in ("precious.txt", "inner/precious.txt"):
            assert (self.folder / name).read_text() == "precious"


def check_refused(done: Done, *said: str) -> None:
    """The command ended with exit code 2 and one clear line that has all these words."""
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert len(line) < 1000
    check_said(line, *said)


def check_said(line: str, *said: str) -> None:
    assert "Traceback" not in line
    missing = [words for words in said if words not in line]
    assert not missing, f"{line!r} lacks {missing}"
