"""Files that grow, such as logs, brought to where their folder is stored: every so often, and at the end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from raysweep.errors import InputError
from raysweep.storage.folder import Folder, LocalFolder

SECONDS = 60.0


@contextmanager
def uploaded(folder: Folder, names: list[str], seconds: float = SECONDS) -> Iterator[None]:
    """Within, the files of these names are stored again whenever they have changed. Nothing stops for their sake.

    Of a run in a bucket that is only as long as this process has it, as for whatever is written there: see ``Bucket.guard``.
    """
    if isinstance(folder, LocalFolder):
        yield
        return
    stop = threading.Event()
    sizes: dict[str, int] = {}

    def upload() -> None:
        for name in names:
            path = folder.path / name
            with suppress(OSError, InputError):  # not there yet, or a store that does not answer: the next turn has it
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
