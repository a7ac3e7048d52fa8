"""The request queue of a run: small, atomically written files that are validated when read.

``RUN/requests/ID.json`` is a request and ``RUN/requests/ID.answer.json`` its answer. Invalid requests are kept in
``RUN/requests/rejected/``. IDs start with the time, so requests are served in the order in which they were sent.
"""

import errno
import os
import re
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from raysweep.control.request import MAX_BYTES, Answer, Request, read_answer, written
from raysweep.errors import InputError
from raysweep.storage.folder import BucketFolder, Folder

FOLDER = "requests"
REJECTED = f"{FOLDER}/rejected"
IDENTITY = r"\d{20}-[0-9a-f]{8}"
LOCAL_SECONDS = 0.5  # polling interval in a local folder
BUCKET_SECONDS = 5.0  # the same in a bucket, where each poll costs a request to the store
MOST_AT_ONCE = 20  # requests per poll


@dataclass(frozen=True)
class QueuedRequest:
    """A file in the request queue. ``problem`` is the reason why its content was not read."""

    identity: str
    content: bytes
    problem: str | None = None


class RequestQueue:
    """The request queue of one run. Methods raise ``OSError`` if storage fails."""

    def __init__(self, run: Folder) -> None:
        self._run = run

    @property
    def seconds_between_looks(self) -> float:
        """Return the driver's polling interval in seconds."""
        return BUCKET_SECONDS if isinstance(self._run, BucketFolder) else LOCAL_SECONDS

    def add(self, request: Request) -> str:
        """Add a request and return its ID."""
        identity = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self._check_folder()
        self._run.put(_request_file(identity), written(request))
        return identity

    def pending(self) -> list[QueuedRequest]:
        """Return the oldest unanswered requests by increasing ID, at most ``MOST_AT_ONCE``."""
        self._check_folder()
        names = self._run.names(FOLDER)
        matches = (re.fullmatch(rf"({IDENTITY})\.json", name) for name in names)
        identities = sorted(match.group(1) for match in matches if match)
        requests = []
        for identity in identities[:MOST_AT_ONCE]:
            with suppress(FileNotFoundError):  # withdrawn since the listing
                requests.append(self._read_queued(identity))
        return requests

    def _read_queued(self, identity: str) -> QueuedRequest:
        try:
            return QueuedRequest(identity, self._content(_request_file(identity)))
        except InputError as error:
            return QueuedRequest(identity, b"", str(error))
        except PermissionError:
            return QueuedRequest(identity, b"", "cannot be read by the user whom the sweep runs as")

    def answer(self, identity: str, answer: Answer) -> None:
        """Answer a request and remove it from the queue."""
        self._check_folder()
        self._run.put(_answer_file(identity), written(answer))
        self._run.remove(_request_file(identity))

    def reject(self, queued: QueuedRequest, text: str) -> None:
        """Reject an invalid request and keep the content that was read."""
        self._check_folder()
        if queued.content:
            self._run.put(f"{REJECTED}/{queued.identity}.json", queued.content[:MAX_BYTES])
        self.answer(queued.identity, Answer(accepted=False, text=text))

    def answer_to(self, identity: str) -> Answer | None:
        """Remove and return the answer to a request, or return None if it has not arrived."""
        try:
            content = self._content(_answer_file(identity))
        except FileNotFoundError:
            return None
        answer = read_answer(content)
        self._run.remove(_answer_file(identity))
        return answer

    def withdraw(self, identity: str) -> None:
        """Remove an unanswered request."""
        self._run.remove(_request_file(identity))

    def _content(self, name: str) -> bytes:
        """Return at most ``MAX_BYTES + 1`` bytes of a file; the extra byte shows that it is too large.

        Raises:
            InputError: If it is not a regular file.
        """
        if isinstance(self._run, BucketFolder):
            return self._run.read([name], MAX_BYTES + 1)[0]
        return _read_ordinary(self._run.path / name, MAX_BYTES + 1)

    def _check_folder(self) -> None:
        """Raise ``InputError`` if a folder of the queue is a link, which would expose files outside the run."""
        if isinstance(self._run, BucketFolder):
            return
        for name in (FOLDER, REJECTED):
            path = self._run.path / name
            if path.is_symlink():
                raise InputError(f"{path}: is a symbolic link; a run's files and folders lie in the run itself")


def _request_file(identity: str) -> str:
    return f"{FOLDER}/{identity}.json"


def _answer_file(identity: str) -> str:
    return f"{FOLDER}/{identity}.answer.json"


def _read_ordinary(path: Path, num_bytes: int) -> bytes:
    """Return the first bytes of a regular file.

    Raises:
        InputError: If it is a link, a device or a pipe, which may point outside the run or never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError("is a symbolic link, which is not followed") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError("is no ordinary file")
        return os.read(descriptor, num_bytes)
    finally:
        os.close(descriptor)


@dataclass
class Inbox:
    """Requests found by a polling thread, for a driver that must not wait for storage."""

    _requests: SimpleQueue[QueuedRequest] = field(default_factory=SimpleQueue)

    def take(self) -> Iterator[QueuedRequest]:
        """Yield the requests found since the last call. An unanswered request is found again."""
        with suppress(Empty):
            while True:
                yield self._requests.get_nowait()

    def put(self, queued: QueuedRequest) -> None:
        self._requests.put(queued)

    @property
    def is_empty(self) -> bool:
        return self._requests.empty()


@contextmanager
def watched(queue: RequestQueue, inbox: Inbox, seconds: float | None = None) -> Iterator[None]:
    """Poll the queue in a background thread every ``seconds`` seconds within the context.

    Requests that cannot be read are retried at the next poll.
    """
    seconds = seconds or queue.seconds_between_looks
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(seconds):
            if not inbox.is_empty:  # the driver is busy; polling now would deliver the same requests twice
                continue
            with suppress(OSError, InputError):
                for queued in queue.pending():
                    inbox.put(queued)

    thread = threading.Thread(target=look, name="requests", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=seconds)
