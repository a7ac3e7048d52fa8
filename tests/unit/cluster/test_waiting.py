"""Descriptions of pending work, and requests for nodes of other types. No Ray is started."""

import re
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from raysweep.cluster import waiting as module
from raysweep.cluster.resources import NodeGroup, NodeSize, Request
from raysweep.cluster.waiting import Waiting, WaitingWatch, describe_waiting, find_alternatives

SPOT = NodeGroup("spot", NodeSize(4, 1), 8)
ON_DEMAND = NodeGroup("on_demand", NodeSize(4, 1), 4, "on_demand")
CPUS = NodeGroup("cpus", NodeSize(64, 0), 2, "cpus")


def status(**values: Any) -> Any:
    """Return the status of a cluster with three waiting trials."""
    from ray.autoscaler.v2 import schema

    trials = schema.ResourceRequestByCount({"CPU": 4.0, "GPU": 1.0, "memory": 2.0**31}, 3)
    demands = schema.ResourceDemandSummary(
        placement_group_demand=[schema.PlacementGroupResourceDemand([trials], "pending")]
    )
    return schema.ClusterStatus(resource_demands=demands, **values)


def test_probe_tasks_are_not_pending_work() -> None:
    from ray.autoscaler.v2 import schema

    def waits_for(bundle: dict[str, float]) -> bool:
        demand = schema.RayTaskActorDemand([schema.ResourceRequestByCount(bundle, 1)])
        summary = schema.ResourceDemandSummary(ray_task_actor_demand=[demand])
        return describe_waiting(schema.ClusterStatus(resource_demands=summary)) is not None

    assert not waits_for({"on_demand": 1.0})
    assert waits_for({"CPU": 1.0})
    assert waits_for({"CPU": 1.0, "on_demand": 1.0})
    assert waits_for({"bundle_group_1": 0.001})


def test_description_of_pending_work_and_starting_nodes() -> None:
    from ray.autoscaler.v2 import schema

    assert describe_waiting(schema.ClusterStatus()) is None
    demands = (Request(4, 1, 3, memory_bytes=2**31),)
    requested = "waiting for resources (requested: 3 x (4 CPU and 1 GPU and 2.0 GiB of memory)"
    assert describe_waiting(status()) == (
        f"{requested}; nodes starting: none)",
        False,
        demands,
        frozenset(),
    )
    launch = schema.LaunchRequest("g6", "spot", 2, schema.LaunchRequest.Status.PENDING, 0)
    node = schema.NodeInfo("g6", "spot", "i-1", "10.0.0.1")
    starting_nodes = describe_waiting(status(pending_launches=[launch], pending_nodes=[node]))
    assert starting_nodes == (f"{requested}; nodes starting: 3 x spot)", True, demands, frozenset())
    failed = partial(
        schema.LaunchRequest,
        "g6",
        "spot",
        2,
        schema.LaunchRequest.Status.FAILED,
        0,
        details="no\n capacity",
    )
    old, new = failed(failed_ts_s=int(time.time()) - 3600), failed(failed_ts_s=int(time.time()))
    assert describe_waiting(status(failed_launches=[old])) == describe_waiting(status())
    pending = describe_waiting(status(failed_launches=[old, new]))
    text = f"{requested}; nodes starting: none); last launch of type spot failed: no capacity"
    assert pending == (text, False, demands, {"spot"})
    starting = describe_waiting(status(failed_launches=[new], pending_nodes=[node]))
    assert starting is not None
    assert not starting.unavailable, "a node of some type is starting"


@pytest.mark.parametrize(
    ("demands", "groups", "expected"),
    [
        ([Request(4, 1, 3)], [SPOT, ON_DEMAND, CPUS], {ON_DEMAND: 3}),
        ([Request(4, 1, 3), Request(1, 0.25, 7)], [SPOT, ON_DEMAND], {ON_DEMAND: 4}),
        ([Request(1, 0.25, 7)], [SPOT, ON_DEMAND], {ON_DEMAND: 2}),
        ([Request(0, 1, 2)], [ON_DEMAND], {ON_DEMAND: 2}),
        ([Request(1, 0, 70)], [SPOT, ON_DEMAND, CPUS], {CPUS: 2}),
        ([Request(4, 1, 3, memory_bytes=9)], [SPOT, ON_DEMAND], {ON_DEMAND: 3}),
        (
            [Request(4, 1, 3, memory_bytes=9)],
            [SPOT, ON_DEMAND._replace(size=NodeSize(4, 1, 8))],
            {},
        ),
        ([Request(8, 0, 9)], [SPOT, ON_DEMAND, CPUS], {CPUS: 2}),
        ([Request(8, 1, 1)], [SPOT, ON_DEMAND, CPUS], {}),
        ([Request(4, 1, 1)], [SPOT], {}),
        ([Request(4, 1, 1)], [SPOT._replace(mark="spot")], {}),
    ],
)
def test_number_of_alternative_nodes(
    demands: list[Request], groups: list[NodeGroup], expected: dict[NodeGroup, int]
) -> None:
    assert (
        find_alternatives(Waiting("", False, tuple(demands), frozenset({"spot"})), groups)
        == expected
    )


class Sent:
    """Substitute for probe tasks that counts them."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.num_canceled = 0

    def submit(self, group: NodeGroup, count: int) -> None:
        self.sent.append((group.name, count))

    def cancel(self) -> None:
        self.num_canceled += 1


def test_alternative_nodes_are_requested_once_per_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    sent = Sent()
    lines: list[str] = []
    waiting_work = Waiting("waiting for resources", False, (Request(4, 1, 3),), frozenset({"spot"}))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "ProbeTasks", lambda: sent)
    monkeypatch.setattr(module, "waiting", lambda: waiting_work)
    monkeypatch.setattr(module, "node_groups", lambda _: [SPOT, ON_DEMAND])
    watch = WaitingWatch(lines.append)

    def look(quiet_seconds: float) -> None:
        now[0] += 20
        assert not watch.check(quiet_seconds)

    look(20)
    assert not lines
    look(119)
    assert (lines, sent.sent) == (["waiting for resources"], [])
    look(120)
    look(140)
    assert sent.sent == [("on_demand", 3)]
    (line,) = lines[1:]
    assert re.search("spot .*requesting 3 of type on_demand", line)
    watch.moved()
    watch.moved()
    assert sent.num_canceled == 1
    look(130)
    assert sent.sent == [("on_demand", 3)] * 2


def test_work_pending_alongside_running_work_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    lines: list[str] = []
    waiting_work = [Waiting("one node is starting", True, (), frozenset())]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "waiting", lambda: waiting_work[0])
    watch = WaitingWatch(lines.append)

    def look(quiet_seconds: float) -> None:
        now[0] += 40
        watch.check_remaining(quiet_seconds)

    look(20)
    look(40)
    assert not lines
    waiting_work[0] = Waiting("three are missing", False, (), frozenset())
    look(60)
    look(80)
    assert lines == ["three are missing"]
    watch.note_all_placed()
    look(40)
    assert lines == ["three are missing"] * 2
    watch.note_all_placed()
    waiting_work[0] = Waiting("launches fail", True, (), frozenset({"spot"}))
    look(40)
    assert lines[-1] == "launches fail"
