"""Requests of workers for the present and possible nodes of a cluster. No Ray is started."""

from pathlib import Path

import pytest
from ray.core.generated.autoscaler_pb2 import ClusterConfig

from raysweep.cluster import ray_internals
from raysweep.cluster.resources import (
    Capacity,
    NodeGroup,
    NodeSize,
    Request,
    encoder_bytes,
    groups_in_config,
    node_groups,
    read_capacity,
    shard_bytes,
    trial_bytes,
    worker_nodes,
)
from raysweep.config.sweep import ResourcesConfig
from raysweep.errors import InputError


def capacity(*nodes: tuple[float, float]) -> Capacity:
    return Capacity(tuple(NodeSize(cpus, gpus) for cpus, gpus in nodes))


@pytest.mark.parametrize(
    ("nodes", "encoders", "trials"),
    [
        (((2, 0),), (2, 0, 1), (2, 0, 1)),
        (((1, 0),), (1, 0, 1), (1, 0, 1)),
        (((64, 0),), (8, 0, 8), (8, 0, 8)),
        (((12, 0),), (6, 0, 2), (6, 0, 2)),
        (((1, 0), (16, 0)), (8, 0, 2), (8, 0, 2)),
        (((8, 1), (8, 1), (4, 0)), (1, 1, 2), (1, 1, 2)),
    ],
)
def test_requests_fit_the_present_nodes(
    nodes: tuple[tuple[float, float], ...],
    encoders: tuple[float, float, int],
    trials: tuple[float, float, int],
) -> None:
    cluster = capacity(*nodes)
    request = cluster.encoders()
    assert (request.cpus, request.gpus, request.count) == encoders
    request = cluster.trials(ResourcesConfig())
    assert (request.cpus, request.gpus, request.count) == trials


def test_encoders_are_single_threaded_if_there_are_enough_chunks() -> None:
    cluster = capacity((2, 0), (3.5, 0))
    assert cluster.encoders(19) == cluster.processors()
    request = cluster.encoders(20)
    assert (request.cpus, request.gpus, request.count) == (1, 0, 5)
    assert capacity((8, 1)).encoders(1000).gpus == 1


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (Capacity((NodeSize(2, 0),), num_present=1, num_alive=1), False),
        # the driver is on a head without CPUs
        (
            Capacity((NodeSize(2, 0),), num_present=1, num_alive=2),
            True,
        ),
        (Capacity((NodeSize(2, 0),) * 3, num_present=3, num_alive=3), True),
        # an autoscaler brings the first worker
        (
            Capacity((NodeSize(2, 0),), num_present=0, num_alive=1),
            True,
        ),
        (Capacity((NodeSize(2, 0),)), False),
    ],
)
def test_has_several_nodes(capacity: Capacity, expected: bool) -> None:
    assert capacity.has_several_nodes == expected


def test_cluster_without_workers_needs_max_concurrent_trials() -> None:
    head = [{"memory": 1.0}]
    with pytest.raises(InputError, match=r"resources\.max_concurrent_trials.*no workers"):
        worker_nodes(head, ResourcesConfig())
    cluster = Capacity(
        worker_nodes(head, ResourcesConfig(gpus_per_trial=0.5, max_concurrent_trials=4))
    )
    assert (cluster.encoders().gpus, cluster.encoders().count) == (1, 2)
    trials = cluster.trials(ResourcesConfig(gpus_per_trial=0.5, max_concurrent_trials=4))
    assert (trials.gpus, trials.count) == (0.5, 4)


def test_no_gpus_are_used_with_gpus_per_trial_0() -> None:
    nodes = worker_nodes([{"CPU": 8, "GPU": 1}], ResourcesConfig(gpus_per_trial=0))
    assert Capacity(nodes).encoders().gpus == 0


def test_cpu_trials_share_the_cpus_of_a_gpu_node() -> None:
    request = capacity((16, 1)).trials(ResourcesConfig(gpus_per_trial=0))
    assert (request.cpus, request.gpus, request.count) == (8, 0, 2)


def test_fractional_requests_share_a_gpu_or_a_node() -> None:
    request = capacity((8, 2)).trials(ResourcesConfig(gpus_per_trial=0.2, cpus_per_trial=0.8))
    assert (request.gpus, request.count) == (0.2, 10)
    request = capacity((2, 0)).trials(ResourcesConfig(cpus_per_trial=1.0))
    assert (request.cpus, request.count) == (1, 2)
    with pytest.raises(
        InputError, match="3 CPUs and 0 GPUs.* has 2 and 0; .*resources.cpus_per_trial"
    ):
        capacity((2, 0)).trials(ResourcesConfig(cpus_per_trial=3.0))


def test_trials_are_packed_on_a_gpu_by_memory_and_cpus() -> None:
    cluster = capacity((16, 1), (24, 1))
    assert cluster.cpus_per_gpu == 16
    request = cluster.trials(ResourcesConfig(gpus_per_trial="measured", cache_gib=1))
    assert (request.gpus, request.count) == (1, 2)
    packed = request.packed(peak_bytes=5 << 30, gpu_bytes=80 << 30, cpus_per_gpu=16)
    # 72 GiB usable, 5 of a trial, 1 of its cache and 0.6 of its context
    assert round(1 / packed.gpus) == 10
    assert packed.count == 20
    assert packed.cpus * 10 == pytest.approx(request.cpus)
    assert (
        round(1 / request.packed(peak_bytes=5 << 30, gpu_bytes=80 << 30, cpus_per_gpu=4.5).gpus)
        == 4
    )
    assert request.packed(peak_bytes=5 << 30, gpu_bytes=80 << 30, cpus_per_gpu=0.5) == request
    assert request.packed(peak_bytes=100 << 30, gpu_bytes=80 << 30, cpus_per_gpu=16) == request


def test_cpus_per_gpu() -> None:
    assert capacity((16, 8), (12, 1), (4, 0)).cpus_per_gpu == 2
    assert capacity((4, 0)).cpus_per_gpu == 0


GIB = 2**30


def with_memory(*nodes: tuple[float, float, float]) -> Capacity:
    """Return a cluster of nodes with these CPUs, GPUs and GiB."""
    return Capacity(tuple(NodeSize(cpus, gpus, gib * GIB) for cpus, gpus, gib in nodes))


def test_memory_limits_concurrent_trials() -> None:
    cluster = with_memory((8, 0, 10), (4, 0, 100))
    trials = cluster.trials(ResourcesConfig(cpus_per_trial=1))
    assert (trials.count, trials.memory_bytes) == (12, 0)
    request = cluster.with_memory(trials, 3 * GIB)
    assert (request.count, request.memory_bytes) == (3 + 4, 3 * GIB)
    assert request.resources == {"cpu": 1, "gpu": 0, "memory": 3 * GIB}
    assert "memory" not in trials.resources


def test_memory_request_is_at_most_that_of_the_largest_fitting_node() -> None:
    cluster = with_memory((8, 0, 10), (1, 0, 500))
    trials = cluster.trials(ResourcesConfig(cpus_per_trial=2))
    request = cluster.with_memory(trials, 30 * GIB)
    assert (request.count, request.memory_bytes) == (1, 10 * GIB)


def test_memory_does_not_stop_a_cluster_from_scaling() -> None:
    cluster = with_memory((4, 0, 8))
    trials = cluster.trials(ResourcesConfig(cpus_per_trial=2, max_concurrent_trials=16))
    request = cluster.with_memory(trials, 5 * GIB)
    assert (request.count, request.memory_bytes) == (16, 5 * GIB)
    growing_cluster = Capacity(
        worker_nodes([], ResourcesConfig(cpus_per_trial=2, max_concurrent_trials=16))
    )
    trials = growing_cluster.trials(ResourcesConfig(cpus_per_trial=2, max_concurrent_trials=16))
    assert growing_cluster.with_memory(trials, 5 * GIB) == trials


def test_node_memory_is_that_of_ray() -> None:
    (node,) = worker_nodes([{"CPU": 8, "GPU": 1, "memory": 5e9}], ResourcesConfig(gpus_per_trial=0))
    assert node == NodeSize(8, 0, 5e9)


@pytest.mark.parametrize(("sentences", "measured_mib"), [(64, 1132), (256, 1643), (512, 2365)])
def test_trial_bytes_equal_measured_memory(sentences: int, measured_mib: float) -> None:
    tokens = round(sentences * 17.67)
    needed = trial_bytes(90_854_912, num_layers=6, width=384, tokens_of_batch=tokens, cache_bytes=0)
    assert needed / 2**20 == pytest.approx(measured_mib, rel=0.05)
    cached = trial_bytes(
        90_854_912, num_layers=6, width=384, tokens_of_batch=tokens, cache_bytes=GIB
    )
    assert cached == needed + GIB


def test_encoder_and_shard_bytes_equal_measured_memory() -> None:
    assert encoder_bytes(90_854_912, width=384) / 2**20 == pytest.approx(568, rel=0.1)
    vectors = 200_000 * 384 * 4
    assert vectors < shard_bytes(200_000, width=384) < vectors + 256 * 2**20


SPOT = NodeGroup("spot", NodeSize(8, 1), 4)
CPUS = NodeGroup("cpus", NodeSize(64, 0), 2)
HEAD = NodeGroup("head", NodeSize(0, 0), 1)


def test_autoscaled_nodes_count_as_present() -> None:
    nodes = worker_nodes([{"CPU": 2.0}], ResourcesConfig(), [HEAD, SPOT, CPUS])
    assert sorted(nodes) == sorted([NodeSize(2, 0), *[NodeSize(8, 1)] * 4, *[NodeSize(64, 0)] * 2])
    trials = Capacity(nodes).trials(ResourcesConfig())
    assert (trials.gpus, trials.count) == (1, 4)
    assert Capacity(nodes).trials(ResourcesConfig(max_concurrent_trials=3)).count == 3
    on_cpus = worker_nodes([], ResourcesConfig(gpus_per_trial=0), [HEAD, SPOT, CPUS])
    assert (
        Capacity(on_cpus).trials(ResourcesConfig(gpus_per_trial=0, cpus_per_trial=8)).count
        == 4 + 16
    )


@pytest.mark.parametrize(("cpus", "gpus"), [(9, 1), (65, 0)])
def test_trial_that_fits_no_node_type_is_rejected(cpus: float, gpus: float) -> None:
    resources = ResourcesConfig(cpus_per_trial=cpus, gpus_per_trial=gpus)
    cluster = Capacity(worker_nodes([], resources, [HEAD, SPOT, CPUS]))
    largest = "8 and 1" if gpus else "64 and 0"
    message = f"{cpus} CPUs and {'1 GPU' if gpus else '0 GPUs'}, but the largest possible node has {largest}"
    with pytest.raises(InputError, match=message):
        cluster.trials(resources)


def test_node_types_are_read_from_the_file_of_the_head(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    assert node_groups(file) == []
    file.write_text(
        "max_workers: 5\nhead_node_type: head\navailable_node_types:\n"
        "  head: {resources: {CPU: 8}}\n"
        "  gpu: {resources: {CPU: 8, GPU: 2, memory: 5000}, max_workers: 3}\n"
        "  any: {resources: {CPU: 1}}\n"
    )
    assert node_groups(file) == [
        NodeGroup("gpu", NodeSize(8, 2, 5000), 3),
        NodeGroup("any", NodeSize(1, 0), 5),
    ]


def test_own_resource_marks_a_node_type(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "max_workers: 9\nhead_node_type: head\navailable_node_types:\n"
        "  head: {resources: {CPU: 0, quiet: 1}}\n"
        "  quiet: {resources: {CPU: 4, quiet: 1, half: 0.5}, max_workers: 2}\n"
        "  spot: {resources: {CPU: 4, GPU: 1, fast: 1}, max_workers: 2}\n"
        "  on_demand: {resources: {CPU: 4, GPU: 1, fast: 1, on_demand: 1}, max_workers: 2}\n"
        "  cpus: {resources: {CPU: 4, memory: 5}, max_workers: 2}\n"
    )
    assert {group.name: group.mark for group in node_groups(file)} == {
        "quiet": None,
        "spot": None,
        "on_demand": "on_demand",
        "cpus": None,
    }


def config_of(*groups: tuple[str, dict[str, int], int], **max_resources: int) -> ClusterConfig:
    """Return Ray's own configuration of a cluster: each group's name, resources and maximum number of nodes."""
    config = ClusterConfig(max_resources=max_resources)
    for name, amounts, max_count in groups:
        config.node_group_configs.add(name=name, resources=amounts, max_count=max_count)
    return config


GPU_NODE = {"CPU": 8, "GPU": 1}


def test_node_groups_are_read_from_rays_own_configuration() -> None:
    config = config_of(
        ("head", {"CPU": 4}, 1),
        ("gpu", {**GPU_NODE, "spot": 1}, 64),
        ("off", GPU_NODE, 0),
        ("any", {"CPU": 2}, -1),
    )
    head = NodeSize(4, 0, 1e9)
    expected = [NodeGroup("gpu", NodeSize(8, 1), 64, "spot"), NodeGroup("any", NodeSize(2, 0), 3)]
    assert groups_in_config(config, head, 3) == expected
    assert [group.name for group in groups_in_config(config, NodeSize(0, 0), 3)] == [
        "head",
        "gpu",
        "any",
    ]
    assert groups_in_config(None, head, 3) == []


def test_maximum_resources_limit_the_node_groups() -> None:
    config = config_of(("a", GPU_NODE, 10), ("b", {"CPU": 8}, 10), CPU=48, GPU=2)
    assert {group.name: group.max_count for group in groups_in_config(config, None, 3)} == {
        "a": 2,
        "b": 4,
    }


def node_of(resources: dict[str, float], **labels: str) -> dict[str, object]:
    return {"Alive": True, "Resources": resources, "Labels": labels}


def capacity_of(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[dict[str, object]],
    config: ClusterConfig | None,
    **resources: object,
) -> Capacity:
    """Return the capacity of a joined cluster with these nodes and this configuration of its autoscaler."""
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr(ray_internals, "read_cluster_config", lambda: config)
    return read_capacity(ResourcesConfig.model_validate({"address": "auto", **resources}))


HEAD_NODE = node_of({"CPU": 0.0, "node:__internal_head__": 1.0})


@pytest.mark.parametrize("labels", [{}, {"ray.io/node-group": "gpu"}])
def test_warm_autoscaled_cluster_has_room_for_all_possible_encoders(
    monkeypatch: pytest.MonkeyPatch, labels: dict[str, str]
) -> None:
    nodes = [HEAD_NODE, node_of({"CPU": 8.0, "GPU": 1.0, "memory": 5e9}, **labels)]
    found = capacity_of(monkeypatch, nodes, config_of(("gpu", GPU_NODE, 64)))
    assert found.encoders().count == found.trials(ResourcesConfig()).count == 64
    assert (found.num_present, found.num_alive) == (1, 2)


def test_nodes_beyond_their_group_also_count(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [HEAD_NODE, *[node_of({"CPU": 8.0, "GPU": 1.0})] * 3]
    assert capacity_of(monkeypatch, nodes, config_of(("gpu", GPU_NODE, 2))).encoders().count == 3


def test_warm_cluster_without_configuration_grows_to_the_concurrent_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [HEAD_NODE, node_of({"CPU": 8.0, "GPU": 2.0})]
    assert capacity_of(monkeypatch, nodes, None).encoders().count == 2
    assert capacity_of(monkeypatch, nodes, None, max_concurrent_trials=7).encoders().count == 8
    assert (
        capacity_of(monkeypatch, nodes, None, max_concurrent_trials=7, gpus_per_trial=0.5)
        .encoders()
        .count
        == 4
    )


def test_prepare_workers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node_of({"CPU": 16.0}), node_of({"CPU": 16.0})]
    found = capacity_of(monkeypatch, nodes, None, max_prepare_workers=3)
    assert found.encoders(10_000) == found.processors() == Request(8, 0, 3)
    assert capacity_of(monkeypatch, nodes, None).encoders(10_000) == Request(1, 0, 32)
    on_gpus = [node_of({"CPU": 8.0, "GPU": 4.0})]
    assert capacity_of(monkeypatch, on_gpus, None, max_prepare_workers=3).encoders().count == 3
    assert found.trials(ResourcesConfig()).count == 4


def test_node_groups_of_unusual_files(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "max_workers: 5\navailable_node_types: {a: , b: {resources: {}}, c: {max_workers: 0, resources: {CPU: 1}}}\n"
    )
    assert node_groups(file) == []
    file.write_text("max_workers: 5\navailable_node_types:\n")
    assert node_groups(file) == []
    for text in (
        "max_workers:\n",
        "available_node_types: {a: 5}\n",
        "available_node_types: {a: {resources: {CPU: x}}}\n",
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=r"cluster\.yaml: .*`ray up`"):
            node_groups(file)
