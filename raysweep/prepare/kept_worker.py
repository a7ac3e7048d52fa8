"""The worker that a process keeps from one task of a stage to the next, so that what it loads is loaded once.

Ray runs task after task in the same processes, so stages that are made of tasks share them, and what they have imported.
"""

import threading
from collections.abc import Callable
from typing import Any

from raysweep.prepare.workers import Columns, Worker

KEEP_SECONDS = 10.0  # after which a worker that nobody calls any more gives its memory back


class _Slot:
    """Room for one worker, under the key of what it was made of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Worker] = {}
        self._timer = threading.Timer(0, self._drop)  # never started, like any that was cancelled

    def take(self, key: str) -> Worker | None:
        """The worker of that key, now the caller's. Any other is dropped."""
        self._timer.cancel()
        with self._lock:
            found = self._kept.pop(key, None)
            self._kept.clear()
        return found

    def put(self, key: str, worker: Worker) -> None:
        with self._lock:
            self._kept[key] = worker
        self._timer = threading.Timer(KEEP_SECONDS, self._drop)
        self._timer.daemon = True
        self._timer.start()

    def _drop(self) -> None:
        with self._lock:
            self._kept.clear()


_slot = _Slot()


def call(chunk: Columns, kind: Callable[..., Worker], arguments: tuple[Any, ...]) -> Columns:
    """What a worker of this kind, made of these arguments, returns for a chunk. It is made by a process's first call."""
    key = f"{kind!r} {arguments!r}"
    worker = _slot.take(key) or kind(*arguments)
    try:
        columns: Columns = worker(chunk)
        return columns
    finally:
        _slot.put(key, worker)
