"""raysweep's trials without training: the actor, and a sweep and a ledger that add up what they take on the driver."""

import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from raysweep.config.trial import TrialConfig
from raysweep.metrics.retrieval import Scores
from raysweep.results.events import Event
from raysweep.results.ledger import Ledger
from raysweep.results.types import PointKey
from raysweep.runner import tune
from raysweep.runner.workers import open_workbench
from raysweep.sweep.sweep import Sweep
from raysweep.training import workbench


class Untrained(tune.TrialActor):
    """raysweep's trial without training and evaluation. Notes in the run's folder what its parts took."""

    writes = False
    _started = False

    def setup(self, config: dict[str, Any], sweep: tune.SweepTask) -> None:  # type: ignore[override]
        """Tune calls it again for each trial that a reused actor takes."""
        self._times: dict[str, float] = defaultdict(float)
        with self._timed("trial" if self._started else "start"):
            super().setup(config, sweep)
            self.bench = open_workbench(self.task.sweep.bench)
            if not self._started:
                _ = self.bench.dev.reference_scores  # reads the data
        self._started = True

    def step(self) -> dict[str, Any]:
        from raysweep.training import training_state
        from raysweep.training.trainer import Training

        task = self.task
        with self._timed("trial"):
            training = Training(task.leg.config, self.bench, task.trial_seed, task.num_rungs)
            points: dict[PointKey, Scores] = {("plain", None): self._scores()}
            result = workbench.RungResult(1, task.leg.config.examples_per_rung, 0.0, points, 0.0, 0.0)
            self.results = iter([result])
        if self.writes:
            with self._timed("writing"):
                training_state.save(training, task.checkpoints, result)
        with self._timed("trial"):
            answer = super().step()
        self._times["trial"] -= self._times["point"]
        self._times["writing"] += self._times.pop("point")
        (task.sweep.run.path / f"times-{task.leg.number}.json").write_text(json.dumps(self._times))
        return answer

    def save_weights(self, result: workbench.RungResult) -> None:
        with self._timed("point"):
            if self.writes:
                super().save_weights(result)

    def _scores(self) -> Scores:
        """The reference's, moved a little, so that the front is a front."""
        found = self.bench.dev.reference_scores
        moved = np.random.default_rng(self.task.leg.number).normal(scale=0.02, size=2)
        return Scores(found.polarity + moved[0], found.similarity + moved[1])

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._times[part] += time.perf_counter() - began


class Written(Untrained):
    """With a rung's weights and checkpoint on disk."""

    writes = True


class TimedSweep(Sweep):
    """Adds up the time that it takes on the driver."""

    times: dict[str, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.times = defaultdict(float)

    def _time(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return work(*arguments, **options)
        finally:
            self.times["sweep"] += time.perf_counter() - began

    def ask(self) -> tuple[int, TrialConfig] | None:
        asked: tuple[int, TrialConfig] | None = self._time(super().ask)
        return asked

    def rung(self, number: int, rung: dict[str, Any]) -> bool:
        return bool(self._time(super().rung, number, rung))

    def rest(
        self, number: int, failure: str | None = None, traceback: str | None = None, *, diverged: bool = False
    ) -> None:
        self._time(super().rest, number, failure, traceback, diverged=diverged)


class TimedLedger(Ledger):
    seconds = 0.0

    def append(self, event: Event) -> None:
        began = time.perf_counter()
        super().append(event)
        self.seconds += time.perf_counter() - began
