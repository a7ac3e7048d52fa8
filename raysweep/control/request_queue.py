"""A run's queue of user requests, stored as files.

``RUN/requests/ID.json`` contains a request, and ``RUN/requests/ID.answer.json`` contains its answer. Invalid requests
are moved to ``RUN/requests/rejected/``. IDs start with a timestamp, so requests are handled in order.
"""

import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from raysweep.control.request import MAX_BYTES, Answer, Request, read_answer, to_json
from raysweep.errors import InputError
from raysweep.storage.folder import BucketFolder, Folder

FOLDER = "requests"
REJECTED = f"{FOLDER}/rejected"
IDENTITY = r"\d{20}-[0-9a-f]{8}"
LOCAL_SECONDS = 0.5  # polling interval in a local folder
BUCKET_SECONDS = 5.0  # polling interval in a bucket, where each poll is an API request
MAX_PER_POLL = 20  # maximum number of requests per poll


@dataclass(frozen=True)
class QueuedRequest:
    """A file in the request queue. If it could not be read, ``problem`` states the reason."""

    identity: str
    content: bytes
    problem: str | None = None


class RequestQueue:
    """A run's request queue. Methods raise ``OSError`` if storage fails."""

    def __init__(self, run: Folder) -> None:
        self._run = run

    @property
    def poll_seconds(self) -> float:
        """Return the driver's polling interval, in seconds."""
        return BUCKET_SECONDS if isinstance(self._run, BucketFolder) else LOCAL_SECONDS

    def add(self, request: Request) -> str:
        """Add a request and return its ID."""
        identity = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self._run.put(_request_file(identity), to_json(request))
        return identity

    def pending(self) -> list[QueuedRequest]:
        """Return up to ``MAX_PER_POLL`` unanswered requests, oldest first."""
        names = sorted(
            name for name in self._run.names(FOLDER) if re.fullmatch(rf"{IDENTITY}\.json", name)
        )
        requests: list[QueuedRequest] = []
        for name in filter(self._is_plain_file, names):
            if len(requests) == MAX_PER_POLL:
                break
            identity = name.removesuffix(".json")
            with suppress(FileNotFoundError):  # withdrawn since the files were listed
                try:
                    requests.append(QueuedRequest(identity, self._read(_request_file(identity))))
                except PermissionError:
                    problem = "cannot be read by the user who runs the sweep"
                    requests.append(QueuedRequest(identity, b"", problem))
        return requests

    def _is_plain_file(self, name: str) -> bool:
        """Return whether a file is a regular file. Links are ignored because they may point outside the run."""
        if isinstance(self._run, BucketFolder):
            return True
        path = self._run.path / FOLDER / name
        return path.is_file() and not path.is_symlink()

    def answer(self, identity: str, answer: Answer) -> None:
        """Answer a request and remove it from the queue."""
        self._run.put(_answer_file(identity), to_json(answer))
        self._run.remove(_request_file(identity))

    def reject(self, queued: QueuedRequest, text: str) -> None:
        """Reject an invalid request and store its content in ``REJECTED``."""
        if queued.content:
            self._run.put(f"{REJECTED}/{queued.identity}.json", queued.content[:MAX_BYTES])
        self.answer(queued.identity, Answer(accepted=False, text=text))

    def answer_to(self, identity: str) -> Answer | None:
        """Remove and return the answer to a request, or return None if there is none yet."""
        try:
            content = self._read(_answer_file(identity))
        except FileNotFoundError:
            return None
        answer = read_answer(content)
        self._run.remove(_answer_file(identity))
        return answer

    def withdraw(self, identity: str) -> None:
        """Remove an unanswered request."""
        self._run.remove(_request_file(identity))

    def _read(self, name: str) -> bytes:
        """Read at most ``MAX_BYTES + 1`` bytes of a file, one more than allowed, to detect files that are too large."""
        (content,) = self._run.read([name], MAX_BYTES + 1)
        return content


def _request_file(identity: str) -> str:
    return f"{FOLDER}/{identity}.json"


def _answer_file(identity: str) -> str:
    return f"{FOLDER}/{identity}.answer.json"


@dataclass
class Inbox:
    """Requests found by a background thread, so that the driver never waits for storage."""

    _requests: SimpleQueue[QueuedRequest] = field(default_factory=SimpleQueue)

    def take(self) -> Iterator[QueuedRequest]:
        """Yield the requests found since the last call. Unanswered requests are found again by later polls."""
        with suppress(Empty):
            while True:
                yield self._requests.get_nowait()

    def put(self, queued: QueuedRequest) -> None:
        self._requests.put(queued)

    @property
    def is_empty(self) -> bool:
        return self._requests.empty()


@contextmanager
def poll_in_background(
    queue: RequestQueue, inbox: Inbox, seconds: float | None = None
) -> Iterator[None]:
    """Poll the queue every ``seconds`` seconds in a background thread within this context.

    If the queue cannot be read, it is read again at the next poll.
    """
    seconds = seconds or queue.poll_seconds
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(seconds):
            # polling before the driver has taken all requests would deliver them twice
            if not inbox.is_empty:
                continue
            with suppress(OSError, InputError):
                for queued in queue.pending():
                    inbox.put(queued)

    thread = threading.Thread(target=poll, name="requests", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=seconds)
