"""Small files by which a command and the driver of a run talk: each whole or not there, and read with suspicion.

``RUN/requests/ID.json`` is a request, ``RUN/requests/ID.answer.json`` the answer to it, and ``RUN/requests/refused/`` keeps
what is none. An ID begins with the time, so that requests come in the order in which they were left.
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
REFUSED = f"{FOLDER}/refused"
IDENTITY = r"\d{20}-[0-9a-f]{8}"
LOCAL_SECONDS = 0.5  # between two looks into a folder of this machine
BUCKET_SECONDS = 5.0  # the same, into a bucket, which costs a request to the store
MOST_AT_ONCE = 20  # letters that one look takes


@dataclass(frozen=True)
class Letter:
    """A file that lies where requests do. ``problem`` says why its content was not read."""

    identity: str
    content: bytes
    problem: str | None = None


class Mailbox:
    """The letters of one run. Methods raise OSError where the storage fails."""

    def __init__(self, run: Folder) -> None:
        self._run = run

    @property
    def seconds_between_looks(self) -> float:
        """How often the driver looks for letters."""
        return BUCKET_SECONDS if isinstance(self._run, BucketFolder) else LOCAL_SECONDS

    def leave(self, request: Request) -> str:
        """Leave a request; the identity by which it is answered."""
        identity = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self._check_folder()
        self._run.put(_request_file(identity), written(request))
        return identity

    def waiting(self) -> list[Letter]:
        """The oldest requests that nobody has answered, by rising identity, and at most so many at once."""
        self._check_folder()
        names = self._run.names(FOLDER)
        matches = (re.fullmatch(rf"({IDENTITY})\.json", name) for name in names)
        identities = sorted(match.group(1) for match in matches if match)
        letters = []
        for identity in identities[:MOST_AT_ONCE]:
            with suppress(FileNotFoundError):  # withdrawn in between
                letters.append(self._letter(identity))
        return letters

    def _letter(self, identity: str) -> Letter:
        try:
            return Letter(identity, self._content(_request_file(identity)))
        except InputError as error:
            return Letter(identity, b"", str(error))
        except PermissionError:
            return Letter(identity, b"", "cannot be read by the user whom the sweep runs as")

    def answer(self, identity: str, answer: Answer) -> None:
        """Answer a request, which is waiting no more then."""
        self._check_folder()
        self._run.put(_answer_file(identity), written(answer))
        self._run.remove(_request_file(identity))

    def refuse(self, letter: Letter, text: str) -> None:
        """Answer what is no request, and set it aside, as far as it was read."""
        self._check_folder()
        if letter.content:
            self._run.put(f"{REFUSED}/{letter.identity}.json", letter.content[:MAX_BYTES])
        self.answer(letter.identity, Answer(accepted=False, text=text))

    def answer_to(self, identity: str) -> Answer | None:
        """The answer to a request, which is taken out of the box; None where there is none yet."""
        try:
            content = self._content(_answer_file(identity))
        except FileNotFoundError:
            return None
        answer = read_answer(content)
        self._run.remove(_answer_file(identity))
        return answer

    def withdraw(self, identity: str) -> None:
        """Take back a request that nobody has answered."""
        self._run.remove(_request_file(identity))

    def _content(self, name: str) -> bytes:
        """A file's content, or one byte more than it may have. InputError for what is no ordinary file."""
        if isinstance(self._run, BucketFolder):
            return self._run.read([name], MAX_BYTES + 1)[0]
        return _read_ordinary(self._run.path / name, MAX_BYTES + 1)

    def _check_folder(self) -> None:
        """InputError where the box is a link, by which files elsewhere would be written and removed."""
        if isinstance(self._run, BucketFolder):
            return
        for name in (FOLDER, REFUSED):
            path = self._run.path / name
            if path.is_symlink():
                raise InputError(f"{path}: is a symbolic link; a run's files and folders lie in the run itself")


def _request_file(identity: str) -> str:
    return f"{FOLDER}/{identity}.json"


def _answer_file(identity: str) -> str:
    return f"{FOLDER}/{identity}.answer.json"


def _read_ordinary(path: Path, num_bytes: int) -> bytes:
    """The first bytes of a file that is neither a link nor a device or a pipe, which might lead anywhere or never end."""
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
    """Letters as a thread finds them, for a driver that must not wait for storage."""

    _letters: SimpleQueue[Letter] = field(default_factory=SimpleQueue)

    def take(self) -> Iterator[Letter]:
        """Those that have been found since the last time. One that was not answered meanwhile comes again."""
        with suppress(Empty):
            while True:
                yield self._letters.get_nowait()

    def put(self, letter: Letter) -> None:
        self._letters.put(letter)

    @property
    def is_empty(self) -> bool:
        return self._letters.empty()


@contextmanager
def watched(mailbox: Mailbox, inbox: Inbox, seconds: float | None = None) -> Iterator[None]:
    """Within, a thread looks for letters every so many seconds. What cannot be read for now is read later."""
    seconds = seconds or mailbox.seconds_between_looks
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(seconds):
            if not inbox.is_empty:  # the driver is busy: it is not told of the same letters twice
                continue
            with suppress(OSError, InputError):
                for letter in mailbox.waiting():
                    inbox.put(letter)

    thread = threading.Thread(target=look, name="requests", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=seconds)
