"""Run a sweep: check the settings, prepare the artifacts, search, and score the front."""

import contextlib
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import NamedTuple

from raysweep.cluster import nodes
from raysweep.cluster.connection import connected, head_address
from raysweep.cluster.resources import Capacity
from raysweep.config import packages
from raysweep.config.space import Space
from raysweep.config.sweep import BudgetConfig, SweepConfig
from raysweep.controller.disk import measure_size
from raysweep.controller.node_meter import NodeMeter
from raysweep.controller.request_handler import answered
from raysweep.controller.resume import Resumed
from raysweep.controller.sweep import Sweep
from raysweep.encoders.copies import find_copy
from raysweep.errors import InputError, TemporaryError
from raysweep.evaluation.watched import WatchedRelations
from raysweep.prepare.build import prepare
from raysweep.prepare.plan import Plan, make_plan
from raysweep.ray_tune.baselines import Baselines
from raysweep.ray_tune.session import Session
from raysweep.ray_tune.survivor import survived
from raysweep.results.account import build_account, sentence
from raysweep.results.bill import bill_text, build_bill
from raysweep.results.commands import format_command, format_resume, options_beyond
from raysweep.results.events import GuardsMeasured
from raysweep.results.ledger import load_events
from raysweep.results.query_scores import name_of_point
from raysweep.results.reader import load
from raysweep.results.types import Point
from raysweep.storage import location
from raysweep.storage.cache import check_room, limit_gib
from raysweep.storage.failure import storage_problem
from raysweep.storage.folder import BucketFolder, Folder, open_folder, uploaded
from raysweep.storage.private import make_private
from raysweep.terminal import Display, Log, in_main_thread, interrupt, undisturbed, uninterrupted
from raysweep.trackers import opening
from raysweep.trackers.tracking import Tracking


class Ending(NamedTuple):
    """How a session ended. For ``is_final``, see :class:`raysweep.results.events.SessionFinished`."""

    status: str
    reason: str
    is_final: bool = False


COMPLETED = Ending("completed", "all trials are done")
PLATEAU = Ending("plateau", "the front's hypervolume has stopped growing")
INTERRUPTED = Ending("interrupted", "Ctrl-C or a signal")
FAILED = Ending("failed", "an unexpected error")


@dataclass(frozen=True)
class RunOutcome:
    """A run and how it ended."""

    run: Folder
    ending: Ending

    @property
    def interrupted(self) -> bool:
        """Return whether Ctrl-C or a signal ended the run."""
        return self.ending == INTERRUPTED


@contextlib.contextmanager
def _interrupted_once() -> Iterator[None]:
    """After the first Ctrl-C or SIGTERM, ignore further ones, so that they do not interrupt the shutdown.

    Batch schedulers and spot instances send SIGTERM. Only the main thread can set signal handlers, so this does nothing
    in other threads.
    """
    if not in_main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_signal(number: int, frame: FrameType | None) -> None:
        for own_number in numbers:
            signal.signal(own_number, signal.SIG_IGN)
        interrupt()

    before = [signal.signal(own_number, on_signal) for own_number in numbers]
    try:
        yield
    finally:
        for own_number, handler in zip(numbers, before, strict=True):
            signal.signal(own_number, handler)


@_interrupted_once()
def run(  # noqa: PLR0913 (one argument for each way to start a run)
    config: SweepConfig,
    space: Space,
    display: Display,
    log: Log | None = None,
    *,
    resumed: Resumed | None = None,
    warm_start: Sequence[Folder] = (),
    place: str | None = None,
) -> RunOutcome:
    """Run a new sweep or, if ``resumed`` is given, resume a run.

    Args:
        log: Captures the output of libraries and workers. If None, nothing is redirected and the workers' output stays
            in Ray's logs.
        warm_start: Runs whose trials a new sweep learns from.
        place: The folder of a new run. The default name consists of the sweep's name and the time.

    Raises:
        InputError: For problems that the user can fix.
        KeyboardInterrupt: If interrupted before the run has started. A later interruption is returned as the ending.
    """
    with contextlib.ExitStack() as closing:
        if resumed is not None:
            # always release the run for other drivers
            closing.callback(resumed.ledger.close)
        _check(config, space, display, resumed)
        older_runs = [load(folder) for folder in warm_start]
        if config.watch is not None:
            # fail early if the data is unreadable; the session reads it again
            WatchedRelations.of(config.watch, config.seed)
        plan = _plan(config, space, resumed)

        def start(session: Session) -> Sweep:
            return session.begin(older_runs, place) if resumed is None else session.resume(resumed)

        return execute(plan, display, log, start, place if resumed is None else resumed.location)


@_interrupted_once()
def prepare_only(
    config: SweepConfig, space: Space, display: Display, log: Log | None = None
) -> str:
    """Build the sweep's artifacts and return the path or URI of the file that :meth:`Prepared.open` reads.

    ``display`` and ``log`` are as in :func:`run`.
    """
    limit_gib()  # fail early if the limit is invalid
    needs = packages.needs_of_sweep(config, space)
    packages.check(needs)
    storage = config.storage
    artifacts = storage.artifacts_location
    check_writable(storage.artifacts_key, artifacts, display)
    plan = make_plan(config, space)
    if plan.missing:
        with _connected(config, display, log, None) as capacity:
            places = {storage.artifacts_key: storage.artifacts or storage.runs}
            warn_of_local_folders(places, capacity, display)
            prepared = prepare(plan, capacity, display)
    else:
        prepared = prepare(plan, None, display)
    place = open_folder(artifacts, display.warn)
    name = f"{config.name}.prepared.json"
    make_private(place.path)
    prepared.save(place.path / name)
    place.store(name)
    return location.join(place.location, name)


def _connected(
    config: SweepConfig, display: Display, log: Log | None, place: str | None
) -> contextlib.AbstractContextManager[Capacity]:
    """Start Ray or join a cluster. If ``log`` is given, it captures the workers' output."""
    return connected(
        config.resources,
        show_workers=log is not None,
        report=display.line,
        metadata=job_metadata(config, place),
        log_level=None if log is None else log.level,
    )


def _check(config: SweepConfig, space: Space, display: Display, resumed: Resumed | None) -> None:
    """Raise InputError for invalid settings, missing packages or unwritable folders."""
    limit_gib()  # raises if the limit is invalid
    needs = list(packages.needs_of_sweep(config, space))
    if resumed is not None:  # neighbors usually exist; if not, _plan checks the mining packages
        mining = list(packages.needs_of_mining(config, space))
        needs = [need for need in needs if need not in mining]
    packages.check(needs)
    storage = config.storage
    check_writable("storage.runs", storage.runs, display)
    check_writable(storage.artifacts_key, storage.artifacts_location, display)
    opening.check_trackers(config.trackers, storage.runs)
    if config.guards:
        from raysweep.export import guards

        guards.check(config.guards, display.warn)
    stored = [] if resumed is None else resumed.points
    Baselines.check(config.baselines, stored)


def _plan(config: SweepConfig, space: Space, resumed: Resumed | None) -> Plan:
    """Plan the sweep's artifacts.

    Raises:
        InputError: If a source or an encoder cannot be read, or has changed since the ``resumed`` run.
    """
    # read first, so that a damaged file is reported before sources are read
    before = None if resumed is None else resumed.prepared
    plan = make_plan(config, space)
    if resumed is not None and before is not None:
        resumed.check_data(before, plan.prepared)
        if any(stage.kind == "neighbors" for stage in plan.missing):
            packages.check(packages.needs_of_mining(config, space))
    return plan


def execute(
    plan: Plan,
    display: Display,
    log: Log | None,
    start: Callable[[Session], Sweep],
    place: str | None = None,
) -> RunOutcome:
    """Prepare the artifacts, ``start`` the sweep, search, score the front on test, and record how the sweep ended.

    ``place`` is the run's folder, if it is already known.
    """
    config = plan.config
    sweep: Sweep | None = None
    tracking: Tracking | None = None
    session: Session | None = None
    ending = FAILED
    with contextlib.ExitStack() as uploads:
        try:
            with (
                _connected(config, display, log, place) as capacity,
                metered(config.budget) as meter,
            ):
                warn_of_local_folders(config.storage.places, capacity, display)
                session = open_session(plan, capacity, display, log)
                sweep = start(session)
                sweep.meter = meter
                # outside the main thread, a lost ledger is detected when the next event is written
                if in_main_thread():
                    sweep.ledger.on_lost = _interrupt_main_thread
                tracking = _start_tracking(sweep)
                logs = [] if log is None else [log.path.name]
                output = None if log is None else log.saved_stderr
                uploads.enter_context(survived(sweep.run.location, head_address(), output))
                uploads.enter_context(uploaded(sweep.run, ["study.journal", *logs]))
                # another driver may take over the run once the ledger is closed
                sweep.ledger.on_close = uploads.close
                search(session, sweep)
            ending = ending_of(sweep)
        except KeyboardInterrupt:
            if sweep is None:
                raise
            if sweep.ledger.lost:
                sweep.ledger.failure = sweep.ledger.lost
                raise InputError(sweep.ledger.lost) from None
            ending = INTERRUPTED
            display.line("run: interrupted; finished rungs are kept")
        except Exception as error:
            input_error = _as_input_error(error, sweep)
            if input_error is None:
                raise
            ending = Ending("failed", str(input_error))
            raise input_error from None
        finally:
            try:
                if sweep is not None:  # Ray has shut down, so no trial is still writing
                    _finish(sweep, session, ending)
            finally:
                if tracking is not None:
                    tracking.finish()
    if ending == INTERRUPTED or (sweep.cause is not None and not sweep.is_done):
        display.line(
            f"run: to resume: {format_resume(sweep.run.location, *options_beyond(sweep.reached_limit))}"
        )
    return RunOutcome(sweep.run, ending)


def job_metadata(config: SweepConfig, place: str | None = None) -> dict[str, str]:
    """Return the metadata for Ray's list of jobs: the sweep's name and, if known, the run's folder."""
    metadata = {"raysweep_sweep": config.name}
    return metadata if place is None else {**metadata, "raysweep_run": place}


@contextlib.contextmanager
def metered(budget: BudgetConfig) -> Iterator[NodeMeter]:
    """Yield a meter for the cluster's nodes. It is updated only if the budget has prices."""
    meter = NodeMeter(budget)
    with nodes.counted(meter.see) if budget.prices else contextlib.nullcontext():
        yield meter


def open_session(plan: Plan, capacity: Capacity, display: Display, log: Log | None) -> Session:
    """Prepare missing artifacts, and determine how many trials run concurrently.

    Raises:
        InputError: If not even one trial fits on the cluster.
    """
    config = plan.config
    max_trials = config.budget.trials + config.replicates.trials
    request = capacity.trials(config.resources)
    # do not request more nodes than the trials can use
    count = min(request.count, max_trials)
    request = replace(request, count=count)
    prepared = prepare(plan, capacity, display)
    names = [artifact.name for artifact in prepared.artifacts]
    # a missing copy counts as 0 bytes
    names.append(find_copy(plan.store.location, prepared.model_identity).name)
    check_room(plan.store.root, names)
    # Imported late because it imports torch.
    from raysweep.ray_tune.workers import WorkbenchSpec, size_trials

    bench = WorkbenchSpec(prepared, config.evaluation, request)
    request = size_trials(bench, plan.space, config.resources, capacity, display)
    return Session(config, plan.space, prepared, request, display, log)


def _start_tracking(sweep: Sweep) -> Tracking | None:
    """Start sending events to the sweep's trackers, beginning with those already in the ledger.

    Return None if no trackers are configured.
    """
    config = sweep.config
    if not config.trackers.named:
        return None
    tracking = Tracking(config.trackers, sweep.run, config.name, sweep.display.warn)
    tracking.take_all(load_events(sweep.run))
    sweep.ledger.listeners.append(tracking.take)
    return tracking


def search(session: Session, sweep: Sweep) -> None:
    """Run the sweep's trials, then score its front on the test split (if there is one) and with its guards."""
    # Imported late because Ray Tune is slow to import and reads environment variables that are now set.
    from raysweep.ray_tune import tune
    from raysweep.ray_tune.workers import WorkbenchSpec

    config = session.config
    watch = None
    untuned = session.untuned(sweep.run)
    if untuned is not None and config.watch is not None:
        watch = untuned.task(config.watch.at)
    bench = WorkbenchSpec(session.prepared, config.evaluation, session.request, watch)
    tune.search(sweep, bench, has_test=session.has_test)
    # Like test scoring, this runs even if the budget is exhausted, because there may be no later session.
    if config.guards:
        with sweep.off_the_clock():
            _measure_guards(sweep)


def _measure_guards(sweep: Sweep) -> None:
    """Score the front's members with the guards, in this process, unless an earlier session has done so."""
    from raysweep.export.guards import measure

    missing = _find_missing_guards(sweep)
    if not missing:
        return
    display = sweep.display
    num_missing = sum(map(len, missing.values()))
    sweep.begin_stage("guards", num_missing)
    num_done = 0
    with answered(sweep) as request_handler:
        for result in measure(sweep.run, sweep.config.guards, missing):
            with uninterrupted():
                request_handler.serve()
            if isinstance(result, InputError):
                display.warn(f"guards: {result}")
                continue
            sweep.ledger.append(GuardsMeasured(scores=(result,)))
            num_done += 1
            display.status(f"guards: {num_done} of {num_missing} scores", num_done / num_missing)
    display.line(f"guards: measured front members (members={len(missing)}, scores={num_done})")


def _find_missing_guards(sweep: Sweep) -> dict[Point, list[str]]:
    """Return the names of the guards that each incomplete front member lacks, keyed by member."""
    guards = sweep.config.guards
    digests = {name: guard.files_digest for name, guard in guards.items()}
    stored = set()
    for score in load(sweep.run).guards:
        if score.files == digests.get(score.guard):
            stored.add((score.trial, score.step, score.kind, score.value, score.guard))
    missing: dict[Point, list[str]] = {}
    for point in sweep.kept_front():
        encoder = name_of_point(point)
        names = [name for name in guards if (*encoder, name) not in stored]
        if names:
            missing[point] = names
    return missing


def ending_of(sweep: Sweep) -> Ending:
    """Return how a sweep ended, once its search is finished."""
    if sweep.given_up is not None:
        return Ending("failed", sweep.given_up, is_final=True)
    if sweep.cause is not None and not sweep.is_done:
        return Ending("budget", sweep.cause.reason)
    scheduler = sweep.scheduler
    return PLATEAU if scheduler.on_plateau and scheduler.has_more else COMPLETED


def _finish(sweep: Sweep, session: Session | None, ending: Ending) -> None:
    """Record how the sweep ended, and print its costs."""
    with contextlib.suppress(KeyboardInterrupt):  # the report does not require these files
        if session is not None and sweep.ledger.failure is None:
            keep_readings(session, sweep)
    with undisturbed():
        sweep.finish(*ending)
    results = load(sweep.run)
    account = build_account(results)
    max_replicates = sweep.scheduler.replicates.trials
    display = sweep.display
    display.line(f"run: {sentence(account, max_replicates)}")
    if results.nodes:
        bill = build_bill(results)
        display.line(f"run: {bill_text(bill)}")
    size = measure_size(sweep.run)
    command = format_command("prune", sweep.run.location, "--checkpoints")
    remedy = f"; to remove the checkpoints: {command}" if size.checkpoints else ""
    display.line(f"run: {size} in {sweep.run.location}{remedy}")


def keep_readings(session: Session, sweep: Sweep) -> None:
    """Store the sentences that the front's members retrieve.

    Failures only cause a warning, because the run's results do not depend on these sentences.
    """
    try:
        session.readings_writer(sweep.run).write(sweep.front)
    except Exception as error:  # damaged files can raise any error
        sweep.display.warn(f"run: cannot store the sentences that the front retrieves: {error}")


def _interrupt_main_thread() -> None:
    """Interrupt the main thread as Ctrl-C does.

    Called when another driver has taken over the run. During long rungs, the main thread might not detect this for a long
    time.
    """
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)


def _as_input_error(error: Exception, sweep: Sweep | None) -> InputError | None:
    """Return an InputError if the user can fix the cause, otherwise None.

    Ray Tune wraps exceptions from callbacks, so the ledger's failure is checked first.
    """
    if sweep is not None and sweep.ledger.failure:
        return (
            InputError(sweep.ledger.failure)
            if sweep.ledger.lost
            else TemporaryError(sweep.ledger.failure)
        )
    if problem := storage_problem(error):
        command = "run the same command" if sweep is None else format_resume(sweep.run.location)
        return TemporaryError(f"{problem}; once it is writable: {command}")
    return error if isinstance(error, InputError) else None


def check_writable(key: str, place_name: str, display: Display) -> None:
    """Raise InputError if files cannot be created in a folder or its nearest existing parent."""
    folder = open_folder(place_name, display.warn)
    try:
        if isinstance(folder, BucketFolder):
            name = f".probe-{uuid.uuid4().hex[:8]}"
            bucket = folder.bucket
            bucket.check()
            bucket.write(name, b"")
            bucket.delete([name])
        else:
            place = folder.path
            while not place.exists():
                place = place.parent
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError as error:
        raise InputError(f"{key}: cannot write to {folder.location}: {error.strerror}") from None


def warn_of_local_folders(places: Mapping[str, str], capacity: Capacity, display: Display) -> None:
    """Warn if local folders are used on a cluster with several nodes.

    ``places`` maps configuration keys to locations.
    """
    local = [f"{key} is {place}" for key, place in places.items() if not location.is_uri(place)]
    if local and capacity.has_several_nodes:
        display.warn(
            f"{' and '.join(local)}, but the cluster has several nodes; mount the same folder at this path on every node "
            "(NFS, EFS), or use a bucket (s3://BUCKET/PREFIX or gs://BUCKET/PREFIX)"
        )
