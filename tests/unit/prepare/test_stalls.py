"""A stage of prepare that makes no progress ends with the resources that the cluster really has."""

import sys
from types import SimpleNamespace

import pytest

from raysweep.cluster.waiting import WaitingWatch
from raysweep.errors import TemporaryError
from raysweep.prepare import build
from raysweep.prepare.build import _StallDetector
from raysweep.prepare.stages import StageProgress

STALL_SECONDS = 5.0
STARTED = StageProgress(0, 100, "sentences")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times that the clock shows next; the cluster's four CPUs are in use."""
    times: list[float] = []
    ray = SimpleNamespace(
        available_resources=lambda: {"CPU": 0.0}, cluster_resources=lambda: {"CPU": 4.0}
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(build, "time", SimpleNamespace(monotonic=lambda: times.pop(0)))
    return times


def check(
    clock: list[float], progress: StageProgress, seconds: float, stall: _StallDetector
) -> None:
    clock.append(seconds)
    stall.check(progress)


def test_stall_is_temporary_and_counts_only_the_nodes_that_have_joined(clock: list[float]) -> None:
    stall = _StallDetector("neighbors", STALL_SECONDS, WaitingWatch(print))
    check(clock, STARTED, 100.0, stall)
    check(clock, STARTED, 100.0 + STALL_SECONDS, stall)
    with pytest.raises(TemporaryError) as caught:
        check(clock, STARTED, 100.1 + STALL_SECONDS, stall)
    assert "CPUs=0 of 4," in str(caught.value) and "GPUs=0 of 0)" in str(caught.value)


@pytest.mark.parametrize(
    "progress",
    [STARTED._replace(done=1), STARTED._replace(waits_for="nodes"), STARTED._replace(shards=1)],
)
def test_progress_and_waiting_for_nodes_are_not_stalls(
    clock: list[float], progress: StageProgress
) -> None:
    stall = _StallDetector("neighbors", STALL_SECONDS, WaitingWatch(print))
    check(clock, STARTED, 100.0, stall)
    check(clock, progress, 200.0, stall)
    check(clock, progress, 200.0 + STALL_SECONDS, stall)
