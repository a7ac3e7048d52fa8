"""Handling of user requests to a running sweep.

Requests are untrusted, because anyone with write access to the run can add files. A valid request is written to the
ledger before it is executed and answered. If the driver dies in between, the next driver finds the request in the
ledger and does not record it again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from raysweep.config.preset import ParameterError, preset_of
from raysweep.control.request import Answer, Request, read_request
from raysweep.control.request_queue import Inbox, QueuedRequest, RequestQueue, poll_in_background
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.output import escape_line
from raysweep.results.commands import format_resume
from raysweep.results.events import SweepSteered
from raysweep.results.types import TrialStatus

ENDED = (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)


@contextmanager
def answered(sweep: Sweep) -> Iterator["RequestHandler"]:
    """Poll the run's request queue in the background, and yield a handler for the requests."""
    queue, inbox = RequestQueue(sweep.run), Inbox()
    with poll_in_background(queue, inbox):
        yield RequestHandler(sweep, queue, inbox.take)


class RequestHandler:
    """Executes the requests that ``new_requests`` returns, and stores the answers in ``queue``."""

    def __init__(
        self, sweep: Sweep, queue: RequestQueue, new_requests: Callable[[], Iterable[QueuedRequest]]
    ) -> None:
        self._sweep, self._queue, self._new_requests = sweep, queue, new_requests
        self._served: set[str] = set()  # IDs of the requests that this session has answered
        self._decided: dict[
            str, Answer
        ] = {}  # answers that are not stored yet, keyed by request ID
        self._has_warned = False

    def serve(self) -> None:
        """Execute all new requests. Raise ``InputError`` if the ledger cannot be written."""
        for queued in self._new_requests():
            if queued.identity not in self._served:
                self._serve(queued)

    def _serve(self, queued: QueuedRequest) -> None:
        identity = queued.identity
        try:
            if queued.problem is not None:
                raise InputError(queued.problem)
            request = read_request(queued.content)
        except InputError as error:
            text = escape_line(f"the request {error}")
            self._decide(identity, lambda: Answer(accepted=False, text=text))
            self._store_answer(identity, lambda: self._queue.reject(queued, text))
            return
        answer = self._decide(identity, lambda: self._act(identity, request))
        self._store_answer(identity, lambda: self._queue.answer(identity, answer))

    def _decide(self, identity: str, decide: Callable[[], Answer]) -> Answer:
        """Return the answer to a request, which is computed and printed only once."""
        if identity not in self._decided:
            answer = decide()
            self._decided[identity] = answer
            outcome = "" if answer.accepted else "rejected: "
            self._sweep.display.line(f"control: {outcome}{answer.text}")
        return self._decided[identity]

    def _store_answer(self, identity: str, store: Callable[[], None]) -> None:
        """Store an answer. If storage fails, the request is answered again later, but not executed again."""
        try:
            store()
        except (OSError, InputError) as error:
            if not self._has_warned:
                self._has_warned = True
                self._sweep.display.warn(f"control: answer not stored (reason={error})")
            return
        self._served.add(identity)
        self._decided.pop(identity, None)

    def _act(self, identity: str, request: Request) -> Answer:
        if identity in self._sweep.steering.requests:
            return Answer(accepted=True, text="already executed before the driver was restarted")
        if problem := self._problem(request):
            return Answer(accepted=False, text=escape_line(problem))
        text = self._outcome(request)
        event = SweepSteered(
            request=identity,
            action=request.action,
            workers=request.workers,
            trial=request.trial,
            config=None if request.config is None else dict(request.config),
        )
        self._sweep.steer(event)
        return Answer(accepted=True, text=text)

    def _outcome(self, request: Request) -> str:
        num_running = sum(
            trial.paid_until is not None for trial in self._sweep.assignments.values()
        )
        match request.action:
            case "pause" if self._sweep.is_over:
                return f"paused scoring after the search (rungs left to score: {self._sweep.num_to_score})"
            case "pause":
                return f"sweep paused (trials still finishing their rung: {num_running})"
            case "resume":
                return "sweep resumed" if self._sweep.steering.is_paused else "sweep was not paused"
            case "workers":
                return f"maximum number of concurrent trials set to {request.workers} (running: {num_running})"
            case "stop-trial":
                if request.trial in self._sweep.assignments:
                    return f"trial {request.trial} will stop at its next report"
                return f"trial {request.trial} stopped"
            case "try":
                values = ", ".join(
                    f"{name} {value}" for name, value in (request.config or {}).items()
                )
                return f"next new trial: {escape_line(values)}"

    def _problem(self, request: Request) -> str | None:
        """Return the reason to reject a request, or None."""
        match request.action:
            case "pause" if self._sweep.is_over and not self._sweep.num_to_score:
                return "--pause: the search is over, and no rungs are left to score, so there is nothing to pause"
            case "workers":
                workers = request.workers or 0
                max_workers = self._sweep.num_workers
                if max_workers is not None and workers > max_workers:
                    return (
                        f"--workers is {workers}; allowed: 1 to {max_workers}, the maximum for this session, set by "
                        "resources.max_concurrent_trials or the cluster's resources"
                    )
            case "stop-trial":
                return self._problem_of_stop(request.trial or 0)
            case "try":
                return self._problem_of_try(request.config or {})
        return None

    def _problem_of_stop(self, number: int) -> str | None:
        trials = self._sweep.scheduler.trials
        if number not in trials:
            last = len(trials) - 1
            allowed = f"allowed: 0 to {last}" if trials else "no trials have started"
            return f"--stop-trial is {number}, an unknown trial; {allowed}"
        status = trials[number].status
        if status in ENDED:
            return f"--stop-trial is {number}, but trial {number} has already ended ({status})"
        if number in self._sweep.steering.stopping:
            return f"--stop-trial is {number}, but trial {number} is already stopping"
        return None

    def _problem_of_try(self, values: Mapping[str, object]) -> str | None:
        sweep = self._sweep
        scheduler = sweep.scheduler
        if not values:
            return "--try is empty; allowed: a mapping such as {loss: triplet, margin: 0.1}"
        try:
            preset = preset_of(scheduler.proposer.space, values)
        except ParameterError as error:
            return f"--try: {error}"
        number = scheduler.proposer.trial_with(preset)
        if number is not None:
            return (
                f"--try: trial {number} has the same configuration, so the scores would be the same"
            )
        if not scheduler.proposer.has_left(preset):
            return "--try: the grid has no untried combination with these values"
        if scheduler.requested.has(preset):
            return "--try: this configuration has already been requested"
        has_ended_early = sweep.cause is not None or sweep.given_up is not None
        if sweep.is_over or has_ended_early or scheduler.on_plateau:
            return "--try: the search is over, so no more trials will start"
        num_left = scheduler.num_trials - scheduler.num_started - len(scheduler.requested)
        if num_left > 0:
            return None
        command = format_resume(
            sweep.run.location, "--budget.trials", str(scheduler.num_trials + 1)
        )
        return (
            f"--try: budget.trials is {scheduler.num_trials}, and no trials are left (started: {scheduler.num_started}, "
            f"requested: {len(scheduler.requested)}); to run more after the sweep ends: {command}"
        )
