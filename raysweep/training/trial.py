"""One trial: train a candidate encoder rung by rung. An ordinary function; Ray is not involved."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.results.types import RungProgress
from raysweep.storage.folder import Folder
from raysweep.training.progress import Pace
from raysweep.training.workbench import RungResult, Workbench


def trial_seed(sweep_seed: int, config: TrialConfig, run: int = 0) -> int:
    """The seed of a trial's every random draw, in [0, 2**32): a hash of the sweep's seed and the configuration.

    ``run`` counts a configuration's replicates from 1; each has a seed of its own.
    """
    parts = [sweep_seed, config.identity]
    if run:
        parts.append(run)
    text = json.dumps(parts, sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "big")


def run_trial(  # noqa: PLR0913 (public: callers name what they need)
    config: TrialConfig,
    prepared: Prepared,
    *,
    seed: int = 0,
    num_rungs: int = 6,
    evaluation: EvaluationConfig | None = None,
    device: str | None = None,
    checkpoints: str | Path | Folder | None = None,
    on_rung: Callable[[RungResult], bool | None] = lambda rung: None,
) -> list[RungResult]:
    """Train and evaluate one configuration in this process; ``on_rung`` takes each rung and may return False to stop.

    Needs nothing but artifacts: no Ray, no cluster. ``device`` is a GPU where there is one. In the folder ``checkpoints``
    the trial keeps its state; called again after an interruption it goes on from there, and first repeats the result of a
    rung that had just ended. Raises TrialDivergedError when the loss is no longer finite, and InputError for a negative seed
    and for no rungs.
    """
    if seed < 0:
        raise InputError(f"seed is {seed}; allowed: 0 and more")
    if num_rungs < 1:
        raise InputError(f"num_rungs is {num_rungs}; allowed: 1 and more")
    workbench = Workbench(prepared, evaluation or EvaluationConfig(), device or encoder.best_device())
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
    """Train rung after rung, yielding after each; the model in ``workbench`` then holds that rung's weights.

    With ``checkpoints`` the state is kept in that folder, at each rung and every ``checkpoint_seconds``. Where it holds
    one already the trial goes on from there, to the same bits on a CPU; a rung that had just ended is yielded once more.
    """
    intervals = Intervals(checkpoint_seconds)
    for each in rungs_and_progress(
        config, workbench, intervals, seed=seed, num_rungs=num_rungs, checkpoints=checkpoints
    ):
        if isinstance(each, RungResult):
            yield each


@dataclass(frozen=True)
class Intervals:
    """How many seconds pass, within a rung, between two checkpoints, and until a trial says again how far it is."""

    checkpoint_seconds: float = 300.0
    progress_seconds: float = math.inf


def rungs_and_progress(  # noqa: PLR0913 (as rungs, and what its caller listens to)
    config: TrialConfig,
    workbench: Workbench,
    intervals: Intervals,
    *,
    seed: int,
    num_rungs: int,
    checkpoints: str | Path | Folder | None = None,
    on_rest: Callable[[], None] = lambda: None,
    leaves: Callable[[], bool] = lambda: False,
    recomputes: bool = False,
) -> Iterator[RungResult | RungProgress]:
    """As :func:`rungs`, and within long rungs how far the trial is.

    With ``recomputes`` the activations of a batch are never in memory all at once; the gradients are the same.
    ``on_rest`` is called before what may take long without an optimizer step: an evaluation, or writing a checkpoint.
    Where the trial ``leaves``, each progress has a checkpoint.
    """
    from raysweep.training import training_state
    from raysweep.training.trainer import Training

    training = Training(config, workbench, seed, num_rungs)
    training.recomputes = recomputes
    last = None if checkpoints is None else training_state.restore(training, checkpoints)
    within_rung = training.progress.seen_in_rung > 0
    if last is not None and not within_rung:  # within a rung, the last one was taken and the model has moved on since
        yield last
    while training.progress.rung < num_rungs and not (last and last.stop):
        pace = Pace(training.progress.seen_in_rung)
        saved = reported = pace.began
        while not training.rung_is_full:
            training.step()
            now = time.monotonic()
            if training.rung_is_full:  # it is saved with its result
                break
            reports = now - reported >= intervals.progress_seconds
            leaving = reports and leaves()
            is_due = now - saved >= intervals.checkpoint_seconds
            if checkpoints is not None and (is_due or leaving):
                on_rest()
                training_state.save(training, checkpoints, last)
                saved = now
            if reports:
                yield pace.progress(training.progress, config.examples_per_rung, now)
                reported = now
        on_rest()
        last = training.evaluate()
        if checkpoints is not None:
            training_state.save(training, checkpoints, last)
        yield last
