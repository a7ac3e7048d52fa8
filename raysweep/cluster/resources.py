"""Capacity of a Ray cluster: its nodes, and the number of workers of each stage that fit on them."""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from raysweep.cluster import ray_internals
from raysweep.config.document import Document
from raysweep.config.sweep import ResourcesConfig
from raysweep.errors import InputError
from raysweep.storage.location import expand_home

CUDA_CONTEXT_BYTES = 600 << 20  # GPU memory per process that no allocator reports
USABLE_GPU_MEMORY_FRACTION = 0.9  # of each GPU when trials are packed by measured memory
# an encoder gains little from more threads, so larger nodes run several processes
THREADS_PER_PROCESS = 8
RAYS_OWN = ("CPU", "GPU", "TPU", "memory", "object_store_memory")  # names of Ray's own resources
NODE_ID_LABEL = "ray.io/node-id"  # label that Ray itself sets on every node
GROUP_LABEL = "ray.io/node-group"  # label of nodes added by an autoscaler
HEAD_RESOURCE = "node:__internal_head__"  # a resource that only Ray's head has
NODES_OF_UNLIMITED_GROUP = 64  # if ``max_concurrent_trials`` is not set
BOOTSTRAP_FILE = "~/ray_bootstrap_config.yaml"  # where `ray up` stores the cluster file on its head
ADDRESS_VARIABLE = "RAY_ADDRESS"
CLUSTER_FILE_VARIABLE = "RAYSWEEP_CLUSTER_FILE"
CHUNKS_PER_PROCESS = 4  # minimum for using single-threaded encoders

# CPU memory: anonymous memory measured in processes that run MiniLM (6 layers of width 384, 87 MiB of fp32 weights).
TORCH_PROCESS_BYTES = 450 << 20  # 410 MiB after importing Ray, torch and sentence-transformers
SEARCH_PROCESS_BYTES = 100 << 20  # 62 MiB after importing Ray, NumPy and faiss
SEARCH_BLOCK_BYTES = 128 << 20  # for a block of queries: cosines, and the nearest rows so far
COPIES_PER_ENCODER = 5  # of the weights: current, gradients, two for AdamW, one being written; the initial ones are shared
# in multiples of the hidden width, per token and layer; 163 KiB per token was measured
FLOATS_KEPT_FOR_BACKWARD = 18
FLOATS_IN_FORWARD = 12  # in multiples of the hidden width, per token, for one layer at a time
TOKENS_IN_FORWARD = 4096  # per batch that is only encoded


class NodeSize(NamedTuple):
    """A node's CPUs and GPUs, and the memory in bytes that its Ray workers can use, or 0 if unknown."""

    cpus: float
    gpus: float
    memory_bytes: float = 0.0

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> "NodeSize":
        """Return the size of a node with these amounts of Ray resources."""
        cpus, gpus, memory_bytes = (
            float(amounts.get(resource, 0)) for resource in ("CPU", "GPU", "memory")
        )
        return cls(cpus, gpus, memory_bytes)

    def has_processors_of(self, other: "NodeSize") -> bool:
        """Return whether both nodes have the same CPUs and GPUs. Memory is ignored because it may be unknown."""
        return (self.cpus, self.gpus) == (other.cpus, other.gpus)


class NodeGroup(NamedTuple):
    """The nodes of one type that an autoscaler may add: the size of each node and the maximum number of nodes.

    ``mark`` is a resource that only this type has, which makes it possible to request nodes of this type.
    """

    name: str
    size: NodeSize
    max_count: int
    mark: str | None = None


@dataclass(frozen=True)
class Request:
    """The Ray resources for ``count`` identical workers: CPUs and GPUs per worker, possibly fractions below 1.

    ``cache_bytes`` is the memory that a running trial may use to cache the outputs of an encoder's frozen part.
    ``memory_bytes`` is the node memory to request, including the cache; 0 requests none. If ``checkpoints_blocks`` is
    True, a trial recomputes the activations of the encoder's blocks in the backward pass.
    """

    cpus: float
    gpus: float
    count: int
    cache_bytes: int = 0
    memory_bytes: int = 0
    checkpoints_blocks: bool = False

    @property
    def resources(self) -> dict[str, float]:
        """Return the CPUs, GPUs and, if requested, bytes of memory in the form that Ray Tune expects."""
        processors = {"cpu": self.cpus, "gpu": self.gpus}
        return {**processors, "memory": self.memory_bytes} if self.memory_bytes else processors

    @property
    def threads(self) -> int:
        """Return how many threads each worker uses."""
        return max(1, int(self.cpus))

    def packed(self, peak_bytes: int, gpu_bytes: int, cpus_per_gpu: float) -> "Request":
        """Return the request for the same GPUs, each shared by as many trials as it has memory and CPUs for.

        A trial of a small encoder keeps a CPU busy launching kernels, so running more trials than CPUs gains nothing.
        ``peak_bytes`` is a trial's peak memory without its cache and CUDA context. ``gpu_bytes`` is a GPU's total
        memory, a tenth of which is left free.
        """
        bytes_per_trial = peak_bytes + self.cache_bytes + CUDA_CONTEXT_BYTES
        num_in_memory = int(USABLE_GPU_MEMORY_FRACTION * gpu_bytes // bytes_per_trial)
        per_gpu = max(1, min(num_in_memory, int(cpus_per_gpu)))
        return replace(self, gpus=1 / per_gpu, cpus=self.cpus / per_gpu, count=self.count * per_gpu)


@dataclass(frozen=True)
class Capacity:
    """The nodes of a cluster that run work, and the number of workers of each kind that fit on them.

    ``nodes`` includes nodes that an autoscaler may still add. ``num_present`` is the number of nodes already up, if
    known. ``num_alive`` also includes nodes that run no work, such as a head without CPUs. ``max_workers``, if given,
    limits the number of workers in ``prepare``.
    """

    nodes: tuple[NodeSize, ...]
    num_present: int | None = None
    num_alive: int = 1
    max_workers: int | None = None

    @property
    def has_several_nodes(self) -> bool:
        """Return whether the cluster has nodes besides the driver's, or an autoscaler may add some."""
        may_grow = self.num_present is not None and len(self.nodes) > self.num_present
        return self.num_alive > 1 or may_grow

    @property
    def gpus(self) -> float:
        return sum(node.gpus for node in self.nodes)

    @property
    def cpus(self) -> float:
        return sum(node.cpus for node in self.nodes)

    @property
    def cpus_per_gpu(self) -> float:
        """Return the number of CPUs per GPU on the node where it is lowest."""
        return min((node.cpus / node.gpus for node in self.nodes if node.gpus), default=0.0)

    def encoders(self, num_chunks: int = 0) -> Request:
        """Return the request for workers that encode ``num_chunks`` chunks: one per GPU, or processes on CPUs.

        Two single-threaded processes encode 10% faster than one with two threads, because the threads wait for each
        other at every step. With few chunks, this does not pay off: each process takes several seconds to start, and some
        are idle at the end.
        """
        if self.gpus < 1:
            num_cpus = sum(int(node.cpus) for node in self.nodes)
            # if the number of workers is limited, use fewer with more threads
            may_use_all = self._limit(num_cpus) == num_cpus
            has_enough_chunks = 0 < num_cpus * CHUNKS_PER_PROCESS <= num_chunks
            if may_use_all and has_enough_chunks:
                return Request(1, 0, num_cpus)
            return self.processors()
        with_gpu = [node for node in self.nodes if node.gpus >= 1]
        num_gpus = int(sum(node.gpus for node in with_gpu))
        fewest_cpus = min(node.cpus for node in with_gpu)
        return Request(min(1.0, fewest_cpus), 1, self._limit(num_gpus))

    def processors(self) -> Request:
        """Return the request for multithreaded workers that compute on CPUs.

        They may use every CPU: their data comes from artifacts and the object store, so no read or write tasks compete
        with them for CPUs, and their coordinator requests none.
        """
        largest = max(node.cpus for node in self.nodes)
        workers_on_largest = math.ceil(largest / THREADS_PER_PROCESS)
        cpus = max(1, largest // workers_on_largest)  # divides the largest node evenly
        num_fitting = sum(_times_in(node.cpus, cpus) for node in self.nodes)
        return Request(cpus, 0, max(1, self._limit(num_fitting)))

    def _limit(self, num_workers: int) -> int:
        return num_workers if self.max_workers is None else min(num_workers, self.max_workers)

    def trials(self, resources: ResourcesConfig) -> Request:
        """Return the request for trials: by default one per GPU or, if there are no GPUs, one for every few CPUs.

        Raises:
            InputError: If the cluster has no room for even one trial.
        """
        encoder = self.encoders()
        gpus = resources.requested_gpus
        if gpus is None:
            gpus = encoder.gpus
        cpus = resources.cpus_per_trial
        if not cpus:  # as many as for a worker that encodes
            on_cpus_alone = not gpus and encoder.gpus  # although the cluster has GPUs
            cpus = self.processors().cpus if on_cpus_alone else encoder.cpus
        cache_bytes = int(resources.cache_gib * 2**30)
        trial = Request(
            cpus, gpus, 1, cache_bytes, checkpoints_blocks=resources.gradient_checkpointing
        )
        num_fitting = _count_on(self.nodes, trial)
        if not num_fitting:
            compared = ("gpus", "cpus") if gpus else ("cpus", "gpus")
            largest = max(self.nodes, key=attrgetter(*compared))
            cpus_text = "1 CPU" if cpus == 1 else f"{cpus:g} CPUs"
            gpus_text = "1 GPU" if gpus == 1 else f"{gpus:g} GPUs"
            raise InputError(
                f"resources: a trial requests {cpus_text} and {gpus_text}, but the largest possible node has "
                f"{largest.cpus:g} and {largest.gpus:g}; lower resources.cpus_per_trial or resources.gpus_per_trial"
            )
        count = resources.max_concurrent_trials or num_fitting
        return replace(trial, count=count)

    def with_memory(self, request: Request, needed_bytes: int) -> Request:
        """Return the request with the memory that each worker needs, limited to as many workers as fit.

        The request never exceeds the memory of the largest suitable node, because a worker may still succeed there. No
        memory is requested if any suitable node's memory is unknown, as with nodes that an autoscaler may add.
        """
        fitting = [
            node for node in self.nodes if node.cpus >= request.cpus and node.gpus >= request.gpus
        ]
        sizes = [node.memory_bytes for node in fitting]
        if not sizes or not all(sizes):
            return request
        memory_bytes = min(needed_bytes, int(max(sizes)))
        count = request.count
        if count <= _count_on(fitting, request):  # otherwise, more nodes will be added
            max_count = _count_on(fitting, request, memory_bytes)
            count = min(count, max_count)
        return replace(request, memory_bytes=memory_bytes, count=count)


def trial_bytes(
    weights_bytes: int,
    num_encoders: int = 1,
    *,
    num_layers: int,
    width: int,
    tokens_of_batch: int,
    cache_bytes: int,
) -> int:
    """Return how many bytes of CPU memory a trial that trains ``num_encoders`` encoders needs.

    Trials that trained all of MiniLM's weights took 1132, 1643 and 2365 MiB with batches of 64, 256 and 512 sentences
    of 17.7 tokens; this function returns 1149, 1685 and 2401 MiB, plus the cache for the outputs of frozen blocks.
    """
    kept_for_backward = 4 * FLOATS_KEPT_FOR_BACKWARD * width * num_layers * tokens_of_batch
    num_copies = 1 + num_encoders * COPIES_PER_ENCODER
    return TORCH_PROCESS_BYTES + num_copies * weights_bytes + kept_for_backward + cache_bytes


def encoder_bytes(weights_bytes: int, *, width: int) -> int:
    """Return how many bytes of CPU memory a worker that only encodes needs.

    MiniLM peaked at 568 MiB; this function returns 609 MiB.
    """
    in_forward = 4 * FLOATS_IN_FORWARD * width * TOKENS_IN_FORWARD
    return TORCH_PROCESS_BYTES + weights_bytes + in_forward


def shard_bytes(num_rows: int, *, width: int) -> int:
    """Return how many bytes of memory a worker needs to hold ``num_rows`` vectors and search them for neighbors."""
    bytes_per_row = 4 * width + 16  # each vector plus its id, label and group
    return SEARCH_PROCESS_BYTES + SEARCH_BLOCK_BYTES + bytes_per_row * num_rows


def times_on(node: NodeSize, request: Request, memory_bytes: int = 0) -> int:
    """Return how many of a request's workers fit on a node at a time.

    The request must include at least one resource.
    """
    amounts = (
        (node.cpus, request.cpus),
        (node.gpus, request.gpus),
        (node.memory_bytes, memory_bytes),
    )
    return min(_times_in(available, requested) for available, requested in amounts if requested)


def _count_on(nodes: Sequence[NodeSize], request: Request, memory_bytes: int = 0) -> int:
    """Return how many of a request's workers fit on all nodes together."""
    return sum(times_on(node, request, memory_bytes) for node in nodes)


def _times_in(available: float, requested: float) -> int:
    """Return how many times the requested amount fits into the available amount; a plain 1 // 0.2 would return 4."""
    return math.floor(available / requested + 1e-9)


def worker_nodes(
    present: Sequence[Mapping[str, float]],
    resources: ResourcesConfig,
    groups: Sequence[NodeGroup] = (),
) -> tuple[NodeSize, ...]:
    """Return the nodes that may run work at the same time, including those that an autoscaler may add later.

    ``present`` holds the Ray resources of each live node outside ``groups``. Nodes without CPUs, such as a head that
    only coordinates, run no work.

    Raises:
        InputError: If no node can run work and ``resources`` sets no limit on scaling.
    """
    nodes = [NodeSize.of(amounts) for amounts in present]
    for group in groups:
        nodes += [group.size] * group.max_count
    nodes = [node for node in nodes if node.cpus > 0]
    if not nodes:
        # As many nodes as max_concurrent_trials trials need; trials that share a GPU are on the same node.
        if resources.max_concurrent_trials is None:
            raise InputError(
                "resources.max_concurrent_trials is not set, but the cluster has no workers yet: set it, and "
                "resources.gpus_per_trial or resources.cpus_per_trial, to define how far the cluster scales"
            )
        gpus = resources.requested_gpus or 0
        nodes_per_trial = min(1.0, gpus) or 1.0
        num_nodes = math.ceil(resources.max_concurrent_trials * nodes_per_trial)
        size = NodeSize(resources.cpus_per_trial or 1, math.ceil(gpus))
        nodes = [size] * num_nodes
    if resources.requested_gpus == 0:
        nodes = [node._replace(gpus=0.0) for node in nodes]
    return tuple(nodes)


def node_groups(file: Path) -> list[NodeGroup]:
    """Return the worker types in a `ray up` cluster file, or an empty list if the file does not exist.

    Each type has its own maximum number of nodes. The file's limit on the total number is not applied.
    """
    return _read_groups(file)[0]


def _read_groups(file: Path) -> tuple[list[NodeGroup], int]:
    """Return a cluster file's node groups and the maximum total number of nodes."""
    if not file.is_file():
        return [], 0
    values = Document.read(file).values
    try:
        return _groups_of(values)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{file}: not a cluster file of `ray up`: {error}") from None


def _groups_of(values: Mapping[str, Any]) -> tuple[list[NodeGroup], int]:
    head_type = values.get("head_node_type")
    max_workers = int(values.get("max_workers", 0))
    max_counts: dict[str, int] = {}
    resources: dict[str, Mapping[str, float]] = {}
    node_types = values.get("available_node_types") or {}
    for name, node_type in node_types.items():
        settings = node_type or {}
        max_counts[name] = int(settings.get("max_workers", max_workers))
        resources[name] = settings.get("resources") or {}
    marks = own_resources(resources)
    groups: list[NodeGroup] = []
    for name, amounts in resources.items():
        group = NodeGroup(name, NodeSize.of(amounts), max_counts[name], marks.get(name))
        may_run_work = group.size.cpus > 0 and group.max_count > 0
        # nodes of other types count only if they are already present
        if name != head_type and may_run_work:
            groups.append(group)
    return groups, max_workers


def own_resources(resources: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return, for each node type that has one, a resource (at least one unit) that no other type has."""
    num_types_with = Counter(resource for amounts in resources.values() for resource in amounts)
    own: dict[str, str] = {}
    for name, amounts in resources.items():
        for resource, amount in amounts.items():
            if num_types_with[resource] == 1 and resource not in RAYS_OWN and amount >= 1:
                own.setdefault(name, resource)
    return own


class Limits(NamedTuple):
    """Limits on the nodes that an autoscaler adds: their number, and their CPUs and GPUs in total."""

    nodes: float = math.inf
    cpus: float = math.inf
    gpus: float = math.inf


def _share_out(groups: Sequence[NodeGroup], limits: Limits) -> list[NodeGroup]:
    """Return the groups with the limits divided evenly among them, leaving out groups that get no nodes."""
    counts = [0] * len(groups)
    total = Limits(0, 0, 0)
    has_added = True
    while has_added:
        has_added = False
        for position, group in enumerate(groups):
            size = group.size
            grown = Limits(total.nodes + 1, total.cpus + size.cpus, total.gpus + size.gpus)
            fits = all(amount <= limit for amount, limit in zip(grown, limits, strict=True))
            if fits and counts[position] < group.max_count:
                counts[position] += 1
                total = grown
                has_added = True
    shares = zip(groups, counts, strict=True)
    return [group._replace(max_count=count) for group, count in shares if count]


def groups_in_config(config: Any, head: NodeSize | None, unlimited: int) -> list[NodeGroup]:
    """Return the worker groups in Ray's own cluster configuration, which may be None.

    Args:
        config: See :func:`raysweep.cluster.ray_internals.read_cluster_config`.
        head: The size of the running head. As in Ray Data, a group with a single node of this size is the head's.
        unlimited: The number of nodes to assume for each group without a maximum.
    """
    if config is None:
        return []
    resources = {group.name: dict(group.resources) for group in config.node_group_configs}
    marks = own_resources(resources)
    groups = []
    for group in config.node_group_configs:
        size = NodeSize.of(group.resources)
        is_of_head = group.max_count == 1 and head is not None and size.has_processors_of(head)
        if size.cpus > 0 and group.max_count and not is_of_head:
            max_count = unlimited if group.max_count < 0 else group.max_count
            mark = marks.get(group.name)
            groups.append(NodeGroup(group.name, size, max_count, mark))
    max_cpus, max_gpus = (config.max_resources.get(name, math.inf) for name in ("CPU", "GPU"))
    return _share_out(groups, Limits(cpus=max_cpus, gpus=max_gpus))


def cluster_file() -> Path:
    """Return the path of the cluster file: the one named in the environment, or else the head's own copy."""
    return expand_home(os.environ.get(CLUSTER_FILE_VARIABLE) or BOOTSTRAP_FILE)


def check_cluster_file() -> None:
    """Raise InputError if the environment names a cluster file that does not exist.

    Without the file, the nodes that an autoscaler may add would be unknown.
    """
    named = os.environ.get(CLUSTER_FILE_VARIABLE)
    if named and not cluster_file().exists():
        raise InputError(
            f"{CLUSTER_FILE_VARIABLE} is {named}; allowed: an existing cluster file of `ray up`"
        )


def read_capacity(resources: ResourcesConfig) -> Capacity:
    """Return the present and possible nodes of the cluster that this process has started or joined.

    Node groups come from the cluster file of `ray up` or else from Ray's own cluster configuration. If a joined cluster
    has neither, the result includes as many more nodes like its largest one as ``max_concurrent_trials`` trials need.
    """
    import ray

    living = [node for node in ray.nodes() if node["Alive"]]
    groups = _possible_groups(living, resources) if address_of(resources) else []
    num_left = Counter({group.name: group.max_count for group in groups})
    num_present = 0
    outside_groups = []
    for node in living:
        amounts = node["Resources"]
        if amounts.get("CPU", 0) > 0:
            num_present += 1
        if (name := _group_of(node, groups, num_left)) is None:
            outside_groups.append(amounts)
        else:
            num_left[name] -= 1
    nodes = worker_nodes(outside_groups, resources, groups)
    if address_of(resources) and not groups:
        nodes += _further_nodes(nodes, resources)
    return Capacity(nodes, num_present, len(living), resources.max_prepare_workers)


def _possible_groups(
    living: Sequence[Mapping[str, Any]], resources: ResourcesConfig
) -> list[NodeGroup]:
    """Return the groups of nodes that the joined cluster's autoscaler may add."""
    groups, max_workers = _read_groups(cluster_file())
    if groups:
        return _share_out(groups, Limits(max_workers))
    heads = [
        NodeSize.of(node["Resources"]) for node in living if HEAD_RESOURCE in node["Resources"]
    ]
    unlimited = resources.max_concurrent_trials or NODES_OF_UNLIMITED_GROUP
    return groups_in_config(ray_internals.read_cluster_config(), next(iter(heads), None), unlimited)


def _group_of(
    node: Mapping[str, Any], groups: Sequence[NodeGroup], num_left: Mapping[str, int]
) -> str | None:
    """Return the name of a node's group: by its label or, since not every autoscaler sets labels, by its size."""
    label = node.get("Labels", {}).get(GROUP_LABEL)
    if any(group.name == label for group in groups):
        return str(label)
    if label or HEAD_RESOURCE in node["Resources"]:
        return None
    size = NodeSize.of(node["Resources"])
    for group in groups:
        if num_left[group.name] > 0 and group.size.has_processors_of(size):
            return group.name
    return None


def _further_nodes(nodes: tuple[NodeSize, ...], resources: ResourcesConfig) -> tuple[NodeSize, ...]:
    """Return nodes like the largest one, as many as ``max_concurrent_trials`` trials need in addition to ``nodes``."""
    largest = max(nodes, key=attrgetter("gpus", "cpus"))
    gpus = resources.requested_gpus
    if gpus is None:
        gpus = min(1.0, largest.gpus)
    default_cpus = min(1.0, largest.cpus) if gpus else Capacity(nodes).processors().cpus
    trial = Request(resources.cpus_per_trial or default_cpus, gpus, 1)
    trials_per_node = times_on(largest, trial)
    max_trials = resources.max_concurrent_trials or 0
    num_trials = max_trials - _count_on(nodes, trial)
    if num_trials <= 0 or not trials_per_node:
        return ()
    return (largest,) * math.ceil(num_trials / trials_per_node)


def address_of(resources: ResourcesConfig) -> str | None:
    """Return the address of the cluster to join, or None to start a local one."""
    return resources.address or os.environ.get(ADDRESS_VARIABLE)
