"""A whole run, stage after stage: prepare, the reference and oracle points, search, test scores. The CLI's ``run``."""

import contextlib
import dataclasses
import datetime
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import yaml

from raysweep.cluster import Request, connected
from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig, SweepConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError, ReplayError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.metrics import retrieval
from raysweep.metrics.oracle import DEFAULT_BONUSES, oracle_front
from raysweep.prepare.build import prepare
from raysweep.prepare.plan import make_plan
from raysweep.results.account import account_of, sentence
from raysweep.results.events import PointsScored, SessionStarted
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import Point, Results, RunInfo, ScoredSplit
from raysweep.search.scheduler import Scheduler, make_scheduler
from raysweep.sweep import warm_start as warm
from raysweep.sweep.budget import CostTracker
from raysweep.sweep.optuna_study import StudyFile
from raysweep.sweep.resume import Resumed
from raysweep.sweep.sweep import Sweep
from raysweep.terminal import Display, Log
from raysweep.version import __version__


def prepare_only(config: SweepConfig, space: Space, display: Display) -> Path:
    """Build what the sweep would read and return the file that :meth:`Prepared.open` takes."""
    plan = make_plan(config, space)
    if plan.missing:
        with connected(config.resources) as capacity:
            prepared = prepare(plan, capacity, display)
    else:
        prepared = prepare(plan, None, display)
    path = config.storage.artifacts_folder / f"{config.name}.prepared.json"
    prepared.save(path)
    return path


def run(
    config: SweepConfig,
    space: Space,
    display: Display,
    log: Log,
    *,
    resumed: Resumed | None = None,
    warm_start: Sequence[Path] = (),
) -> tuple[Path, bool]:
    """Run a sweep, or go on with one, and return its folder and whether it was interrupted.

    Its results are there to report either way. ``warm_start`` are runs whose trials a new sweep learns from.
    """
    check_writable("storage.runs", config.storage.runs)
    check_writable("storage.artifacts", config.storage.artifacts_folder)
    older = [load(folder) for folder in warm_start]
    plan = make_plan(config, space)
    sweep: Sweep | None = None
    status, reason = "failed", "an error that raysweep did not expect"
    try:
        with connected(config.resources) as capacity, _terminated_as_interrupted():
            request = capacity.trials(config.resources)
            prepared = prepare(plan, capacity, display)
            if config.resources.gpus_per_trial == "measured" and request.gpus:
                request = _packed(request, config, space, prepared, display)
            if resumed is None:
                sweep = _begin(config, space, prepared, request, display, log, older)
            else:
                sweep = _go_on(config, space, prepared, request, display, log, resumed)
            from raysweep.runner.tune import search
            from raysweep.runner.workers import score_test

            search(sweep, prepared, request)
            if sweep.front and len(prepared.sentences.ids("test")):
                score_test(sweep, prepared, request)
        status, reason = "completed", "all trials are done"
        if sweep.cause is not None:
            status, reason = "budget", sweep.cause.reason
        elif sweep.scheduler.on_plateau and sweep.scheduler.has_more:
            status, reason = "plateau", "the front's hypervolume has stopped growing"
    except KeyboardInterrupt:
        if sweep is None:
            raise
        status, reason = "interrupted", "Ctrl-C or a signal"
        display.line("run: interrupted; the rungs that were finished are reported")
    finally:
        if sweep is not None:  # Ray is down by now, so no trial writes any more
            sweep.finish(status, reason)
            display.line(f"run: {sentence(account_of(load(sweep.folder)), sweep.scheduler.replicates.trials)}")
    if status in ("interrupted", "budget"):
        more = f" --{sweep.cause.key} MORE" if sweep.cause else ""
        display.line(f"run: to go on: raysweep run --resume {sweep.folder}{more}")
    return sweep.folder, status == "interrupted"


def _packed(request: Request, config: SweepConfig, space: Space, prepared: Prepared, display: Display) -> Request:
    """As many trials on each GPU as the space's most demanding ones leave room for."""
    from raysweep.runner.workers import measure_memory

    peak, total = measure_memory(prepared, config.evaluation, space.largest(), request)
    packed = request.packed(peak, total)
    if limit := config.resources.max_concurrent_trials:
        packed = dataclasses.replace(packed, count=min(packed.count, limit))
    display.line(
        f"search: a trial takes {peak / 2**30:.2f} of a GPU's {total / 2**30:.1f} GiB: {round(1 / packed.gpus)} on each GPU"
    )
    return packed


def _begin(
    config: SweepConfig,
    space: Space,
    prepared: Prepared,
    request: Request,
    display: Display,
    log: Log,
    older: Sequence[Results],
) -> Sweep:
    """Make the run's folder and write down what it is to be."""
    ledger = Ledger(_new_folder(config))
    log.move(ledger.folder / "run.log")
    _write_config(ledger.folder, config)
    prepared.save(ledger.folder / "prepared.json")
    display.line(f"run: {ledger.folder}")
    sets = _evaluation_sets(config, prepared)
    reference = sets["dev"].reference_scores
    pair = (float(reference.polarity.mean()), float(reference.similarity.mean()))
    scheduler = make_scheduler(config, space, pair)
    if older:
        lesson = warm.gather(older, space, pair)
        warm.write(ledger.folder, lesson)
        warm.apply(scheduler.proposer, lesson)
        display.line(f"search: {lesson.summary}")
    sweep = _sweep(config, scheduler, ledger, display, request)
    _write_info(sweep, prepared, sets)
    ledger.append(PointsScored(points=tuple(point for one in sets.values() for point in _limits(one))))
    _announce(sweep, request)
    return sweep


def _go_on(
    config: SweepConfig,
    space: Space,
    prepared: Prepared,
    request: Request,
    display: Display,
    log: Log,
    resumed: Resumed,
) -> Sweep:
    """Bring a sweep back to where its ledger ends."""
    folder = resumed.folder
    log.move(resumed.next_log())
    resumed.check_data(prepared)
    display.line(f"run: {folder}, resumed")
    try:
        sweep = _replayed(config, space, request, display, resumed, adopt=resumed.space_grew)
    except ReplayError as error:
        # Another version of Optuna, or a space that grew before. The trials count all the same; only proposals differ.
        display.warn(f"resume: {error}: the sampler starts afresh from the trials that there are")
        sweep = _replayed(config, space, request, display, resumed, adopt=True)
    _write_config(folder, config)  # now that nothing is refused any more
    prepared.save(folder / "prepared.json")
    _write_info(sweep, prepared, _evaluation_sets(config, prepared))
    _announce(sweep, request)
    return sweep


def _replayed(
    config: SweepConfig, space: Space, request: Request, display: Display, resumed: Resumed, *, adopt: bool
) -> Sweep:
    # Random draws that were made already must not come again.
    offset = len(resumed.events) if adopt else 0
    scheduler = make_scheduler(config, space, resumed.reference, seed_offset=offset)
    sweep = _sweep(config, scheduler, resumed.ledger, display, request)
    try:
        if (lesson := warm.read(resumed.folder)) is not None:
            warm.apply(scheduler.proposer, lesson, first=not adopt)
        sweep.replay(resumed.events, adopt=adopt)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"space: {error}; trials that were run must lie in it") from None
    return sweep


def _sweep(config: SweepConfig, scheduler: Scheduler, ledger: Ledger, display: Display, request: Request) -> Sweep:
    study = StudyFile(ledger.folder / "study.journal", config.name, scheduler.proposer)
    return Sweep(config, scheduler, ledger, display, CostTracker(config.budget, request.cpus, request.gpus), study)


def _announce(sweep: Sweep, request: Request) -> None:
    most, begun, replicates = sweep.scheduler.num_trials, sweep.scheduler.num_begun, sweep.scheduler.replicates
    sweep.display.line(
        f"search: {most} trials{f', {begun} of them begun' if begun else ''}, "
        f"{f'up to {replicates.trials} replicates, ' if replicates.trials else ''}{request.count} at a time, "
        f"each on {request.cpus:g} CPUs and {request.gpus:g} GPUs"
    )


def _write_config(folder: Path, config: SweepConfig) -> None:
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    temporary = folder / ".config.yaml"
    temporary.write_text(settings, encoding="utf-8")
    temporary.replace(folder / "config.yaml")


def check_writable(key: str, folder: Path) -> None:
    """InputError unless files can be made in ``folder``, or in the nearest folder above that exists. Leaves nothing."""
    import tempfile

    place = folder.absolute()
    try:
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise InputError(f"{key}: cannot write to {folder}: {error.strerror}") from None


def _new_folder(config: SweepConfig) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        folder = config.storage.runs.absolute() / f"{config.name}-{stamp}{suffix}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            (folder / "points").mkdir()
            return folder
    raise AssertionError("a thousand runs in one second")


def _evaluation_sets(config: SweepConfig, prepared: Prepared) -> dict[ScoredSplit, EvaluationSet]:
    splits: list[ScoredSplit] = ["dev", "test"] if len(prepared.sentences.ids("test")) else ["dev"]
    return {split: EvaluationSet.of(prepared, split, config.evaluation) for split in splits}


def _write_info(sweep: Sweep, prepared: Prepared, sets: Mapping[ScoredSplit, EvaluationSet]) -> None:
    """A session's first event: the settings."""
    config = sweep.config
    info = RunInfo(
        name=config.name,
        version=__version__,
        dataset=", ".join(source for source in (config.data.train, config.data.dev, config.data.test) if source),
        model=_describe(config.model),
        reference=_describe(config.reference_encoder),
        k=config.evaluation.k,
        rank_weights=config.evaluation.rank_weights,
        polarity_weight=config.objective.polarity_weight,
        similarity=config.objective.similarity,
        num_trials=sweep.scheduler.num_trials,
        num_queries={split: len(one.queries) for split, one in sets.items()},
        num_pool={split: len(one.pool) for split, one in sets.items()},
        label_names=tuple(prepared.sentences.label_names),
        seed=config.seed,
        constraints={name: least for name, least in config.objective.constraints.model_dump().items() if least},
    )
    sweep.ledger.append(SessionStarted(info=info))


def _limits(one: EvaluationSet) -> Iterator[Point]:
    """The points between which every front lies: the reference encoder's, and the oracle's."""
    width = one.reference_queries.shape[1]
    where: dict[str, Any] = {"trial": None, "step": None}
    yield one.point(one.reference_scores, kind="reference", value=None, width=width, **where)
    totals = np.zeros((len(DEFAULT_BONUSES), 2))
    for start in range(0, len(one.queries), retrieval.QUERIES_PER_BLOCK):
        block = slice(start, start + retrieval.QUERIES_PER_BLOCK)
        cosines = one.reference_queries[block] @ one.reference_pool.T
        same = one.query_labels[block, None] == one.pool_labels
        totals += len(cosines) * oracle_front(cosines, same, one.weights)
    for bonus, (polarity, similarity) in zip(DEFAULT_BONUSES, totals / len(one.queries), strict=True):
        # Means only: the oracle is no encoder, so there is nothing whose spread over queries could be asked for.
        scores = retrieval.Scores(np.full(1, polarity), np.full(1, similarity))
        yield one.point(scores, kind="oracle", value=bonus, width=None, **where)


def _describe(encoder: EncoderConfig) -> str:
    return encoder.name + (f"@{encoder.revision}" if encoder.revision else "")


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A terminated process winds up as one that got Ctrl-C: what a scheduler or a spot machine sends comes as SIGTERM."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
