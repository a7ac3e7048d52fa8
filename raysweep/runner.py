"""A whole run, stage after stage: prepare, the reference and oracle points, search, test scores. The CLI's ``run``."""

import contextlib
import dataclasses
import datetime
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import yaml

from raysweep import __version__, metrics
from raysweep.artifacts import Prepared
from raysweep.cluster import connected
from raysweep.config import EncoderConfig, SweepConfig
from raysweep.errors import InputError
from raysweep.evaluation import EvaluationSet
from raysweep.pareto import DEFAULT_BONUSES, oracle_front
from raysweep.prepare import Plan, prepare
from raysweep.progress import Display, Log
from raysweep.proposals import Proposals
from raysweep.results import Ledger, Point, RunInfo, Split
from raysweep.space import Space
from raysweep.sweep import Sweep, plain_point


def prepare_only(config: SweepConfig, space: Space, display: Display) -> Path:
    """Build what the sweep would read and return the file that :meth:`Prepared.open` takes."""
    plan = Plan(config, space)
    if plan.missing:
        with connected(config.resources) as capacity:
            prepared = prepare(plan, capacity, display)
    else:
        prepared = prepare(plan, None, display)
    path = config.storage.artifacts_folder / f"{config.name}.prepared.json"
    prepared.save(path)
    return path


def run(config: SweepConfig, space: Space, display: Display, log: Log) -> tuple[Path, bool]:
    """Run a sweep and return its folder and whether it was interrupted. Its results are there to report either way."""
    check_writable(config.storage.runs)
    plan = Plan(config, space)
    with connected(config.resources) as capacity:
        prepared = prepare(plan, capacity, display)
        request = capacity.trials(config.resources)
        ledger = Ledger(_new_folder(config))
        log.move(ledger.folder / "run.log")
        (ledger.folder / "config.yaml").write_text(
            yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), encoding="utf-8"
        )
        display.line(f"run: {ledger.folder}")
        _write_settings(config, prepared, ledger)
        sweep = Sweep(config, Proposals(space, config.sampler, config.seed), ledger, display, request.gpus)
        display.line(
            f"search: {sweep.num_trials} trials of up to {config.budget.rungs} rungs, {request.count} at a time on "
            f"{request.cpus:g} CPUs and {request.gpus:g} GPUs each"
        )
        from raysweep.search import score_test, search

        try:
            with _terminated_as_interrupted():
                search(sweep, prepared, request)
                if sweep.front() and len(prepared.sentences.ids("test")):
                    score_test(sweep, prepared, request)
        except KeyboardInterrupt:
            sweep.interrupt()
            sweep.finish("interrupted", "Ctrl-C or a signal")
            return ledger.folder, True
        spent = f"the {config.budget.minutes:g} minutes were spent" if sweep.out_of_time else "all trials are done"
        sweep.finish("budget" if sweep.out_of_time else "completed", spent)
    return ledger.folder, False


def check_writable(folder: Path) -> None:
    """InputError unless files can be made in ``folder``, or in the nearest folder above that exists. Leaves nothing."""
    import tempfile

    place = folder.absolute()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise InputError(f"storage.runs: cannot write to {folder}: {error.strerror}") from None


def _new_folder(config: SweepConfig) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = config.storage.runs.absolute() / f"{config.name}-{stamp}"
    (folder / "points").mkdir(parents=True)
    return folder


def _write_settings(config: SweepConfig, prepared: Prepared, ledger: Ledger) -> None:
    """The ledger's first events: the settings, and on each split the reference's point and the oracle's."""
    splits: list[Split] = ["dev", "test"] if len(prepared.sentences.ids("test")) else ["dev"]
    sets = {split: EvaluationSet.of(prepared, split, config.evaluation) for split in splits}
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
        num_trials=config.budget.trials,
        num_queries={split: len(one.queries) for split, one in sets.items()},
        num_pool={split: len(one.pool) for split, one in sets.items()},
        label_names=tuple(prepared.sentences.label_names),
        seed=config.seed,
    )
    ledger.append("run", **dataclasses.asdict(info))
    points = [point for one in sets.values() for point in _limits(one)]
    ledger.append("points", points=[{"trial": None, "step": None, **plain_point(point)} for point in points])


def _limits(one: EvaluationSet) -> Iterator[Point]:
    """The points between which every front lies: the reference encoder's, and the oracle's."""
    width = one.reference_queries.shape[1]
    where: dict[str, Any] = {"trial": None, "step": None}
    yield one.point(one.reference_scores, kind="reference", value=None, width=width, **where)
    cosines = one.reference_queries @ one.reference_pool.T
    same = one.query_labels[:, None] == one.pool_labels
    for bonus, (polarity, similarity) in zip(DEFAULT_BONUSES, oracle_front(cosines, same, one.weights), strict=True):
        # Means only: the oracle is no encoder, so there is nothing whose spread over queries could be asked for.
        scores = metrics.Scores(np.full(1, polarity), np.full(1, similarity))
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
