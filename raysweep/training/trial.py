"""Training and evaluation of one trial, rung by rung, in ordinary functions that are independent of Ray."""

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
    """Return the seed for a trial's random draws, in [0, 2**32): a hash of the sweep's seed and the configuration.

    ``run`` numbers the replicates of a configuration from 1; each has its own seed.
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
    """Train and evaluate one configuration in this process.

    The trial needs prepared artifacts, but neither Ray nor a cluster. ``num_rungs`` defaults to 6; for a sequence, the
    default and only allowed value is the number of data sets. After each rung, ``on_rung`` is called with the result
    and may return False to stop the trial. ``device`` defaults to a GPU if available. If ``checkpoints`` is given, the
    trial saves its state in that folder. When called again after an interruption, it resumes from there; if a rung had
    just ended, its result is repeated first.

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
    """Train rung by rung and yield each result; the model in ``workbench`` then holds that rung's weights.

    With ``checkpoints``, the state is saved in that folder at each rung and every ``checkpoint_seconds``. If the folder
    already holds a checkpoint, the trial resumes from it, bit for bit on a CPU; if a rung had just ended, its result is
    yielded again.
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
    """Measure watched data with the weights of a trial's last rung, ``step``, from its checkpoint.

    Raises:
        InputError: If there is no checkpoint, or if it is not from the end of this rung.
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
    """A trial's training between two optimizer steps."""

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
    """Seconds between checkpoints, and between progress updates, within a rung."""

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

    With ``recomputes``, a batch's activations are never all in memory at once; the gradients are the same. ``on_rest``
    is called before a checkpoint is written in the middle of a rung, and ``on_evaluate`` before a rung is evaluated,
    because both may take a long time without an optimizer step. While ``leaves`` returns True, a
    checkpoint is written before each progress update. If the iterator is closed in the middle of a rung, it also writes
    a checkpoint.
    """
    training = _start_training(config, workbench, seed, num_rungs)
    training.recomputes = recomputes
    last = None if checkpoints is None else training.restore(checkpoints)
    within_rung = training.progress.seen_in_rung > 0
    # in the middle of a later rung, the result has been received and the model has changed since
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
