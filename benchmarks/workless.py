"""Trials that do no work: the actor, a policy that pauses each of them once, and a sweep that observes its driver.

A trial records in the run's folder each assignment to a worker and each finished rung, in place of a checkpoint.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import measure
from raysweep.controller.sweep import Sweep
from raysweep.metrics.retrieval import Scores
from raysweep.ray_tune import trial_actor
from raysweep.results.types import PointKey, RungProgress
from raysweep.search.stopping.base import Standing
from raysweep.training.workbench import RungResult

SAMPLE_ASSIGNMENTS = 10  # between two looks at the driver's memory
WIDTH = 384


class InventedScores:
    """Replaces a workbench."""

    dev = None

    def describe(self, dev: None, points: dict[PointKey, Scores]) -> list[dict[str, Any]]:
        """Return the points as an event of the ledger has them."""
        described = []
        for (kind, value), scores in points.items():
            polarity, similarity = scores.mean("polarity"), scores.mean("similarity")
            point = {
                "kind": kind,
                "value": value,
                "split": "dev",
                "width": WIDTH,
                "retention": similarity / 0.47,
            }
            point |= {
                "polarity": polarity,
                "polarity_std": 0.1,
                "similarity": similarity,
                "similarity_std": 0.1,
            }
            described.append(point)
        return described


class Workless(trial_actor.TrialActor):
    """A trial whose rungs sleep for the class's duration."""

    seconds_per_rung: ClassVar = 0.0

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        self.bench: Any = InventedScores()
        folder, number = self.task.sweep.run.path, self.task.assignment.number
        _note(assignments_file(folder, number))
        done = size_of(rungs_file(folder, number))
        if done:
            # a trial that resumes from its checkpoint repeats its last rung
            yield self._result(done)
        for step in range(done + 1, self.task.num_rungs + 1):
            time.sleep(self.seconds_per_rung)
            if self.heartbeat is not None:
                self.heartbeat.sign()
            _note(rungs_file(folder, number))
            yield self._result(step)

    def _result(self, step: int) -> RungResult:
        """Return scores in which P rises and S falls, more in some trials than in others."""
        import numpy as np

        gain = step * (1 + self.task.assignment.number % 7) / 100
        scores = Scores(
            {"polarity": np.array([0.6 + gain]), "similarity": np.array([0.47 - gain / 4])}
        )
        points: dict[PointKey, Scores] = {("plain", None): scores}
        return RungResult(
            step, step * self.task.assignment.config.examples_per_rung, 0.1, points, 1.0, 1.0
        )

    def save_weights(self, result: RungResult) -> None:
        """Do nothing: there are no weights."""


class OfOneSecond(Workless):
    """A trial whose rungs take a second."""

    seconds_per_rung = 1.0


def assignments_file(folder: Path, number: int) -> Path:
    """Return the file with a byte for each assignment of a trial to a worker."""
    return folder / f"assignments-{number}"


def rungs_file(folder: Path, number: int) -> Path:
    """Return the file with a byte for each finished rung of a trial."""
    return folder / f"rungs-{number}"


def size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _note(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("x")


class HoldOnce:
    """Pauses each trial after its first rung, and resumes the first paused one once enough are paused."""

    def __init__(self, num_waiting: int) -> None:
        self._num_waiting = num_waiting
        self._judged: set[int] = set()
        self._paused: dict[int, None] = {}  # in the order in which they were paused

    def on_rung(
        self,
        trial: int,
        examples_seen: int,
        standing: Standing,
        ahead: Sequence[int],
        can_start: bool,
    ) -> str | None:
        if trial in self._judged:
            return None
        self._judged.add(trial)
        return "each trial is paused once"

    def next_to_resume(self, can_start: bool) -> int | None:
        if can_start and len(self._paused) < self._num_waiting:
            return None
        return next(iter(self._paused), None)

    def set_running(self, trial: int, running: bool) -> None:
        if running:
            self._paused.pop(trial, None)
        else:
            self._paused[trial] = None

    def end(self, trial: int) -> None:
        self._paused.pop(trial, None)


class WatchedSweep(Sweep):
    """Records when its first trial reached a worker, and the private memory of its process by number of assignments."""

    first_placed_at: float | None = None  # by the monotonic clock
    num_assignments = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.memory: list[tuple[int, int]] = []  # assignments, and bytes

    def place(self, number: int) -> None:
        super().place(number)
        if self.first_placed_at is None:
            self.first_placed_at = time.monotonic()

    def release(
        self,
        number: int,
        failure: str | None = None,
        traceback: str | None = None,
        *,
        diverged: bool = False,
    ) -> None:
        super().release(number, failure, traceback, diverged=diverged)
        self.num_assignments += 1
        if self.num_assignments % SAMPLE_ASSIGNMENTS == 0:
            self.memory.append((self.num_assignments, measure.private_bytes()))
