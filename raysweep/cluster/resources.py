"""The capacity of a Ray cluster, and the resources that workers and trials request."""

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

CUDA_CONTEXT_BYTES = 600 << 20  # GPU memory per process outside the allocator
USABLE_GPU_MEMORY_FRACTION = 0.9  # when trials share a GPU
# encoders gain little from more threads
THREADS_PER_PROCESS = 8
RAYS_OWN = ("CPU", "GPU", "TPU", "memory", "object_store_memory")  # built-in Ray resources
NODE_ID_LABEL = "ray.io/node-id"  # label that Ray sets on every node
GROUP_LABEL = "ray.io/node-group"  # label of nodes added by an autoscaler
HEAD_RESOURCE = "node:__internal_head__"  # a resource that only the head has
NODES_OF_UNLIMITED_GROUP = 64  # if ``max_concurrent_trials`` is not set
BOOTSTRAP_FILE = "~/ray_bootstrap_config.yaml"  # where `ray up` stores the cluster file on its head
ADDRESS_VARIABLE = "RAY_ADDRESS"
CLUSTER_FILE_VARIABLE = "RAYSWEEP_CLUSTER_FILE"
CHUNKS_PER_PROCESS = 4  # minimum for using single-threaded encoders

# CPU memory, measured as anonymous memory with MiniLM (6 layers of width 384, 87 MiB of fp32 weights)
TORCH_PROCESS_BYTES = 450 << 20  # 410 MiB after importing Ray, torch and sentence-transformers
SEARCH_PROCESS_BYTES = 100 << 20  # 62 MiB after importing Ray, NumPy and faiss
SEARCH_BLOCK_BYTES = 128 << 20  # cosines and nearest rows of a block of queries
COPIES_PER_ENCODER = 5  # weights, gradients, two AdamW states, and a copy being saved
# multiples of the hidden width per token and layer; measured: 163 KiB per token
FLOATS_KEPT_FOR_BACKWARD = 18
FLOATS_IN_FORWARD = 12  # multiples of the hidden width per token, for one layer at a time
TOKENS_IN_FORWARD = 4096  # per batch without a backward pass


class NodeSize(NamedTuple):
    """A node's CPUs, GPUs, and memory for Ray workers in bytes (0 if unknown)."""

    cpus: float
    gpus: float
    memory_bytes: float = 0.0

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> "NodeSize":
        """Return the size of a node with these Ray resources."""
        cpus, gpus, memory_bytes = (
            float(amounts.get(resource, 0)) for resource in ("CPU", "GPU", "memory")
        )
        return cls(cpus, gpus, memory_bytes)

    def has_processors_of(self, other: "NodeSize") -> bool:
        """Return whether both nodes have the same numbers of CPUs and GPUs."""
        return (self.cpus, self.gpus) == (other.cpus, other.gpus)


class NodeGroup(NamedTuple):
    """A type of node that an autoscaler may add, and the maximum number of such nodes.

    ``mark`` is a resource that only this type has; it is used to request nodes of this type.
    """

    name: str
    size: NodeSize
    max_count: int
    mark: str | None = None


@dataclass(frozen=True)
class Request:
    """The Ray resources for ``count`` identical workers.

    ``cpus``, ``gpus`` and ``memory_bytes`` are per worker. CPUs and GPUs may be fractional.
    ``memory_bytes`` includes the cache and is 0 if no memory is requested. ``cache_bytes`` is the
    maximum size of a trial's cache for the outputs of frozen blocks. ``checkpoints_blocks`` enables
    activation checkpointing for the encoder's blocks.
    """

    cpus: float
    gpus: float
    count: int
    cache_bytes: int = 0
    memory_bytes: int = 0
    checkpoints_blocks: bool = False

    @property
    def resources(self) -> dict[str, float]:
        """Return the resources of a worker in the form that Ray Tune expects."""
        processors = {"cpu": self.cpus, "gpu": self.gpus}
        return {**processors, "memory": self.memory_bytes} if self.memory_bytes else processors

    @property
    def threads(self) -> int:
        """Return the number of threads per worker."""
        return max(1, int(self.cpus))

    def packed(self, peak_bytes: int, gpu_bytes: int, cpus_per_gpu: float) -> "Request":
        """Return the request with each GPU shared by as many trials as its memory and CPUs allow.

        A trial of a small encoder keeps a CPU busy launching kernels, so there is at most one trial
        per CPU. ``peak_bytes`` is a trial's peak GPU memory without its cache and CUDA context.
        ``gpu_bytes`` is a GPU's total memory.
        """
        bytes_per_trial = peak_bytes + self.cache_bytes + CUDA_CONTEXT_BYTES
        num_in_memory = int(USABLE_GPU_MEMORY_FRACTION * gpu_bytes // bytes_per_trial)
        per_gpu = max(1, min(num_in_memory, int(cpus_per_gpu)))
        return replace(self, gpus=1 / per_gpu, cpus=self.cpus / per_gpu, count=self.count * per_gpu)


@dataclass(frozen=True)
class Capacity:
    """The nodes of a cluster that run work, and the workers that fit on them.

    ``nodes`` includes nodes that an autoscaler may still add. ``num_present`` is the number of
    running nodes, if known. ``num_alive`` also counts nodes that run no work, such as a head
    without CPUs. ``max_workers`` limits the number of workers in ``prepare``.
    """

    nodes: tuple[NodeSize, ...]
    num_present: int | None = None
    num_alive: int = 1
    max_workers: int | None = None

    @property
    def has_several_nodes(self) -> bool:
        """Return whether the cluster has other nodes or an autoscaler may add some."""
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
        """Return the lowest number of CPUs per GPU on any node."""
        return min((node.cpus / node.gpus for node in self.nodes if node.gpus), default=0.0)

    def encoders(self, num_chunks: int = 0) -> Request:
        """Return the request for encoding workers, which use GPUs or, without GPUs, CPUs.

        Two single-threaded processes encode 10% faster than one process with two threads, but each
        process takes several seconds to start. Single-threaded processes are used only if there are
        enough chunks.
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

        They may use every CPU: their coordinator requests none, and no read or write tasks run at
        the same time.
        """
        largest = max(node.cpus for node in self.nodes)
        workers_on_largest = math.ceil(largest / THREADS_PER_PROCESS)
        cpus = max(1, largest // workers_on_largest)  # divides the largest node evenly
        num_fitting = sum(_times_in(node.cpus, cpus) for node in self.nodes)
        return Request(cpus, 0, max(1, self._limit(num_fitting)))

    def _limit(self, num_workers: int) -> int:
        return num_workers if self.max_workers is None else min(num_workers, self.max_workers)

    def trials(self, resources: ResourcesConfig) -> Request:
        """Return the request for trials, by default with one GPU or, without GPUs, several CPUs each.

        Raises:
            InputError: If a trial does not fit on any node.
        """
        encoder = self.encoders()
        gpus = resources.requested_gpus
        if gpus is None:
            gpus = encoder.gpus
        cpus = resources.cpus_per_trial
        if not cpus:  # same as for encoding
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
        """Return the request with memory per worker, limited to as many workers as fit.

        If a worker needs more memory than any node has, all memory of the largest node is requested,
        because the worker may still succeed there. No memory is requested if the memory of a
        suitable node is unknown, as for nodes that an autoscaler may add.
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
    """Return the CPU memory in bytes for a trial that trains ``num_encoders`` encoders.

    Full fine-tuning of MiniLM took 1132, 1643 and 2365 MiB with batches of 64, 256 and 512
    sentences of 17.7 tokens. This function returns 1149, 1685 and 2401 MiB without a cache.
    """
    kept_for_backward = 4 * FLOATS_KEPT_FOR_BACKWARD * width * num_layers * tokens_of_batch
    num_copies = 1 + num_encoders * COPIES_PER_ENCODER  # encoders share the initial weights
    return TORCH_PROCESS_BYTES + num_copies * weights_bytes + kept_for_backward + cache_bytes


def encoder_bytes(weights_bytes: int, *, width: int) -> int:
    """Return the CPU memory in bytes for a worker that only encodes.

    MiniLM used up to 568 MiB; this function returns 609 MiB.
    """
    in_forward = 4 * FLOATS_IN_FORWARD * width * TOKENS_IN_FORWARD
    return TORCH_PROCESS_BYTES + weights_bytes + in_forward


def shard_bytes(num_rows: int, *, width: int) -> int:
    """Return the memory in bytes for a worker that searches ``num_rows`` vectors for neighbors."""
    bytes_per_row = 4 * width + 16  # the vector, ID, label and group
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
    return sum(times_on(node, request, memory_bytes) for node in nodes)


def _times_in(available: float, requested: float) -> int:
    """Divide and round down, tolerating floating-point errors: ``1 // 0.2`` is 4."""
    return math.floor(available / requested + 1e-9)


def worker_nodes(
    present: Sequence[Mapping[str, float]],
    resources: ResourcesConfig,
    groups: Sequence[NodeGroup] = (),
) -> tuple[NodeSize, ...]:
    """Return the nodes that may run work, including those that an autoscaler may add later.

    ``present`` holds the Ray resources of each live node outside ``groups``. Nodes without CPUs run
    no work.

    Raises:
        InputError: If no node can run work and ``resources`` does not limit the number of trials.
    """
    nodes = [NodeSize.of(amounts) for amounts in present]
    for group in groups:
        nodes += [group.size] * group.max_count
    nodes = [node for node in nodes if node.cpus > 0]
    if not nodes:
        # Assume as many nodes as the trials need, with all trials that share a GPU on one node.
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

    The file's limit on the total number of nodes is not applied.
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
        # other nodes count only if they are already running
        if name != head_type and may_run_work:
            groups.append(group)
    return groups, max_workers


def own_resources(resources: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Map each node type to a resource that no other type has; omit types without one."""
    num_types_with = Counter(resource for amounts in resources.values() for resource in amounts)
    own: dict[str, str] = {}
    for name, amounts in resources.items():
        for resource, amount in amounts.items():
            if num_types_with[resource] == 1 and resource not in RAYS_OWN and amount >= 1:
                own.setdefault(name, resource)
    return own


class Limits(NamedTuple):
    """Limits on the number of nodes that an autoscaler adds, and on their total CPUs and GPUs."""

    nodes: float = math.inf
    cpus: float = math.inf
    gpus: float = math.inf


def _share_out(groups: Sequence[NodeGroup], limits: Limits) -> list[NodeGroup]:
    """Divide the limits evenly among the groups; omit groups that get no nodes."""
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
        head: The size of the running head. As in Ray Data, a group limited to one node of this size
            is assumed to be the head's.
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
    """Return the path of the cluster file, from the environment or the default on the head."""
    return expand_home(os.environ.get(CLUSTER_FILE_VARIABLE) or BOOTSTRAP_FILE)


def check_cluster_file() -> None:
    """Raise InputError if the environment names a cluster file that does not exist."""
    named = os.environ.get(CLUSTER_FILE_VARIABLE)
    if named and not cluster_file().exists():
        raise InputError(
            f"{CLUSTER_FILE_VARIABLE} is {named}; allowed: an existing cluster file of `ray up`"
        )


def read_capacity(resources: ResourcesConfig) -> Capacity:
    """Return the capacity of the connected cluster, including nodes that an autoscaler may add.

    Node groups are read from the `ray up` cluster file or, if there is none, from Ray's cluster
    configuration. If a joined cluster has neither, it is assumed to add enough nodes like its
    largest one to run ``max_concurrent_trials`` trials.
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
    """Return a node's group, found by its label or, because some autoscalers set none, by its size."""
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
    """Return the nodes that ``max_concurrent_trials`` trials need in addition to ``nodes``."""
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
