"""Rules for `ray up` on Google Cloud: project and zone, and a strict schema of the machines."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from raysweep.config.document import KeyPath
from raysweep.config.strict import Frozen
from raysweep.lint.launcher_file import LauncherFile, NodeType, mapping
from raysweep.lint.problem import Problem, required, schema_problems
from raysweep.lint.spot import fallback_problems

REGION = re.compile(r"[a-z]+-[a-z]+\d+")
GPU_MACHINES = ("a2-", "a3-", "a4-", "g2-", "g4-")
REQUIRED = {
    "region": "otherwise it is us-west1",
    "availability_zone": "otherwise it is us-west1-a",
    "project_id": "it is what pays",
}


class CamelCase(Frozen):
    """A strict model whose keys are written likeThis in the file."""

    model_config = ConfigDict(alias_generator=to_camel)


def _only_item(value: Any) -> Any:
    """Ray's examples write a list of one where Google has a mapping."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class NewDisk(CamelCase):
    """What a disk is made of."""

    disk_size_gb: int = Field(ge=10)
    source_image: str = Field(pattern=r"^projects/[\w.-]+/global/images/(family/)?[\w.-]+$")
    disk_type: str | None = None


class Disk(CamelCase):
    """A disk of a machine."""

    boot: bool
    auto_delete: Literal[True]
    type: Literal["PERSISTENT"]
    initialize_params: NewDisk


class Scheduling(CamelCase):
    """When a machine may be taken back."""

    provisioning_model: Literal["SPOT", "STANDARD"] | None = None
    instance_termination_action: Literal["DELETE"] | None = None
    on_host_maintenance: Literal["TERMINATE", "MIGRATE"] | None = None
    automatic_restart: bool | None = None
    preemptible: bool | None = None


class ServiceAccount(CamelCase):
    """Whose rights a machine has."""

    email: str = Field(pattern=r"^[^@\s]+@[^@\s]+$|^default$")
    scopes: list[str] = Field(min_length=1)


class Accelerator(CamelCase):
    """GPUs that are attached to a machine which has none by itself."""

    accelerator_type: str
    accelerator_count: int = Field(ge=1)


class MetadataItem(CamelCase):
    """A key of a machine's metadata."""

    key: str
    value: str


class Metadata(CamelCase):
    """A machine's metadata."""

    items: list[MetadataItem]


class Tags(CamelCase):
    """Network tags of a machine."""

    items: list[str]


class Machine(CamelCase):
    """What a node type's ``node_config`` may say of a machine."""

    machine_type: str = Field(pattern=r"^[a-z]\w*(-\w+)+$")
    disks: list[Disk] = Field(min_length=1)
    scheduling: Annotated[Scheduling | None, BeforeValidator(_only_item)] = None
    service_accounts: list[ServiceAccount] | None = None
    guest_accelerators: list[Accelerator] | None = None
    metadata: Metadata | None = None
    tags: Tags | None = None
    labels: dict[str, str] | None = None


def problems(file: LauncherFile) -> Iterator[Problem]:
    """What is wrong with the parts of a file that Google Cloud reads."""
    yield from _place(file.provider)
    yield from _open_access(file)
    for each in file.types:
        yield from schema_problems(each.node_config, Machine, (*each.path, "node_config"))
    for worker in file.workers:
        yield from _worker(worker)
    yield from fallback_problems(file, is_spot)


def is_spot(worker: NodeType) -> bool:
    """Whether machines of a type may be taken back at any time."""
    scheduling = mapping(_only_item(worker.node_config.get("scheduling")))
    return scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible"))


def _place(provider: Mapping[str, Any]) -> Iterator[Problem]:
    yield from required(provider, REQUIRED, ("provider",))
    region, zone = provider.get("region"), provider.get("availability_zone")
    if region is not None and not REGION.fullmatch(region):
        yield Problem(("provider", "region"), f"must be a region such as us-central1, not {region!r}")
    elif region is not None and zone is not None and not re.fullmatch(rf"{region}-[a-z]", zone):
        yield Problem(
            ("provider", "availability_zone"), f"must be a zone of {region}, such as {region}-a, not {zone!r}"
        )


def _open_access(file: LauncherFile) -> Iterator[Problem]:
    """The firewall of a network opens ports to machines by their tags."""
    for each in file.types:
        tags = mapping(each.node_config.get("tags")).get("items") or []
        path: KeyPath = (*each.path, "node_config", "tags")
        for tag in {"http-server", "https-server"} & set(tags):
            yield Problem(
                path, f"must not have {tag}, which opens a port to everybody: `ray dashboard` goes through SSH"
            )


def _worker(worker: NodeType) -> Iterator[Problem]:
    path = (*worker.path, "resources")
    if not worker.resources.get("CPU"):
        yield Problem(
            path, "must name CPU, and GPU where the machine has one: on Google Cloud Ray does not look them up"
        )
    elif _has_gpu(worker) and not worker.resources.get("GPU"):
        yield Problem(
            path, f"must name GPU, which {worker.node_config.get('machineType')} has: Ray does not look it up"
        )
    if not worker.node_config.get("serviceAccounts"):
        message = "this key is required: its account is how a node reaches the bucket without keys"
        yield Problem((*worker.path, "node_config", "serviceAccounts"), message)
    yield from _scheduling(worker)


def _scheduling(worker: NodeType) -> Iterator[Problem]:
    path = (*worker.path, "node_config", "scheduling")
    scheduling = mapping(_only_item(worker.node_config.get("scheduling")))
    if _has_gpu(worker) and scheduling.get("onHostMaintenance") != "TERMINATE":
        yield Problem(path, "must have onHostMaintenance: TERMINATE: Google starts no machine with a GPU otherwise")
    if scheduling.get("provisioningModel") == "SPOT" and "instanceTerminationAction" not in scheduling:
        yield Problem(
            path, "must have instanceTerminationAction: DELETE: a machine that is only stopped still pays for its disk"
        )


def _has_gpu(worker: NodeType) -> bool:
    machine = str(worker.node_config.get("machineType"))
    return machine.startswith(GPU_MACHINES) or bool(worker.node_config.get("guestAccelerators"))
