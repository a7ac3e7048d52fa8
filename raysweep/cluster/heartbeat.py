"""Heartbeats from trial processes, used to detect and kill processes that make no progress.

A frozen process sends no heartbeats. If only its trial hangs, a process keeps sending heartbeats,
which report no progress. Both are killed on their nodes, and Ray then detects that they have died.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysweep.cluster.connection import on_this_node

KILL_SECONDS = 10.0
IDLE_SECONDS = 5.0  # how long a process is observed before it is considered idle
MAX_HEARTBEAT_SECONDS = 5.0
HEARTBEATS_IN_SILENCE = 6  # number of heartbeat intervals before a trial counts as silent


class HeartbeatRecord(NamedTuple):
    """A heartbeat of a trial process, sent ``quiet_seconds`` after its trial last made progress.

    ``is_loading`` is True until the process's first trial has made progress. ``is_evaluating`` is
    True while the trial is evaluating a rung.
    """

    node_id: str
    pid: int
    quiet_seconds: float
    is_loading: bool = False
    is_evaluating: bool = False

    @property
    def process(self) -> tuple[str, int]:
        return self.node_id, self.pid


@dataclass(frozen=True)
class Silence:
    """The time since a trial process last made progress, as estimated by the driver.

    ``record`` is the last heartbeat, received at most ``record_age`` seconds ago.
    """

    record: HeartbeatRecord
    seconds: float
    record_age: float = 0.0


@dataclass(frozen=True)
class Listener:
    """The actor that receives heartbeats, and the interval at which processes send them."""

    actor: Any
    heartbeat_seconds: float


class HeartbeatRecorder:
    """Actor on the driver's node that records heartbeats from trial processes."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[HeartbeatRecord, float]] = {}

    def record(self, trial_id: str, record: HeartbeatRecord) -> None:
        """Record a heartbeat, and delete the records of the process's earlier trials."""
        for earlier_id, (earlier, _) in list(self._records.items()):
            if earlier.process == record.process:
                del self._records[earlier_id]
        self._records[trial_id] = (record, time.monotonic())

    def silences(self) -> dict[str, Silence]:
        """Return how long each trial has been silent, keyed by Tune's trial ID."""
        now = time.monotonic()
        silences: dict[str, Silence] = {}
        for trial_id, (record, received_at) in self._records.items():
            age = now - received_at
            silences[trial_id] = Silence(record, age + record.quiet_seconds, age)
        return silences


def listen(silent_seconds: float) -> Listener:
    """Start the heartbeat actor on this node; trials count as silent after ``silent_seconds``."""
    options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": on_this_node()}
    actor = ray.remote(HeartbeatRecorder).options(**options).remote()
    return Listener(actor, min(MAX_HEARTBEAT_SECONDS, silent_seconds / HEARTBEATS_IN_SILENCE))


class Heartbeat:
    """Sends heartbeats from a trial process and records when its trial last made progress.

    Use it as a context manager while the trial is computing. Outside the context, the trial is
    waiting for the driver, and the timer is stopped.
    """

    def __init__(self) -> None:
        self._node_id: str = ray.get_runtime_context().get_node_id()
        self._listener: Listener | None = None
        self._trial_id = ""
        self._followed: Any = None
        self._is_computing = False
        self._is_loading = True
        self._last_sign: float | None = None
        self._is_evaluating = False

    def begin(self, trial_id: str, listener: Listener) -> None:
        """Start sending heartbeats for this trial."""
        is_first = self._listener is None
        self._trial_id, self._listener = trial_id, listener
        self._last_sign = None
        self._is_evaluating = False
        if is_first:
            threading.Thread(target=self._send_heartbeats, daemon=True).start()
        self._send_heartbeat(listener)

    def sign(self, *_: object) -> None:
        """Record that the trial has made progress or is waiting for storage that may still respond."""
        self._last_sign = time.monotonic()
        self._is_evaluating = False
        self._is_loading = False

    def rest(self) -> None:
        """Stop the timer until the trial next makes progress, for evaluations and checkpoints."""
        self._last_sign = None

    def evaluate(self) -> None:
        """Stop the timer like :meth:`rest`, and report that the trial is evaluating."""
        self.rest()
        self._is_evaluating = True

    def follow(self, model: Any) -> None:
        """Count each forward and backward pass of a torch module in training mode as progress."""
        if model is not self._followed:
            self._followed = model
            model.register_forward_hook(self._after_forward)

    def _after_forward(self, model: Any, inputs: Any, output: Any) -> None:
        self._is_loading = False
        if not model.training:
            return
        self.sign()
        embedding = output["sentence_embedding"]
        if embedding.requires_grad:
            embedding.register_hook(self.sign)

    def __enter__(self) -> None:
        if self._last_sign is not None:
            self._last_sign = time.monotonic()
        self._is_computing = True

    def __exit__(self, *_: object) -> None:
        self._is_computing = False

    def _send_heartbeats(self) -> None:
        while listener := self._listener:
            time.sleep(listener.heartbeat_seconds)
            self._send_heartbeat(listener)

    def _send_heartbeat(self, listener: Listener) -> None:
        last = self._last_sign if self._is_computing else None
        quiet_seconds = 0.0 if last is None else time.monotonic() - last
        is_evaluating = self._is_evaluating and self._is_computing
        record = HeartbeatRecord(
            self._node_id, os.getpid(), quiet_seconds, self._is_loading, is_evaluating
        )
        listener.actor.record.remote(self._trial_id, record)


class HeartbeatWatch:
    """Queries the heartbeat actor for silent trials without blocking."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._query: Any = None
        self._queried_at = 0.0

    def silences(self) -> dict[str, Silence]:
        """Return a newly arrived response, or an empty dictionary if there is none."""
        now = time.monotonic()
        if self._query is None:
            if now - self._queried_at >= self._listener.heartbeat_seconds:
                self._query, self._queried_at = self._listener.actor.silences.remote(), now
            return {}
        answered, _ = ray.wait([self._query], timeout=0)
        if not answered:
            return {}
        query, self._query = self._query, None
        try:
            silences: dict[str, Silence] = ray.get(query)
        except ray.exceptions.RayActorError:  # the actor died and is being restarted
            return {}
        waited = now - self._queried_at
        return {
            trial_id: replace(silence, record_age=silence.record_age + waited)
            for trial_id, silence in silences.items()
        }


class FrozenWatch:
    """Checks without blocking whether silent processes are frozen or still loading."""

    def __init__(self) -> None:
        self._checks: dict[tuple[str, int], Any] = {}

    def is_frozen(self, record: HeartbeatRecord) -> bool:
        """Return whether a check has found the process idle; start a check if none is running."""
        check = self._checks.get(record.process)
        if check is None:
            self._checks[record.process] = _on_its_node(is_idle, record)
            return False
        answered, _ = ray.wait([check], timeout=0)
        if not answered:
            return False
        del self._checks[record.process]
        try:
            is_frozen: bool = ray.get(check)
        except ray.exceptions.RayError:  # the node has died
            return False
        return is_frozen


def is_idle(pid: int) -> bool:
    """Return whether a local process uses no CPU and does no I/O for IDLE_SECONDS.

    The result is False if /proc has no data on the process.
    """
    before = _read_counters(pid)
    time.sleep(IDLE_SECONDS)
    return before is not None and before == _read_counters(pid)


def _read_counters(pid: int) -> tuple[list[str], str] | None:
    """Return a process's user and system CPU times and its I/O counters, or None if /proc has no data on it."""
    folder = Path("/proc") / str(pid)
    try:
        status = (folder / "stat").read_text()
        transferred = (folder / "io").read_text()
    except OSError:
        return None
    _, _, after_name = status.rpartition(") ")  # process names may contain spaces and parentheses
    cpu_times = after_name.split()[11:13]
    return cpu_times, transferred


def kill(record: HeartbeatRecord) -> Any:
    """Start a Ray task that kills a process on its node, and return the task's reference."""
    return _on_its_node(_kill, record)


def _on_its_node(function: Callable[[int], Any], record: HeartbeatRecord) -> Any:
    """Start a Ray task that calls ``function(pid)`` on the process's node."""
    on_node = NodeAffinitySchedulingStrategy(record.node_id, soft=False)
    task: Any = ray.remote(function).options(num_cpus=0, scheduling_strategy=on_node, max_retries=0)
    return task.remote(record.pid)


def kill_all(listener: Listener) -> None:
    """Kill all processes with recent heartbeats, and wait at most KILL_SECONDS for them to end."""
    # The cluster may be gone. Do not mask the exception that is already being raised.
    with contextlib.suppress(Exception):
        query = listener.actor.silences.remote()
        silences: dict[str, Silence] = ray.get(query, timeout=KILL_SECONDS)
        recent_seconds = HEARTBEATS_IN_SILENCE * listener.heartbeat_seconds
        tasks = []
        for silence in silences.values():
            seconds_since_heartbeat = silence.seconds - silence.record.quiet_seconds
            if seconds_since_heartbeat < recent_seconds:
                tasks.append(kill(silence.record))
        if tasks:
            ray.wait(tasks, num_returns=len(tasks), timeout=KILL_SECONDS)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
