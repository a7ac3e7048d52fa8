"""A RayJob of KubeRay (1.7 or newer): a strict schema of what a sweep uses of it, and rules for its costs and its ports."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from raysweep.config.document import KeyPath
from raysweep.config.strict import Frozen
from raysweep.lint.images import image_problem, ray_version
from raysweep.lint.problem import Problem, schema_problems
from raysweep.lint.sweep_command import repeat_problems

CLUSTER: KeyPath = ("spec", "rayClusterSpec")
GPU = "nvidia.com/gpu"
MAX_IDLE_SECONDS = 3600


def _quantity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"must be a quantity such as 4, 500m or 16Gi, not {value!r}")
    return value


Quantities = dict[str, Annotated[Any, AfterValidator(_quantity)]]


class Manifest(Frozen):
    """A strict model whose keys are written likeThis in the file."""

    model_config = ConfigDict(alias_generator=to_camel)


class Metadata(Manifest):
    """The name of an object in Kubernetes."""

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=47)
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Toleration(Manifest):
    """A taint of nodes that a pod may run on all the same."""

    key: str
    operator: Literal["Exists", "Equal"]
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class ContainerResources(Manifest):
    """What a container asks for, and what it gets at most."""

    requests: Quantities | None = None
    limits: Quantities


class Variable(Manifest):
    """An environment variable."""

    name: str
    value: str | None = None
    value_from: dict[str, Any] | None = None


class VolumeMount(Manifest):
    """Where a container sees a volume."""

    name: str
    mount_path: str
    read_only: bool | None = None


class Container(Manifest):
    """A container of a pod."""

    name: str
    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    env: list[Variable] | None = None
    resources: ContainerResources
    volume_mounts: list[VolumeMount] | None = None


class PodSpec(Manifest):
    """A pod: its containers and the nodes it may run on."""

    service_account_name: str  # its rights are how a pod reaches the bucket without keys
    containers: list[Container] = Field(min_length=1)
    tolerations: list[Toleration] | None = None
    node_selector: dict[str, str] | None = None
    termination_grace_period_seconds: int | None = None
    image_pull_secrets: list[dict[str, str]] | None = None
    volumes: list[dict[str, Any]] | None = None


class PodTemplate(Manifest):
    """What pods of a group are made from."""

    metadata: dict[str, Any] | None = None
    spec: PodSpec


class HeadGroup(Manifest):
    """The head."""

    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    ray_start_params: dict[str, str]
    template: PodTemplate


class WorkerGroup(Manifest):
    """Workers of one kind."""

    group_name: str
    replicas: int
    min_replicas: int
    max_replicas: int
    priority: int = 0
    idle_timeout_seconds: int | None = None
    ray_start_params: dict[str, str] | None = None
    template: PodTemplate


class AutoscalerOptions(Manifest):
    """How the cluster scales."""

    version: Literal["v1", "v2"]
    idle_timeout_seconds: int = Field(ge=1, le=MAX_IDLE_SECONDS)
    upscaling_mode: Literal["Default", "Aggressive", "Conservative"] | None = None
    resources: ContainerResources | None = None


class AuthOptions(Manifest):
    """Whether Ray asks for a token."""

    mode: Literal["token", "disabled"]
    secret_name: str | None = None


class RayCluster(Manifest):
    """The cluster of a job."""

    ray_version: str
    enable_in_tree_autoscaling: bool
    autoscaler_options: AutoscalerOptions
    auth_options: AuthOptions
    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup] = Field(min_length=1)


class RayJobSpec(Manifest):
    """A job and the cluster that it is given."""

    entrypoint: str
    backoff_limit: int = Field(ge=1)
    shutdown_after_job_finishes: bool
    ttl_seconds_after_finished: int = Field(0, ge=0, le=3600)
    active_deadline_seconds: int | None = None
    submission_mode: Literal["K8sJobMode", "HTTPMode", "SidecarMode"] | None = None
    ray_cluster_spec: RayCluster


class RayJob(Manifest):
    """The whole manifest."""

    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: RayJobSpec


def problems(values: dict[str, Any]) -> list[Problem]:
    """What is wrong with a manifest: its schema first, since the rules rely on its types."""
    refused = schema_problems(values, RayJob)
    if refused:
        return refused
    spec = RayJob.model_validate(values).spec
    return [problem for rule in RULES for problem in rule(spec)]


def _job(spec: RayJobSpec) -> Iterator[Problem]:
    if not spec.shutdown_after_job_finishes:
        yield Problem(
            ("spec", "shutdownAfterJobFinishes"), "must be true: otherwise the cluster stays, and is paid for"
        )
    yield from (Problem(("spec", "entrypoint"), message) for message in repeat_problems(spec.entrypoint))


def _cluster(spec: RayJobSpec) -> Iterator[Problem]:
    cluster = spec.ray_cluster_spec
    if not cluster.enable_in_tree_autoscaling:
        yield Problem((*CLUSTER, "enableInTreeAutoscaling"), "must be true: otherwise no worker ever starts")
    if cluster.autoscaler_options.version != "v2":
        yield Problem((*CLUSTER, "autoscalerOptions", "version"), "must be v2: only that one reads priority")
    if cluster.auth_options.mode != "token":
        message = "must be token: without it anybody who reaches Ray runs code"
        yield Problem((*CLUSTER, "authOptions", "mode"), message)
    if cluster.ray_version != ray_version():
        message = f"must be {ray_version()}, as this machine has, not {cluster.ray_version!r}"
        yield Problem((*CLUSTER, "rayVersion"), message)


def _head(spec: RayJobSpec) -> Iterator[Problem]:
    head, at = spec.ray_cluster_spec.head_group_spec, (*CLUSTER, "headGroupSpec")
    if head.ray_start_params.get("num-cpus") != "0":
        yield Problem((*at, "rayStartParams"), 'must be {num-cpus: "0"}: otherwise trials run on the head')
    if head.service_type not in (None, "ClusterIP"):
        yield Problem(
            (*at, "serviceType"), f"must be ClusterIP, not {head.service_type}, which opens Ray to the outside"
        )
    if _is_spot(head):
        path = (*at, "template", "spec")
        yield Problem(path, "must neither tolerate nor select spot nodes: the job ends with its head")


def _workers(spec: RayJobSpec) -> Iterator[Problem]:
    for index, group in enumerate(spec.ray_cluster_spec.worker_group_specs):
        at: KeyPath = (*CLUSTER, "workerGroupSpecs", index)
        for key, value in (("replicas", group.replicas), ("minReplicas", group.min_replicas)):
            if value:
                yield Problem((*at, key), f"must be 0, not {value}: such pods are paid for while nothing runs")
        if group.max_replicas < 1:
            yield Problem((*at, "maxReplicas"), f"must be 1 or more, not {group.max_replicas}")
        path = (*at, "template", "spec", "containers", 0, "resources", "limits")
        limits = group.template.spec.containers[0].resources.limits
        for key in ("cpu", "memory", GPU):
            if key not in limits:
                yield Problem(path, f"must have {key}: it is what the autoscaler takes such a pod to have")


def _spot(spec: RayJobSpec) -> Iterator[Problem]:
    groups = spec.ray_cluster_spec.worker_group_specs
    on_demand = [group for group in groups if not _is_spot(group)]
    highest = max((group.priority for group in on_demand), default=0)
    for index, group in enumerate(groups):
        at: KeyPath = (*CLUSTER, "workerGroupSpecs", index)
        if _is_spot(group) and not on_demand:
            yield Problem(at, "must have a group on demand beside it, for when the cloud has no spot machine left")
        elif _is_spot(group) and group.priority <= highest:
            path = (*at, "priority")
            yield Problem(
                path, f"must be above {highest}, that of the group on demand, which would come first otherwise"
            )


def _images(spec: RayJobSpec) -> Iterator[Problem]:
    head = spec.ray_cluster_spec.head_group_spec.template.spec.containers
    yield from _image_problems(head, (*CLUSTER, "headGroupSpec"))
    for index, group in enumerate(spec.ray_cluster_spec.worker_group_specs):
        yield from _image_problems(group.template.spec.containers, (*CLUSTER, "workerGroupSpecs", index))


def _image_problems(containers: Sequence[Container], at: KeyPath) -> Iterator[Problem]:
    for index, container in enumerate(containers):
        if message := image_problem(container.image):
            yield Problem((*at, "template", "spec", "containers", index, "image"), message)


def _is_spot(group: HeadGroup | WorkerGroup) -> bool:
    pod = group.template.spec
    is_tolerated = any(_names_spot(each.key, each.value) for each in pod.tolerations or ())
    selected = (pod.node_selector or {}).items()
    return is_tolerated or any(_names_spot(label, value) and value.lower() != "false" for label, value in selected)


def _names_spot(label: str, value: str | None) -> bool:
    """Such as ``cloud.google.com/gke-spot: "true"`` and ``karpenter.sh/capacity-type: spot``."""
    name = f"{label} {value}".lower()
    return "spot" in name or "preemptible" in name


RULES = (_job, _cluster, _head, _workers, _spot, _images)
