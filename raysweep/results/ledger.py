"""The append-only file of what happened in a sweep; :mod:`raysweep.results.events` says what its events are."""

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from raysweep.errors import InputError
from raysweep.results.events import Event, read_event


@dataclass
class Ledger:
    """Appends events to ``folder/ledger.jsonl``, each on disk before :meth:`append` returns. One process at a time."""

    folder: Path
    _file: BinaryIO | None = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        return self.folder / "ledger.jsonl"

    def open(self) -> BinaryIO:
        """Take the ledger for this process and remove a last line that a kill cut short.

        InputError where another process has it.
        """
        file = self.path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise InputError(f"{self.path}: another process is running this sweep") from None
        except OSError:  # a file system without locks
            pass
        file.seek(0)
        end_of_last_line = file.read().rfind(b"\n") + 1
        file.truncate(end_of_last_line)
        self._file = file
        return file

    def append(self, event: Event) -> None:
        """Write an event to disk. ValueError where it holds a number that is not finite."""
        file = self._file or self.open()
        file.write(json.dumps(event.to_json(), allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())

    def close(self) -> None:
        """Let other processes have the ledger."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_events(path: Path) -> Iterator[Event]:
    """The events of a ledger, one for each line. InputError names the line that is no event, and says why.

    A last line without its end was being written when the driver was killed. It never counted.
    """
    *lines, _ = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            values["event"]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{path}: line {number} is no event; the ledger was changed by hand?") from None
        try:
            event = read_event(values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except ValueError as error:
            raise InputError(f"{path}: line {number}: {error}; the ledger was changed by hand?") from None
        yield event


def point_name(trial: int, step: int) -> str:
    """The name of the folder under ``RUN/points`` that keeps a rung's weights and per-query scores."""
    return f"trial-{trial:04d}-step-{step:03d}"


def checkpoints_of(folder: Path, trial: int) -> Path:
    """Where a trial of the run in ``folder`` keeps its state while it runs."""
    return folder / "checkpoints" / f"trial-{trial:04d}"
