"""Signs of life: each trial's process tells when its trial last computed something, and one that is silent is killed.

A process that is frozen says nothing; one whose trial hangs says so. Both are killed on their node, and Ray notices.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysweep.cluster.resources import on_this_node

if TYPE_CHECKING:
    import torch

KILL_SECONDS = 10.0
LOOK_SECONDS = 5.0  # for which a process that does nothing is watched
MOST_BEAT_SECONDS = 5.0
BEATS_IN_SILENCE = 6  # that must fail to come before a trial counts as silent


class Beat(NamedTuple):
    """What a trial's process says of itself. ``quiet_seconds`` have passed since its trial computed something.

    It is loading until its first trial has.
    """

    node_id: str
    pid: int
    quiet_seconds: float
    is_loading: bool = False

    @property
    def process(self) -> tuple[str, int]:
        return self.node_id, self.pid


@dataclass(frozen=True)
class Silence:
    """For how long nothing was heard of a trial that a process has."""

    beat: Beat
    seconds: float


@dataclass(frozen=True)
class Listener:
    """The actor that hears beats, and how often they are to come."""

    actor: Any
    beat_seconds: float


class Pulses:
    """Notes what the processes of trials say. It is an actor beside the driver."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[Beat, float]] = {}

    def beat(self, trial_id: str, beat: Beat) -> None:
        """A process says that it has this trial; of those before nothing more is to come."""
        earlier = [each for each, (said, _) in self._heard.items() if said.process == beat.process]
        for each in earlier:
            del self._heard[each]
        self._heard[trial_id] = (beat, time.monotonic())

    def silences(self) -> dict[str, Silence]:
        """By the ids of Tune's trials."""
        now = time.monotonic()
        return {trial: Silence(beat, now - at + beat.quiet_seconds) for trial, (beat, at) in self._heard.items()}


def listen(silent_seconds: float) -> Listener:
    """Start the actor that hears beats, on this node, for trials that count as silent after so many seconds."""
    options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": on_this_node()}
    actor = ray.remote(Pulses).options(**options).remote()
    return Listener(actor, min(MOST_BEAT_SECONDS, silent_seconds / BEATS_IN_SILENCE))


class Pulse:
    """Beats for a process that runs trials, from a thread of its own, and counts how long its trial has been quiet.

    It is a context for the time in which the trial is to compute; at other times the trial waits for the driver.
    """

    def __init__(self) -> None:
        self._node_id: str = ray.get_runtime_context().get_node_id()
        self._listener: Listener | None = None
        self._trial_id = ""
        self._followed: torch.nn.Module | None = None
        self._is_computing = False
        self._is_loading = True
        self._last_sign: float | None = None

    def begin(self, trial_id: str, listener: Listener) -> None:
        """A trial is here, of a sweep that listens."""
        is_first = self._listener is None
        self._trial_id, self._listener = trial_id, listener
        self._last_sign = None
        if is_first:
            threading.Thread(target=self._keep_beating, daemon=True).start()
        self._beat(listener)

    def sign(self, *_: object) -> None:
        """The trial has computed something, or waits for a storage that may yet answer."""
        self._last_sign = time.monotonic()
        self._is_loading = False

    def rest(self) -> None:
        """What follows may take long without a step: an evaluation, or writing a checkpoint."""
        self._last_sign = None

    def follow(self, model: "torch.nn.Module") -> None:
        """Count each forward and backward pass of a model in training as a sign of life."""
        if model is not self._followed:
            self._followed = model
            model.register_forward_hook(self._sign_of_pass)

    def _sign_of_pass(self, model: "torch.nn.Module", inputs: Any, output: Any) -> None:
        self._is_loading = False
        if not model.training:
            return
        self.sign()
        embedding = output["sentence_embedding"]
        if embedding.requires_grad:
            embedding.register_hook(self._sign_of_gradient)

    def _sign_of_gradient(self, gradient: Any) -> None:
        self.sign()

    def __enter__(self) -> None:
        if self._last_sign is not None:
            self._last_sign = time.monotonic()
        self._is_computing = True

    def __exit__(self, *_: object) -> None:
        self._is_computing = False

    def _keep_beating(self) -> None:
        while listener := self._listener:
            time.sleep(listener.beat_seconds)
            self._beat(listener)

    def _beat(self, listener: Listener) -> None:
        last = self._last_sign if self._is_computing else None
        quiet_seconds = 0.0 if last is None else time.monotonic() - last
        beat = Beat(self._node_id, os.getpid(), quiet_seconds, self._is_loading)
        listener.actor.beat.remote(self._trial_id, beat)


class PulseWatch:
    """Asks now and then which trials are silent, without waiting for the answer."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._asked: Any = None
        self._asked_at = 0.0

    def silences(self) -> dict[str, Silence]:
        """What has been answered since the last call; nothing where no answer has come."""
        now = time.monotonic()
        if self._asked is None:
            if now - self._asked_at >= self._listener.beat_seconds:
                self._asked, self._asked_at = self._listener.actor.silences.remote(), now
            return {}
        if not ray.wait([self._asked], timeout=0)[0]:
            return {}
        answer, self._asked = self._asked, None
        try:
            found: dict[str, Silence] = ray.get(answer)
        except ray.exceptions.RayActorError:  # it died, and is started again
            return {}
        return found


class FrozenWatch:
    """Tells processes that are frozen from those that are silent because they load, without waiting for the answer."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, int], Any] = {}

    def is_frozen(self, beat: Beat) -> bool:
        """Whether a look at the process, since an earlier call, found that it does nothing. Each call may begin a look."""
        look = self._looks.get(beat.process)
        if look is None:
            self._looks[beat.process] = _on_its_node(does_nothing, beat)
            return False
        if not ray.wait([look], timeout=0)[0]:
            return False
        del self._looks[beat.process]
        try:
            found: bool = ray.get(look)
        except ray.exceptions.RayError:  # the node went away
            return False
        return found


def does_nothing(pid: int) -> bool:
    """Whether a process of this machine neither computes nor reads for some seconds. False where that cannot be told."""
    before = _done_so_far(pid)
    time.sleep(LOOK_SECONDS)
    return before is not None and before == _done_so_far(pid)


def _done_so_far(pid: int) -> tuple[list[str], str] | None:
    """A process's time on CPUs, of user and system, and what it has read and written; None where /proc has none of it."""
    folder = Path("/proc") / str(pid)
    try:
        status = (folder / "stat").read_text()
        transferred = (folder / "io").read_text()
    except OSError:
        return None
    _, _, after_name = status.rpartition(") ")  # a name may hold blanks and parentheses
    cpu_times = after_name.split()[11:13]
    return cpu_times, transferred


def kill(beat: Beat) -> Any:
    """End a process on its node, whatever it is doing. Nothing happens where it has ended, or the node has.

    The task that does it is returned, and not waited for.
    """
    return _on_its_node(_kill, beat)


def _on_its_node(function: Callable[[int], Any], beat: Beat) -> Any:
    """The task that calls this with a process's number, on the node of that process."""
    there = NodeAffinitySchedulingStrategy(beat.node_id, soft=False)
    task: Any = ray.remote(function).options(num_cpus=0, scheduling_strategy=there, max_retries=0)
    return task.remote(beat.pid)


def kill_all(listener: Listener) -> None:
    """End all processes that are still heard of, and wait until they have ended, or cannot be reached."""
    with contextlib.suppress(Exception):  # the cluster may be gone, and what is being raised says more
        silences: dict[str, Silence] = ray.get(listener.actor.silences.remote(), timeout=KILL_SECONDS)
        recent = BEATS_IN_SILENCE * listener.beat_seconds
        living = [each.beat for each in silences.values() if each.seconds - each.beat.quiet_seconds < recent]
        killing = [kill(beat) for beat in living]
        if killing:
            ray.wait(killing, num_returns=len(killing), timeout=KILL_SECONDS)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
