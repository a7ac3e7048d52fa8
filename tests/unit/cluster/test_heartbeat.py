"""Detection of idle processes, and the record of heartbeats."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from raysweep.cluster import heartbeat

needs_counters = pytest.mark.skipif(
    not Path("/proc/self/io").exists(), reason="/proc has no I/O counters of processes"
)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "IDLE_SECONDS", 1.0)


@needs_counters
def test_computing_process_is_idle_once_stopped(busy: subprocess.Popen[bytes]) -> None:
    assert not heartbeat.is_idle(busy.pid)
    os.kill(busy.pid, signal.SIGSTOP)
    assert heartbeat.is_idle(busy.pid)


@needs_counters
def test_ended_process_is_not_idle() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not heartbeat.is_idle(ended.pid)


def test_silences_are_as_old_as_the_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    recorder = heartbeat.HeartbeatRecorder()
    record = heartbeat.HeartbeatRecord("node", 1, quiet_seconds=2.0)
    recorder.record("a", record)
    now[0] += 3
    assert recorder.silences() == {"a": heartbeat.Silence(record, 5.0, record_age=3.0)}
    recorder.record("b", record)
    assert list(recorder.silences()) == ["b"], "a process runs one trial at a time"


class RecordingActor:
    """A stand-in for the actor that receives heartbeats; ``record.remote`` is called as on a Ray actor."""

    def __init__(self) -> None:
        self.last: heartbeat.HeartbeatRecord | None = None
        self.record = SimpleNamespace(remote=self._record)

    def _record(self, trial_id: str, record: heartbeat.HeartbeatRecord) -> None:
        self.last = record

    def wait_until(self, condition: Callable[[heartbeat.HeartbeatRecord], bool]) -> None:
        """Wait until a new heartbeat meets a condition."""
        self.last = None
        began = time.monotonic()
        while self.last is None or not condition(self.last):
            assert time.monotonic() - began < 60, self.last
            time.sleep(0.01)


def test_heartbeats_report_evaluations_until_the_trial_makes_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "the node")
    )
    actor = RecordingActor()
    sender = heartbeat.Heartbeat()
    sender.begin("trial", heartbeat.Listener(actor, heartbeat_seconds=0.1))
    with sender:
        actor.wait_until(lambda record: record.is_loading and not record.is_evaluating)
        sender.sign()
        actor.wait_until(lambda record: not record.is_loading and record.quiet_seconds > 0)
        sender.evaluate()
        actor.wait_until(lambda record: record.quiet_seconds == 0 and record.is_evaluating)
    actor.wait_until(lambda record: not record.is_evaluating)
    with sender:
        actor.wait_until(lambda record: record.is_evaluating)
        sender.sign()
        actor.wait_until(lambda record: not record.is_evaluating)
