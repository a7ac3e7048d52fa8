"""Upload of growing files, such as logs, to the storage of their folder, at intervals and at the end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from raysweep.errors import InputError
from raysweep.storage.folder import Folder, LocalFolder

SECONDS = 60.0


@contextmanager
def uploaded(folder: Folder, names: list[str], seconds: float = SECONDS) -> Iterator[None]:
    """Upload the files ``names`` in this context every ``seconds`` if they changed, and once at the end.

    Errors are ignored. In a bucket, a run's files are uploaded only while this process holds the run, like all writes;
    see ``Bucket.guard``.
    """
    if isinstance(folder, LocalFolder):
        yield
        return
    stop = threading.Event()
    sizes: dict[str, int] = {}

    def upload() -> None:
        for name in names:
            path = folder.path / name
            with suppress(OSError, InputError):  # missing file or unresponsive store: try again at the next interval
                if (num_bytes := path.stat().st_size) != sizes.get(name):
                    folder.store(name)
                    sizes[name] = num_bytes

    def upload_until_stopped() -> None:
        while not stop.wait(seconds):
            upload()

    thread = threading.Thread(target=upload_until_stopped, name="uploads", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        upload()
