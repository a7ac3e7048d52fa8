"""A task of SkyPilot: a strict schema of what a sweep uses of it, and rules for its costs and its ports."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from raysweep.config.document import KeyPath
from raysweep.config.strict import Frozen
from raysweep.lint.images import image_problem
from raysweep.lint.problem import Problem, schema_problems
from raysweep.lint.shell import calls, unpinned_install
from raysweep.lint.sweep_command import repeat_problems

MAX_IDLE_MINUTES = 60
LOOPBACK = "127.0.0.1"


class Autostop(Frozen):
    """When an idle cluster is given back."""

    idle_minutes: int = Field(ge=1, le=MAX_IDLE_MINUTES)
    down: bool


class Recovery(Frozen):
    """What becomes of a managed job whose machines were taken back, or that failed."""

    strategy: str | None = None
    max_restarts_on_errors: int = Field(ge=0)


class Choice(Frozen):
    """One of the kinds of machines that a task may run on."""

    infra: str | None = None
    accelerators: str | None = None
    instance_type: str | None = None
    use_spot: bool | None = None


class Resources(Frozen):
    """The machines of a task."""

    infra: str | None = None
    accelerators: str | None = None
    instance_type: str | None = None
    cpus: Any = None
    memory: Any = None
    use_spot: bool = False
    disk_size: int | None = None
    disk_tier: str | None = None
    max_hourly_cost: float | None = None
    image_id: str
    ports: Any = None
    labels: dict[str, str] | None = None
    autostop: Autostop
    any_of: list[Choice] | None = None
    ordered: list[Choice] | None = None
    job_recovery: Recovery


class Task(Frozen):
    """The whole file."""

    name: str | None = None
    workdir: str | None = None
    num_nodes: int = Field(1, ge=1)
    resources: Resources
    envs: dict[str, str | None]
    secrets: dict[str, str | None]
    file_mounts: dict[str, Any] | None = None
    setup: str
    run: str


def problems(values: dict[str, Any]) -> list[Problem]:
    """What is wrong with a task: its schema first, since the rules rely on its types."""
    refused = schema_problems(values, Task)
    if refused:
        return refused
    task = Task.model_validate(values)
    return [problem for rule in RULES for problem in rule(task)]


def _machines(task: Task) -> Iterator[Problem]:
    resources = task.resources
    at: KeyPath = ("resources",)
    if not resources.image_id.startswith("docker:"):
        yield Problem((*at, "image_id"), f"must be docker:IMAGE, which pins Python and Ray, not {resources.image_id!r}")
    elif message := image_problem(resources.image_id.removeprefix("docker:")):
        yield Problem((*at, "image_id"), message)
    if resources.ports is not None:
        yield Problem(
            (*at, "ports"), "must not be there: it opens ports to everybody, and the dashboard goes through SSH"
        )
    if not resources.autostop.down:
        yield Problem((*at, "autostop", "down"), "must be true: a cluster that only stops still pays for its disks")


def _spot(task: Task) -> Iterator[Problem]:
    choices = [*(task.resources.any_of or ()), *(task.resources.ordered or ())]
    wanted = [task.resources.use_spot if each.use_spot is None else each.use_spot for each in choices]
    wanted = wanted or [task.resources.use_spot]
    if any(wanted) and all(wanted):
        message = "must have a choice without use_spot under ordered, for when the cloud has no spot machine left"
        yield Problem(("resources",), message)


def _token(task: Task) -> Iterator[Problem]:
    if task.envs.get("RAY_AUTH_MODE") != "token":
        message = "must have RAY_AUTH_MODE: token: without it anybody who reaches Ray runs code"
        yield Problem(("envs",), message)
    if "RAY_AUTH_TOKEN" not in task.secrets:
        yield Problem(("secrets",), "must have RAY_AUTH_TOKEN: null, which `--secret RAY_AUTH_TOKEN` fills in")


def _commands(task: Task) -> Iterator[Problem]:
    yield from (Problem(("run",), message) for message in repeat_problems(task.run))
    try:
        loose = unpinned_install(task.setup)
        hosts = [started.get("--dashboard-host", LOOPBACK) for started in calls(task.run, ("ray", "start"))]
    except ValueError as error:
        yield Problem(("setup",), f"is no command of a shell: {str(error).lower()}")
        return
    if loose:
        yield Problem(("setup",), f"installs {loose!r} in any version: add --constraint constraints.txt, or ==VERSION")
    for host in hosts:
        if host != LOOPBACK:
            yield Problem(("run",), f"--dashboard-host must be {LOOPBACK}, not {host}")


RULES = (_machines, _spot, _token, _commands)
