"""The worker that a process keeps between the tasks of a stage, so that its data and models are loaded only once.

Ray runs consecutive tasks in the same processes, so task-based stages share these processes and their imports.
"""

import threading
from collections.abc import Callable
from typing import Any

from raysweep.prepare.workers import Columns, Worker

KEEP_SECONDS = 10.0  # an idle worker is dropped after this time, to free its memory


class _Slot:
    """A slot for one worker, stored under a key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Worker] = {}
        self._timer = threading.Timer(0, self._drop)  # a placeholder that is never started

    def take(self, key: str) -> Worker | None:
        """Remove and return the worker with this key; any other worker is dropped."""
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
    """Return a worker's result for a chunk.

    A process's first call creates the worker from ``kind`` and ``arguments``; later calls reuse it.
    """
    key = f"{kind!r} {arguments!r}"
    worker = _slot.take(key) or kind(*arguments)
    try:
        columns: Columns = worker(chunk)
        return columns
    finally:
        _slot.put(key, worker)
