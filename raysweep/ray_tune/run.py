"""A complete run, stage by stage: prepare, baselines, search, test scores. The CLI's ``run``."""

import contextlib
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import NamedTuple

from raysweep.cluster.resources import Capacity, connected
from raysweep.config import packages
from raysweep.config.space import Space
from raysweep.config.sweep import SweepConfig
from raysweep.controller.resume import Resumed
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.prepare.build import prepare
from raysweep.prepare.plan import Plan, make_plan
from raysweep.ray_tune.baselines import Baselines
from raysweep.ray_tune.node_watch import metered
from raysweep.ray_tune.session import Session
from raysweep.results.account import account_of, sentence
from raysweep.results.bill import bill_of, bill_text
from raysweep.results.ledger import events_of
from raysweep.results.reader import load
from raysweep.storage import location
from raysweep.storage.cache import limit_gib
from raysweep.storage.failure import storage_problem
from raysweep.storage.folder import BucketFolder, Folder, open_folder
from raysweep.storage.uploader import uploaded
from raysweep.terminal import Display, Log, in_main_thread, interrupt, undisturbed
from raysweep.trackers import opening
from raysweep.trackers.tracking import Tracking


class Ending(NamedTuple):
    """How a session of a sweep ended: the status stored in the ledger, the reason, and whether it failed for good."""

    status: str
    reason: str
    is_final: bool = False


COMPLETED = Ending("completed", "all trials are done")
PLATEAU = Ending("plateau", "the front's hypervolume has stopped growing")
INTERRUPTED = Ending("interrupted", "Ctrl-C or a signal")
FAILED = Ending("failed", "an error that raysweep did not expect")


@dataclass(frozen=True)
class RunOutcome:
    """A run, which can be reported however it ended, and its ending."""

    run: Folder
    ending: Ending

    @property
    def interrupted(self) -> bool:
        """Return whether Ctrl-C or a signal ended the run."""
        return self.ending == INTERRUPTED


@contextlib.contextmanager
def _interrupted_once() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM interrupt and ignore further ones, so that the shutdown is not disturbed.

    Batch schedulers and spot machines send SIGTERM. Does nothing outside the main thread, since only the main thread
    may set signal handlers.
    """
    if not in_main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        interrupt()

    before = [signal.signal(each, on_signal) for each in numbers]
    try:
        yield
    finally:
        for each, handler in zip(numbers, before, strict=True):
            signal.signal(each, handler)


@_interrupted_once()
def prepare_only(config: SweepConfig, space: Space, display: Display) -> str:
    """Build the sweep's artifacts and return the path or URI of the file that :meth:`Prepared.open` reads."""
    limit_gib()  # fail now rather than minutes later
    packages.check(packages.needs_of_sweep(config, space))
    check_writable(config.storage.artifacts_key, config.storage.artifacts_location, display)
    plan = make_plan(config, space)
    if plan.missing:
        with connected(config.resources, show_workers=False) as capacity:
            place_name = config.storage.artifacts or config.storage.runs
            warn_of_local_folders({config.storage.artifacts_key: place_name}, capacity, display)
            prepared = prepare(plan, capacity, display)
    else:
        prepared = prepare(plan, None, display)
    place = open_folder(config.storage.artifacts_location, display.warn)
    name = f"{config.name}.prepared.json"
    place.path.mkdir(parents=True, exist_ok=True)
    prepared.save(place.path / name)
    place.store(name)
    return location.join(place.location, name)


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
    """Run a new sweep, or continue the ``resumed`` one.

    Args:
        config: The sweep's configuration.
        space: The search space.
        display: Receives the progress.
        log: Captures the output of libraries and workers and moves into the run's folder. If None, nothing is
            redirected and the workers' output stays in Ray's own logs.
        resumed: The run to resume; None for a new run.
        warm_start: Runs whose trials a new sweep learns from.
        place: The folder of a new run. By default it is named after the sweep and the time.

    Raises:
        InputError: For problems that the user can fix.
        KeyboardInterrupt: If interrupted before the run has started; a later interruption is a normal ending.
    """
    with contextlib.ExitStack() as closing:
        if resumed is not None:
            closing.callback(resumed.ledger.close)  # releases the run for other drivers, however this ends
        limit_gib()  # fail now rather than minutes later
        packages.check(packages.needs_of_sweep(config, space))
        check_writable("storage.runs", config.storage.runs, display)
        check_writable(config.storage.artifacts_key, config.storage.artifacts_location, display)
        opening.check(config.trackers, config.storage.runs)
        if config.guards:
            from raysweep.export import guards as measure

            measure.check(config.guards, display.warn)
        if resumed is None:
            Baselines.check(config.baselines)
        older = [load(each) for each in warm_start]
        prepared = None if resumed is None else resumed.prepared  # a damaged file is rejected before sources are read
        plan = make_plan(config, space)
        if resumed is not None and prepared is not None:
            resumed.check_data(prepared, plan.prepared)  # before anything is prepared again
        begin = (
            partial(Session.begin, older=older, place=place)
            if resumed is None
            else partial(Session.resume, resumed=resumed)
        )
        return _run(plan, display, log, begin)


def _run(plan: Plan, display: Display, log: Log | None, begin: Callable[[Session], Sweep]) -> RunOutcome:
    sweep: Sweep | None = None
    tracking: Tracking | None = None
    session: Session | None = None
    ending = FAILED
    with contextlib.ExitStack() as uploads:
        try:
            with (
                connected(plan.config.resources, show_workers=log is not None) as capacity,
                metered(plan.config.budget) as meter,
            ):
                storage = plan.config.storage
                places = {"storage.runs": storage.runs, storage.artifacts_key: storage.artifacts or storage.runs}
                warn_of_local_folders(places, capacity, display)
                session = Session.open(plan, capacity, display, log)
                sweep = begin(session)
                sweep.meter = meter
                if in_main_thread():  # in other threads the next event detects the loss
                    sweep.ledger.on_lost = _interrupt_main_thread
                tracking = _tracked(sweep, display)
                growing = ["study.journal", *([log.path.name] if log is not None else [])]
                uploads.enter_context(uploaded(sweep.run, growing))
                sweep.ledger.on_close = uploads.close  # afterwards the run may belong to another driver
                session.search(sweep)
            ending = ending_of(sweep)
        except KeyboardInterrupt:
            if sweep is None:
                raise
            if sweep.ledger.lost:
                sweep.ledger.failure = sweep.ledger.lost
                raise InputError(sweep.ledger.lost) from None
            ending = INTERRUPTED
            display.line("run: interrupted; the rungs that were finished are reported")
        except Exception as error:
            known = _known_failure(error, sweep)
            if known is None:
                raise
            ending = Ending("failed", str(known))
            raise known from None
        finally:
            try:
                if sweep is not None:  # Ray is already down, so no trial writes any more
                    _wind_up(sweep, session, ending)
            finally:
                if tracking is not None:
                    tracking.finish()
    if ending == INTERRUPTED or sweep.cause is not None:
        more_budget = f" --{sweep.cause.key} TOTAL" if sweep.cause else ""
        display.line(f"run: to go on: raysweep run --resume {sweep.run.location}{more_budget}")
    return RunOutcome(sweep.run, ending)


def _wind_up(sweep: Sweep, session: Session | None, ending: Ending) -> None:
    """Record how the sweep ended; without this record the sweep would look killed."""
    with contextlib.suppress(KeyboardInterrupt):  # the report copes with missing files
        if session is not None and sweep.ledger.failure is None:
            session.keep_readings(sweep)
    with undisturbed():
        sweep.finish(*ending)
    _tell_costs(sweep)


def _tracked(sweep: Sweep, display: Display) -> Tracking | None:
    """Return the running feed of the sweep's trackers, or None if no trackers are configured.

    Events already in the ledger are passed on first.
    """
    config = sweep.config
    if not config.trackers.named:
        return None
    tracking = Tracking(config.trackers, sweep.run, config.name, display.warn)
    tracking.take_all(events_of(sweep.run))
    sweep.ledger.on_append = tracking.take
    return tracking


def _tell_costs(sweep: Sweep) -> None:
    results = load(sweep.run)
    sweep.display.line(f"run: {sentence(account_of(results), sweep.scheduler.replicates.trials)}")
    if results.nodes:
        sweep.display.line(f"run: {bill_text(bill_of(results))}")


def _interrupt_main_thread() -> None:
    """Interrupt the main thread like Ctrl-C.

    Called from a thread that finds that another driver has taken over the run, since trials may be in the middle of
    long rungs.
    """
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)


def _known_failure(error: Exception, sweep: Sweep | None) -> InputError | None:
    """Return an error that the user can fix, or None.

    Exceptions raised in callbacks arrive wrapped by Tune.
    """
    failure = None if sweep is None else sweep.ledger.failure
    if problem := failure or _problem_of_storage(error):
        return InputError(problem)
    return error if isinstance(error, InputError) else None


def _problem_of_storage(error: Exception) -> str | None:
    """Return the storage failure behind an error, with instructions to resume; None for other errors."""
    problem = storage_problem(error)
    return (
        problem
        and f"{problem}; once it can be written to: raysweep run --resume RUN, or if no run began the same command"
    )


def ending_of(sweep: Sweep) -> Ending:
    """Return how a sweep ended that had handed out all its work."""
    if sweep.given_up is not None:
        return Ending("failed", sweep.given_up, is_final=True)
    if sweep.cause is not None and not sweep.is_done:
        return Ending("budget", sweep.cause.reason)
    scheduler = sweep.scheduler
    return PLATEAU if scheduler.on_plateau and scheduler.has_more else COMPLETED


def check_writable(key: str, place_name: str, display: Display) -> None:
    """Raise InputError unless files can be created in a folder or its nearest existing parent.

    Leaves nothing behind.
    """
    folder = open_folder(place_name, display.warn)
    if isinstance(folder, BucketFolder):
        _check_bucket(key, folder)
        return
    place = folder.path
    try:
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise InputError(f"{key}: cannot write to {folder.location}: {error.strerror}") from None


def warn_of_local_folders(places: Mapping[str, str], capacity: Capacity, display: Display) -> None:
    """Warn in one line if other nodes may not see a local folder.

    ``places`` maps keys to locations.
    """
    local = [f"{key} is {place}" for key, place in places.items() if not location.is_uri(place)]
    if local and capacity.has_several_nodes:
        display.warn(
            f"{' and '.join(local)}, but the cluster has several nodes: every node must mount the same folder at this path "
            "(NFS, EFS); otherwise name a bucket, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
        )


def _check_bucket(key: str, folder: BucketFolder) -> None:
    name = f".probe-{uuid.uuid4().hex[:8]}"
    try:
        folder.bucket.check()
        folder.bucket.write(name, b"")
        folder.bucket.delete([name])
    except OSError as error:
        raise InputError(f"{key}: cannot write to {folder.location}: {error.strerror}") from None
