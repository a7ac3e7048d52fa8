"""Ray's private interfaces behave as raysweep expects, on a cluster of the installed version."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import ray
from ray.air.execution import FixedResourceManager, ResourceRequest
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError

from raysweep.cluster import ray_internals
from raysweep.cluster.connection import CONNECT_SECONDS, connected
from raysweep.cluster.resources import HEAD_RESOURCE
from raysweep.cluster.waiting import describe_waiting
from raysweep.config.sweep import ResourcesConfig

T = TypeVar("T")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with connected(ResourcesConfig(num_cpus=1)):
        yield ray.get_runtime_context().gcs_address


def wait(seconds: float) -> None:
    time.sleep(seconds)


def until(read: Callable[[], T | None]) -> T:
    """Return the first value that is true, since Ray's head updates its state with a delay."""
    for _ in range(600):
        if value := read():
            return value
        time.sleep(0.1)
    raise AssertionError("no value within a minute")


def test_address_is_resolved(address: str) -> None:
    assert ray_internals.resolve_address(address) == address


def test_status_lists_pending_work(address: str) -> None:
    task = ray.remote(num_cpus=8)(wait).remote(0)
    waiting = until(
        lambda: describe_waiting(ray_internals.read_cluster_status(address, CONNECT_SECONDS))
    )
    ray.cancel(task)
    assert "8 CPU" in waiting.text


def test_local_cluster_has_no_autoscaler_configuration(address: str) -> None:
    config = ray_internals.read_cluster_config()
    assert config is None or not config.node_group_configs


class Idle:
    """An actor with a task."""

    def work(self) -> None:
        pass


def test_tune_treats_an_actor_killed_for_memory_as_dead(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_internals.count_memory_kills_as_deaths()
    errors: list[Exception] = []
    manager = RayActorManager(resource_manager=FixedResourceManager({"CPU": 1}))
    actor = manager.add_actor(
        Idle,
        kwargs={},
        resource_request=ResourceRequest([{"CPU": 1}]),
        on_error=lambda _, error: errors.append(error),
    )
    until(lambda: manager.next(timeout=1) and manager.is_actor_started(actor))
    handle, _ = manager._live_actors_to_ray_actors_resources[actor]
    manager.schedule_actor_task(actor, "work")

    def killed(_: object) -> None:
        raise OutOfMemoryError("1 worker(s) were killed")

    monkeypatch.setattr(ray, "get", killed)
    until(lambda: manager.next(timeout=1) and errors)
    assert isinstance(errors[0], RayActorError)
    assert "1 worker(s) were killed" in str(errors[0])
    ray.kill(handle)


def work_on(started: Path) -> None:
    started.touch()
    wait(600)


def test_head_is_marked_and_nodes_are_drained(address: str, tmp_path: Path) -> None:
    (node,) = ray.nodes()
    assert HEAD_RESOURCE in node["Resources"]
    assert ray_internals.read_draining_nodes() == set()
    task = ray.remote(work_on).remote(tmp_path / "started")  # an idle node would end at once
    until((tmp_path / "started").exists)
    assert ray_internals.drain_node(node["NodeID"], 600)
    assert until(ray_internals.read_draining_nodes) == {node["NodeID"]}
    ray.cancel(task, force=True)
