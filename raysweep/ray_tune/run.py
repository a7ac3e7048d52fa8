"""A whole run, stage after stage: prepare, points of no trial, search, test scores. The CLI's ``run``."""

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
    """How a session of a sweep ended: the status that its ledger keeps, why, and whether it failed for good."""

    status: str
    reason: str
    is_final: bool = False


COMPLETED = Ending("completed", "all trials are done")
PLATEAU = Ending("plateau", "the front's hypervolume has stopped growing")
INTERRUPTED = Ending("interrupted", "Ctrl-C or a signal")
FAILED = Ending("failed", "an error that raysweep did not expect")


@dataclass(frozen=True)
class RunOutcome:
    """A run, whose results can be reported however it ended, and how that was."""

    run: Folder
    ending: Ending

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or a signal ended it."""
        return self.ending == INTERRUPTED


@contextlib.contextmanager
def _interrupted_once() -> Iterator[None]:
    """Within, the first Ctrl-C or SIGTERM interrupts, and further ones are ignored, so that winding up is not disturbed.

    SIGTERM is what a batch scheduler or a spot machine sends. Does nothing outside the main thread, which alone may set
    signal handlers.
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
    """Build what the sweep would read and return the path or URI of the file that :meth:`Prepared.open` takes."""
    limit_gib()  # refused now rather than after minutes
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
def run(  # noqa: PLR0913 (one argument for each way in which a run begins)
    config: SweepConfig,
    space: Space,
    display: Display,
    log: Log | None = None,
    *,
    resumed: Resumed | None = None,
    warm_start: Sequence[Folder] = (),
    place: str | None = None,
) -> RunOutcome:
    """Run a sweep, or with ``resumed`` go on with one; ``warm_start`` are runs whose trials a new sweep learns from.

    A new run's folder is named after the sweep and the time, or is the one at ``place``.

    ``display`` is told the progress. The ``log`` takes what libraries and workers print and moves into the run's folder;
    without one nothing is redirected, and what workers print stays in Ray's own logs. Raises InputError for what the user
    can mend, and KeyboardInterrupt when interrupted before the run has begun; later an interruption is an ordinary ending.
    """
    with contextlib.ExitStack() as closing:
        if resumed is not None:
            closing.callback(resumed.ledger.close)  # however this ends, others may have the run then
        limit_gib()  # refused now rather than after minutes
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
        prepared_before = (
            None if resumed is None else resumed.prepared
        )  # rejects a damaged file before sources are read
        plan = make_plan(config, space)
        if resumed is not None and prepared_before is not None:
            resumed.check_data(prepared_before, plan.prepared)  # before anything is prepared anew
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
                if in_main_thread():  # elsewhere the next event finds that it is lost
                    sweep.ledger.on_lost = _interrupt_main_thread
                tracking = _tracked(sweep, display)
                growing = ["study.journal", *([log.path.name] if log is not None else [])]
                uploads.enter_context(uploaded(sweep.run, growing))
                sweep.ledger.on_close = uploads.close  # afterwards the run may be another driver's
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
                if sweep is not None:  # Ray is down by now, so no trial writes any more
                    _wind_up(sweep, session, ending)
            finally:
                if tracking is not None:
                    tracking.finish()
    if ending == INTERRUPTED or sweep.cause is not None:
        more_budget = f" --{sweep.cause.key} TOTAL" if sweep.cause else ""
        display.line(f"run: to go on: raysweep run --resume {sweep.run.location}{more_budget}")
    return RunOutcome(sweep.run, ending)


def _wind_up(sweep: Sweep, session: Session | None, ending: Ending) -> None:
    """Write how the sweep ended, without which it would be taken for one that was killed."""
    with contextlib.suppress(KeyboardInterrupt):  # the report does without what is missing then
        if session is not None and sweep.ledger.failure is None:
            session.keep_readings(sweep)
    with undisturbed():
        sweep.finish(*ending)
    _tell_costs(sweep)


def _tracked(sweep: Sweep, display: Display) -> Tracking | None:
    """What feeds the sweep's trackers from now on, once they were given what its ledger holds; None where it has none."""
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
    """As Ctrl-C does, for a thread that finds the run taken by another driver: trials may be in the middle of long rungs."""
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)


def _known_failure(error: Exception, sweep: Sweep | None) -> InputError | None:
    """What its user can mend of what ended a sweep. Tune wraps what its callbacks raise."""
    failure = None if sweep is None else sweep.ledger.failure
    if problem := failure or _problem_of_storage(error):
        return InputError(problem)
    return error if isinstance(error, InputError) else None


def _problem_of_storage(error: Exception) -> str | None:
    """What a storage refused, where that is behind an error, and how to go on."""
    problem = storage_problem(error)
    return (
        problem
        and f"{problem}; once it can be written to: raysweep run --resume RUN, or if no run began the same command"
    )


def ending_of(sweep: Sweep) -> Ending:
    """How a sweep ended that handed out all it wanted to."""
    if sweep.given_up is not None:
        return Ending("failed", sweep.given_up, is_final=True)
    if sweep.cause is not None and not sweep.is_done:
        return Ending("budget", sweep.cause.reason)
    scheduler = sweep.scheduler
    return PLATEAU if scheduler.on_plateau and scheduler.has_more else COMPLETED


def check_writable(key: str, place_name: str, display: Display) -> None:
    """InputError unless files can be made in a folder, or in the nearest one above that exists. Leaves nothing."""
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
    """Warn in one line if nodes other than the driver's may not see a folder. ``places`` has locations by their keys."""
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
