"""Trials without encoders whose processes raise, die, freeze or hang depending on the trial's number, and a sweep that runs them."""

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray

from raysweep.cluster import nodes
from raysweep.errors import InputError
from raysweep.ray_tune import trial_actor
from raysweep.results.types import RungProgress
from raysweep.storage.bucket import StorageError
from raysweep.training.workbench import RungResult
from support.sweeps import rung

NUM_RUNGS = 4
FAULTY_RUNG = 2

NEXT_RUNG_SECONDS = 0.05
SLOW_RUNG_SECONDS = 1.0
IDLE_SECONDS = 0.5  # shorter than a sweep's pause for storage


def raise_error(actor: "FaultyTrials", attempt: int) -> None:
    raise ValueError("this trial raises")


def refuse(actor: "FaultyTrials", attempt: int) -> None:
    raise InputError("this trial cannot be")


def die_once(actor: "FaultyTrials", attempt: int) -> None:
    if attempt == 1:
        os._exit(1)


def always_die(actor: "FaultyTrials", attempt: int) -> None:
    os._exit(1)


def freeze_once(actor: "FaultyTrials", attempt: int) -> None:
    if attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


def hang_once(actor: "FaultyTrials", attempt: int) -> None:
    if attempt == 1:
        time.sleep(600)


def fill_disk_twice(actor: "FaultyTrials", attempt: int) -> None:
    if attempt <= 2:
        raise StorageError(28, "No space left on device", "somewhere")


FAULTS: Mapping[int, Callable[["FaultyTrials", int], None]] = {
    1: raise_error,
    2: die_once,
    3: always_die,
    4: freeze_once,
    5: hang_once,
    6: fill_disk_twice,
    7: refuse,
}
"""What happens to the trial with this number before its second rung."""


class InventedScores:
    """Replaces a workbench; its trials are not measured."""

    dev = None

    def describe(self, dev: None, points: Any) -> Any:
        return points


class FaultyTrials(trial_actor.TrialActor):
    """Counts a trial's attempts and finished rungs in files of the run, like checkpoints."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        self.bench: Any = InventedScores()
        attempt = self._count("attempts")
        done = self._counted("rungs")
        if done:
            # a trial that resumes from its checkpoint repeats its last rung
            yield self._result(done)
        for step in range(done + 1, NUM_RUNGS + 1):
            time.sleep(NEXT_RUNG_SECONDS)
            if self.heartbeat is not None:
                self.heartbeat.sign()
            if step == FAULTY_RUNG and self.task.assignment.number in FAULTS:
                FAULTS[self.task.assignment.number](self, attempt)
            self._count("rungs")
            yield self._result(step)

    def save_weights(self, result: RungResult) -> None:
        """Return no points."""

    def _result(self, step: int) -> RungResult:
        invented = rung(self.task.assignment.config, step)
        seen = invented["examples_seen"]
        return RungResult(step, seen, 0.1, invented["points"], 1.0, 1.0)

    def _file(self, name: str) -> Path:
        return self.task.sweep.run.path / f"{name}-{self.task.assignment.number}"

    def _count(self, name: str) -> int:
        with self._file(name).open("a") as file:
            file.write("x")
        return self._counted(name)

    def _counted(self, name: str) -> int:
        path = self._file(name)
        return path.stat().st_size if path.exists() else 0


class AlwaysRefusing(FaultyTrials):
    """Trials that never reach a rung."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        yield from ()  # so that nothing is raised before the first step
        raise InputError("no trial can be")


class BrokenOnOneNode(FaultyTrials):
    """Every trial raises on the node on which the first one starts, whose ID is then in the file ``bad-node``."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        if self._is_on_bad_node():
            with (self.task.sweep.run.path / "errors").open("a") as file:
                file.write("x")
            raise RuntimeError("CUDA driver version is insufficient")
        self.bench: Any = InventedScores()
        for step in range(self._counted("rungs") + 1, NUM_RUNGS + 1):
            time.sleep(NEXT_RUNG_SECONDS)
            self._count("rungs")
            yield self._result(step)

    def _is_on_bad_node(self) -> bool:
        node = ray.get_runtime_context().get_node_id()
        bad_node = self.task.sweep.run.path / "bad-node"
        own = bad_node.with_name(f"node-{os.getpid()}")
        own.write_text(node)
        with contextlib.suppress(FileExistsError):
            os.link(own, bad_node)  # atomic, and only the first succeeds
        return bad_node.read_text() == node


class FullOnOneNode(BrokenOnOneNode):
    """The disk of one node is full."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        if self._is_on_bad_node():
            raise StorageError(errno.ENOSPC, "No space left on device", "cache")
        yield from super()._rungs()


class NoRoomForWeights(FaultyTrials):
    """The first write of a rung's weights fails because the disk is full."""

    def save_weights(self, result: RungResult) -> None:
        if result.step == FAULTY_RUNG and self._counted("attempts") == 1:
            raise OSError(errno.ENOSPC, "No space left on device")


class FrozenWhileLoading(FaultyTrials):
    """The first attempt freezes before its process has computed anything."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        self.bench = InventedScores()
        if self._count("attempts") == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        for step in range(1, NUM_RUNGS + 1):
            yield self._result(step)


class KilledWhenIdle(FaultyTrials):
    """The first attempt finds storage full and ends its process shortly after it has returned."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        self.bench = InventedScores()
        if self._count("attempts") == 1:
            threading.Timer(IDLE_SECONDS, os._exit, [1]).start()
            raise StorageError(28, "No space left on device", "somewhere")
        for step in range(1, NUM_RUNGS + 1):
            yield self._result(step)


class SlowTrials(FaultyTrials):
    """Trials without faults that take a few seconds each."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        self.bench = InventedScores()
        for step in range(1, NUM_RUNGS + 1):
            time.sleep(SLOW_RUNG_SECONDS)
            yield self._result(step)


class WatchfulTrials(SlowTrials):
    """Trials that check before each rung whether their node is about to be removed."""

    def setup(self, config: dict[str, Any], sweep: trial_actor.SweepTask) -> None:
        nodes.POLL_SECONDS = 0.0
        super().setup(config, sweep)
