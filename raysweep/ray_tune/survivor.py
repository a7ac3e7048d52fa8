"""A process that outlives its driver and writes the run's report if the driver is killed.

Ray kills a driver without notice if the head does not answer for a minute, and the kernel may kill it to free memory.
The survivor is not a child of the driver, so that Ray does not kill both.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

DONE = b"done"
CONNECT_SECONDS = 5.0


@contextlib.contextmanager
def survived(run: str, head: str, output: int | None = None) -> Iterator[None]:
    """Start a survivor, which writes the run's report if this process is killed within the context.

    ``run`` is the run's location, and ``head`` is the HOST:PORT of Ray's head. The survivor prints to the file
    descriptor ``output``, or to this process's standard output if ``output`` is None.
    """
    command = [sys.executable, "-m", "raysweep.ray_tune.survivor", run, head]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, start_new_session=True
    ) as survivor:
        try:
            yield
        finally:
            assert survivor.stdin is not None
            with contextlib.suppress(OSError):
                survivor.stdin.write(DONE)
                survivor.stdin.flush()


def main() -> None:
    """Wait until the driver exits, and write the report if it was killed."""
    if os.fork():
        os._exit(0)  # the remaining process is no longer a child of the driver
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.stdin.buffer.read() == DONE:
        return
    # Imported late to keep the waiting process small.
    from raysweep.results.commands import format_resume
    from raysweep.results.ledger import NAME as LEDGER
    from raysweep.storage.folder import LocalFolder, as_folder
    from raysweep.storage.line_log import is_held

    run, head = sys.argv[1:]
    host, _, port = head.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        reason = "it was killed"
    except (OSError, ValueError):
        reason = f"Ray's head at {head} does not answer"
    _print(f"run: the driver ended without writing a report (reason={reason})")
    folder = as_folder(run)
    if isinstance(folder, LocalFolder) and is_held(folder, LEDGER):
        return  # another driver has resumed the run and will write the report
    subprocess.run([sys.executable, "-m", "raysweep", "report", run], check=False)
    _print(f"run: to resume: {format_resume(run)}")


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal has been closed
        print(text, flush=True)


if __name__ == "__main__":
    main()
