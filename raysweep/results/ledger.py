"""The append-only file of what happened in a sweep; :mod:`raysweep.results.reader` says what its events are."""

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.errors import InputError


@dataclass
class Ledger:
    """Appends events to ``folder/ledger.jsonl``, each on disk before :meth:`append` returns. One process at a time."""

    folder: Path
    _file: Any = field(default=None, repr=False)

    def open(self) -> None:
        """Take the ledger for this process, less a last line that a kill cut short. InputError where another has it."""
        path = self.folder / "ledger.jsonl"
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise InputError(f"{path}: another process is running this sweep") from None
        except OSError:  # a file system without locks
            pass
        self._file.seek(0)
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def append(self, event: str, **values: Any) -> None:
        if self._file is None:
            self.open()
        self._file.write(json.dumps({"event": event, **values}, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def events(path: Path) -> Iterator[dict[str, Any]]:
    """A ledger's events. A last line without its end was being written when the driver was killed; it never counted."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            event = json.loads(line)
            event["event"]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{path}: line {number} is no event; the ledger was changed by hand?") from None
        yield event


def point_name(trial: int, step: int) -> str:
    """The name of the folder under ``RUN/points`` that keeps a rung's weights and per-query scores."""
    return f"trial-{trial:04d}-step-{step:03d}"


def checkpoints_of(folder: Path, trial: int) -> Path:
    """Where a trial of the run in ``folder`` keeps its state while it runs."""
    return folder / "checkpoints" / f"trial-{trial:04d}"
