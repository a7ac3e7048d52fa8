"""The ``control`` command, which sends a request to a run's driver and waits for the answer."""

import time

from raysweep.config.document import parse_value
from raysweep.control.request import Answer, Request, make_request
from raysweep.control.request_queue import RequestQueue
from raysweep.errors import InputError
from raysweep.output import escape_line
from raysweep.results.commands import format_resume, resume_options
from raysweep.results.events import SweepSteered
from raysweep.results.ledger import NAME as LEDGER
from raysweep.results.ledger import load_events
from raysweep.results.reader import load
from raysweep.results.types import Results, TrialStatus
from raysweep.storage.folder import BucketFolder, Folder
from raysweep.storage.line_log import is_held

LOCAL_SECONDS = 0.2  # polling interval for a run in a local folder
BUCKET_SECONDS = 2.0  # polling interval for a run in a bucket


def parse_try(text: str) -> Request:
    """Parse the YAML value of ``--try`` into a request.

    Raises:
        InputError: If the text is not a mapping of plain, finite values.
    """
    try:
        values = parse_value(text)
    except InputError as error:
        raise InputError(f"--try: {error}") from None
    return make_request("try", values)


def send(run: Folder, request: Request, seconds: float) -> str:
    """Send a request to a run's driver, and return its answer as one line.

    Raises:
        InputError: If the driver rejects the request, storage fails, or no driver is running.
        TimeoutError: If no answer arrives within ``seconds``. The request stays in the queue.
    """
    answer = _await_answer(run, request, seconds)
    if answer is None:
        raise TimeoutError(
            f"{run.location}: no answer within {seconds:g} s; the request stays in the queue"
        )
    text = escape_line(answer.text)
    if not answer.accepted:
        raise InputError(text)
    return text


def _await_answer(run: Folder, request: Request, seconds: float) -> Answer | None:
    queue = RequestQueue(run)
    try:
        if is_held(run, LEDGER) is False:
            raise InputError(explain_missing_driver(load(run)))
        identity = queue.add(request)
    except OSError as error:
        raise InputError(
            f"{run.location}: cannot store the request: {error.strerror or error}"
        ) from None
    deadline = time.monotonic() + seconds
    pause = BUCKET_SECONDS if isinstance(run, BucketFolder) else LOCAL_SECONDS
    try:
        while time.monotonic() < deadline:
            # check for the driver first, since it may answer and exit between the two checks
            has_driver = is_held(run, LEDGER) is not False
            if (answer := queue.answer_to(identity)) is not None:
                return answer
            if not has_driver:
                queue.withdraw(identity)
                return _find_in_ledger(run, identity)
            time.sleep(pause)
    except KeyboardInterrupt:
        queue.withdraw(identity)
        raise
    return None


def _find_in_ledger(run: Folder, identity: str) -> Answer:
    """Return an answer for a request that the driver recorded in the ledger before it exited."""
    identities = (event.request for event in load_events(run) if isinstance(event, SweepSteered))
    if identity not in identities:
        raise InputError(explain_missing_driver(load(run)))
    return Answer(
        accepted=True,
        text="recorded; the driver has exited, so the request takes effect when the sweep is resumed",
    )


def explain_missing_driver(results: Results) -> str:
    """Return a message that explains why a run has no driver and how to resume it."""
    options = ["--trials", str(2 * results.info.num_trials)]
    statuses = {trial.status for trial in results.trials}
    if results.status == "completed":
        reason = "the sweep has completed"
        remedy = "to extend it"
    elif statuses == {TrialStatus.FAILED}:
        reason = escape_line(results.reason)
        remedy = "to try more"
    else:
        options = resume_options(results)
        reason = (
            "the sweep was killed"
            if results.status == "running"
            else f"the sweep ended: {results.status}"
        )
        if results.reason:
            reason += f" ({escape_line(results.reason)})"
        remedy = "to resume it"
    command = format_resume(results.folder, *options)
    return f"{results.folder}: no driver is running: {reason}; {remedy}: {command}"
