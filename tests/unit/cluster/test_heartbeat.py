"""Detection of idle processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.cluster import heartbeat

pytestmark = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="/proc has no I/O counters of processes")


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "IDLE_SECONDS", 1.0)


def test_computing_process_is_idle_once_stopped(busy: subprocess.Popen[bytes]) -> None:
    assert not heartbeat.is_idle(busy.pid)
    os.kill(busy.pid, signal.SIGSTOP)
    assert heartbeat.is_idle(busy.pid)


def test_ended_process_is_not_idle() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not heartbeat.is_idle(ended.pid)
