"""Training and evaluation of one trial, without Ray."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.results.types import RungProgress
from raysweep.results.watched import Watched
from raysweep.storage.folder import Folder
from raysweep.training.progress import Pace, Progress
from raysweep.training.sequence_bench import SequenceBench
from raysweep.training.workbench import RungResult, Workbench


def trial_seed(sweep_seed: int, config: TrialConfig, run: int = 0) -> int:
    """Return a trial's random seed, in [0, 2**32), hashed from the sweep's seed and the configuration.

    Replicates of a configuration have different seeds. ``run`` is the replicate's number, starting at 1.
    """
    parts = [sweep_seed, config.identity]
    if run:
        parts.append(run)
    text = json.dumps(parts, sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "big")


def run_trial(  # noqa: PLR0913 (public API)
    config: TrialConfig,
    prepared: Prepared,
    *,
    seed: int = 0,
    num_rungs: int | None = None,
    evaluation: EvaluationConfig | None = None,
    device: str | None = None,
    checkpoints: str | Path | Folder | None = None,
    on_rung: Callable[[RungResult], bool | None] = lambda rung: None,
) -> list[RungResult]:
    """Train and evaluate one configuration in this process, without Ray.

    Args:
        num_rungs: Number of rungs, 6 by default. For a sequence, it is the number of data sets and cannot be changed.
        device: Device for training, by default a GPU if available.
        checkpoints: Folder for checkpoints. If it already contains one, the trial resumes from it. If that checkpoint
            is from the end of a rung, the rung's result is returned again.
        on_rung: Function that is called with each rung's result. It can return False to stop the trial.

    Raises:
        TrialDivergedError: If the loss is not finite.
        InputError: If ``seed`` is negative or ``num_rungs`` is not allowed.
    """
    if seed < 0:
        raise InputError(f"seed is {seed}; allowed: 0 or more")
    num_tasks = len(prepared.tasks)
    if num_rungs is None:
        num_rungs = num_tasks or 6
    if num_tasks and num_rungs != num_tasks:
        raise InputError(f"num_rungs is {num_rungs}; allowed: {num_tasks}, one for each data set")
    if num_rungs < 1:
        raise InputError(f"num_rungs is {num_rungs}; allowed: 1 or more")
    kind = SequenceBench if num_tasks else Workbench
    workbench = kind(prepared, evaluation or EvaluationConfig(), device or encoder.best_device())
    results: list[RungResult] = []
    for result in rungs(config, workbench, seed=seed, num_rungs=num_rungs, checkpoints=checkpoints):
        results.append(result)
        if on_rung(result) is False:
            break
    return results


def rungs(
    config: TrialConfig,
    workbench: Workbench,
    *,
    seed: int,
    num_rungs: int,
    checkpoints: str | Path | Folder | None = None,
    checkpoint_seconds: float = 300.0,
) -> Iterator[RungResult]:
    """Train rung by rung and yield each result.

    At each yield, the model in ``workbench`` has that rung's weights. If ``checkpoints`` is given, the state is saved in
    that folder after each rung and every ``checkpoint_seconds`` within rungs. If the folder already contains a
    checkpoint, the trial resumes from it, with bit-identical results on CPUs. If that checkpoint is from the end of a
    rung, the rung's result is yielded again.
    """
    intervals = Intervals(checkpoint_seconds)
    for result in rungs_and_progress(
        config, workbench, intervals, seed=seed, num_rungs=num_rungs, checkpoints=checkpoints
    ):
        if isinstance(result, RungResult):
            yield result


def watch_last_rung(
    config: TrialConfig,
    workbench: Workbench,
    *,
    step: int,
    seed: int,
    num_rungs: int,
    checkpoints: str | Path | Folder,
) -> Watched:
    """Measure watched data with the checkpoint of a trial's last rung, ``step``.

    Raises:
        InputError: If the checkpoint is missing or is not from the end of this rung.
    """
    from raysweep.training import checkpoint
    from raysweep.training.trainer import Training

    training = Training(config, workbench, seed, num_rungs)
    last = checkpoint.restore(training, checkpoints)
    if last is None:
        raise InputError("its checkpoint is missing")
    if last.step != step or training.progress.seen_in_rung:
        raise InputError(f"its checkpoint is not from the end of rung {step}")
    if last.watched is not None:
        return last.watched
    training.show_average(shown=True)
    watched = workbench.measure_watched(config, is_last=True)
    assert watched is not None
    return watched


class _TrainingOfTrial(Protocol):
    """The common interface of ``SavedTraining`` and ``SequenceTraining``."""

    progress: Progress
    recomputes: bool

    @property
    def rung_is_full(self) -> bool: ...
    def step(self) -> None: ...
    def evaluate(self) -> RungResult: ...
    def save(self, folder: str | Path | Folder, last: RungResult | None) -> None: ...
    def restore(self, folder: str | Path | Folder) -> RungResult | None: ...


def _start_training(
    config: TrialConfig, workbench: Workbench, seed: int, num_rungs: int
) -> _TrainingOfTrial:
    if isinstance(workbench, SequenceBench):
        from raysweep.training.sequence_training import SequenceTraining

        return SequenceTraining(config, workbench, seed, num_rungs)
    from raysweep.training.checkpoint import SavedTraining

    return SavedTraining(config, workbench, seed, num_rungs)


@dataclass(frozen=True)
class Intervals:
    """Seconds between checkpoints and between progress updates within a rung."""

    checkpoint_seconds: float = 300.0
    progress_seconds: float = math.inf


def rungs_and_progress(  # noqa: PLR0913 (the arguments of rungs, and callbacks)
    config: TrialConfig,
    workbench: Workbench,
    intervals: Intervals,
    *,
    seed: int,
    num_rungs: int,
    checkpoints: str | Path | Folder | None = None,
    on_rest: Callable[[], None] = lambda: None,
    on_evaluate: Callable[[], None] = lambda: None,
    leaves: Callable[[], bool] = lambda: False,
    recomputes: bool = False,
) -> Iterator[RungResult | RungProgress]:
    """Yield rung results like :func:`rungs`, plus progress updates during long rungs.

    If the iterator is closed in the middle of a rung, a checkpoint is written.

    Args:
        on_rest: Function that is called before a checkpoint is written in the middle of a rung.
        on_evaluate: Function that is called before a rung is evaluated.
        leaves: While this function returns True, a checkpoint is written before each progress update.
        recomputes: Whether to recompute activations in the backward pass, which saves memory.
    """
    training = _start_training(config, workbench, seed, num_rungs)
    training.recomputes = recomputes
    last = None if checkpoints is None else training.restore(checkpoints)
    within_rung = training.progress.seen_in_rung > 0
    # in the middle of a rung, the last result has already been yielded
    if last is not None and not within_rung:
        yield last
    while training.progress.rung < num_rungs and not (last and last.stop):
        pace = Pace(training.progress.seen_in_rung)
        saved = reported = pace.began
        while not training.rung_is_full:
            training.step()
            now = time.monotonic()
            if training.rung_is_full:  # saved below, with its result
                break
            reports = now - reported >= intervals.progress_seconds
            is_leaving = reports and leaves()
            is_due = now - saved >= intervals.checkpoint_seconds
            if checkpoints is not None and (is_due or is_leaving):
                on_rest()
                training.save(checkpoints, last)
                saved = now
            if reports:
                try:
                    yield pace.progress(training.progress, config.examples_per_rung, now)
                except GeneratorExit:
                    if checkpoints is not None and saved != now:
                        training.save(checkpoints, last)
                    raise
                reported = now
        on_evaluate()
        last = training.evaluate()
        if checkpoints is not None:
            training.save(checkpoints, last)
        yield last
