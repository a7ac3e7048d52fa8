"""An autoscaler adds nodes for waiting trials and removes idle ones; impossible requests are rejected at once."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from raysweep.cluster import waiting
from raysweep.cluster.connection import connected
from raysweep.cluster.resources import CLUSTER_FILE_VARIABLE, Capacity
from raysweep.config.sweep import EvaluationConfig, ResourcesConfig
from raysweep.errors import InputError
from raysweep.ray_tune import tune
from raysweep.ray_tune.run import metered
from raysweep.ray_tune.workers import WorkbenchSpec
from raysweep.results.bill import build_bill
from raysweep.results.reader import load
from support.autoscaled import autoscaled
from support.faulty_trials import SlowTrials
from support.sweeps import make

pytestmark = pytest.mark.recovery

IDLE_SECONDS = 6
NODE_TYPES = {
    "cpu": {"resources": {"CPU": 1}, "max_workers": 3},
    "gpu_spot": {
        "resources": {"CPU": 2, "GPU": 1},
        "max_workers": 1,
        "priority": 1,
        "node_config": {"spot": True},
    },
    "gpu": {"resources": {"CPU": 2, "GPU": 1, "on_demand": 1}, "max_workers": 1},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of an autoscaling cluster whose cluster file is configured."""
    with (
        autoscaled(tmp_path_factory.mktemp("a"), NODE_TYPES, IDLE_SECONDS) as (
            cluster_address,
            file,
        ),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(CLUSTER_FILE_VARIABLE, str(file))
        yield cluster_address


def num_workers() -> int:
    return sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())


def join(address: str, **resources: Any) -> Any:
    return connected(ResourcesConfig(address=address, **resources), show_workers=False)


def test_nodes_are_added_in_one_round_and_removed_when_idle(address: str, tmp_path: Path) -> None:
    resources = ResourcesConfig(
        address=address, cpus_per_trial=1, gpus_per_trial=0, max_concurrent_trials=3
    )
    prices = "{cpu: 0.5, default: 0.1}"
    sweep, _ = make(
        tmp_path, budget__trials="6", early_stopping__policy="none", budget__prices=prices
    )
    counts: list[tuple[float, int]] = []  # seconds and number of workers
    with (
        join(address, cpus_per_trial=1, gpus_per_trial=0, max_concurrent_trials=3) as capacity,
        metered(sweep.config.budget) as sweep.meter,
    ):
        assert num_workers() == 0
        assert capacity.has_several_nodes, "the autoscaler may add workers"
        request = capacity.trials(resources)
        assert (request.cpus, request.gpus, request.count) == (1, 0, 3)
        assert capacity.trials(ResourcesConfig()).count == 2, "the autoscaler may add two GPUs"
        began = time.monotonic()

        def note(*_: object) -> None:
            counts.append((time.monotonic() - began, num_workers()))

        sweep.show = note  # type: ignore[method-assign]
        unused: Any = None
        tune.search(sweep, WorkbenchSpec(unused, EvaluationConfig(), request), SlowTrials)
        ended = time.monotonic()
        sweep.finish("completed", "all trials are done")
        max_count = max(count for _, count in counts)
        assert 2 <= max_count <= 3
        first_seconds = next(seconds for seconds, count in counts if count)
        complete_seconds = next(seconds for seconds, count in counts if count == max_count)
        assert complete_seconds - first_seconds < 10
        while num_workers():
            assert time.monotonic() - ended < IDLE_SECONDS + 15
            time.sleep(0.5)
    results = load(tmp_path)
    assert [str(trial.status) for trial in results.trials] == ["completed"] * 6
    bill = build_bill(results)
    # this provider does not label nodes with their type
    up_seconds = sum(node.up_seconds for node in bill.nodes)
    assert ended - began - 10 <= up_seconds <= 4 * (ended - began + 10)
    assert bill.trials > 0


@pytest.mark.parametrize(("cpus", "gpus"), [(4, 0), (4, 1)])
def test_impossible_request_is_rejected_within_seconds(
    address: str, cpus: float, gpus: float
) -> None:
    began = time.monotonic()
    resources = ResourcesConfig(
        address=address, cpus_per_trial=cpus, gpus_per_trial=gpus, max_concurrent_trials=4
    )
    with join(address) as capacity, pytest.raises(InputError, match="largest possible node"):
        Capacity(capacity.nodes).trials(resources)
    assert time.monotonic() - began < 5


def test_on_demand_nodes_replace_unavailable_spot_nodes(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray 2.60 itself keeps requesting the type whose launch fails."""
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 3)
    monkeypatch.setattr(waiting, "UNAVAILABLE_SECONDS", 5)
    # One at a time: for two trials, Ray itself would request one node of each type.
    resources = ResourcesConfig(
        address=address, cpus_per_trial=1, gpus_per_trial=1, max_concurrent_trials=1
    )
    sweep, out = make(tmp_path, budget__trials="2", early_stopping__policy="none")
    with join(address) as capacity:
        request = capacity.trials(resources)
        unused: Any = None
        tune.search(sweep, WorkbenchSpec(unused, EvaluationConfig(), request), SlowTrials)
        kinds = {name for node in ray.nodes() if node["Alive"] for name in node["Resources"]}
    sweep.finish("completed", "all trials are done")
    assert "on_demand" in kinds
    assert re.search("gpu_spot .*requesting 1 of type gpu", out.getvalue())
    assert [str(trial.status) for trial in load(tmp_path).trials] == ["completed"] * 2
