"""The ``control`` command: send a request to the driver of a run and wait for the answer."""

import math
import shlex
import time

from raysweep.config.document import parse_value
from raysweep.control.request import Answer, Request, plain
from raysweep.control.request_queue import RequestQueue
from raysweep.errors import InputError
from raysweep.results.events import SweepSteered
from raysweep.results.ledger import NAME as LEDGER
from raysweep.results.ledger import events_of
from raysweep.results.reader import load
from raysweep.results.types import Results, TrialStatus
from raysweep.results.views import options_to_go_on
from raysweep.storage.folder import BucketFolder, Folder
from raysweep.storage.line_log import is_held

LOCAL_SECONDS = 0.2  # polling interval for an answer
BUCKET_SECONDS = 2.0  # the same in a bucket


def try_request(text: str) -> Request:
    """Return the request to try a configuration given on the command line as YAML.

    Raises:
        InputError: If the text is not a mapping of plain, finite values.
    """
    try:
        values = parse_value(text)
    except InputError as error:
        raise InputError(f"--try: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"--try is {text!r}; it is a mapping such as '{{loss: triplet, margin: 0.1}}'")
    for name, value in values.items():
        if not isinstance(value, str | int | float | None):
            raise InputError(f"--try: {name}: must be one plain value, not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"--try: {name}: must be a finite number, not {value}")
    return Request(action="try", config=values)


def ask(run: Folder, request: Request, seconds: float) -> Answer | None:
    """Send a request to the driver of a run and return its answer, or None after ``seconds`` without one.

    An unanswered request stays in the queue.

    Raises:
        InputError: If no driver is running, in which case the request is withdrawn, or if storage fails.
    """
    queue = RequestQueue(run)
    try:
        check_driver(run)
        identity = queue.add(request)
    except OSError as error:
        raise InputError(f"{run.location}: cannot be asked: {error.strerror or error}") from None
    deadline = time.monotonic() + seconds
    pause = BUCKET_SECONDS if isinstance(run, BucketFolder) else LOCAL_SECONDS
    try:
        while time.monotonic() < deadline:
            has_driver = is_held(run, LEDGER) is not False
            if (answer := queue.answer_to(identity)) is not None:
                return answer
            if not has_driver:
                queue.withdraw(identity)
                return _answer_of_the_ledger(run, identity)
            time.sleep(pause)
    except KeyboardInterrupt:
        queue.withdraw(identity)
        raise
    return None


def _answer_of_the_ledger(run: Folder, identity: str) -> Answer:
    """Return the answer to a request whose driver has ended, from the ledger.

    Raises:
        InputError: If the ledger does not contain the request.
    """
    asked = (event.request for event in events_of(run) if isinstance(event, SweepSteered))
    if identity in asked:
        return Answer(accepted=True, text="it is in the ledger, and holds when the sweep goes on; its driver has ended")
    raise InputError(no_driver(load(run)))


def check_driver(run: Folder) -> None:
    """Raise ``InputError`` if no process drives this run."""
    if is_held(run, LEDGER) is False:
        raise InputError(no_driver(load(run)))


def no_driver(results: Results) -> str:
    """Return a message with the reason why a run has no driver and the command that resumes it."""
    run = shlex.quote(results.folder)
    if results.status == "completed":
        more = f"for a longer one: {_resumed(run)} --trials N"
        return f"{results.folder}: no driver is running: the sweep is completed; {more}"
    if all(trial.status == TrialStatus.FAILED for trial in results.trials) and results.trials:
        return f"{results.folder}: no driver is running: {plain(results.reason)}; for more: {_resumed(run)} --trials N"
    how = "it was killed" if results.status == "running" else f"the sweep ended: {results.status}"
    reason = f" ({plain(results.reason)})" if results.reason else ""
    more = options_to_go_on(results)
    return f"{results.folder}: no driver is running: {how}{reason}; to go on: {_resumed(run)}{more}"


def _resumed(run: str) -> str:
    return f"raysweep run --resume {run}"
