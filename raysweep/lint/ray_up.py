"""Rules for files of `ray up` on any cloud: what costs money unseen, what is open to strangers, what does not start."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from raysweep.cluster import RAYS_OWN, launcher_problem
from raysweep.config.document import KeyPath
from raysweep.lint import aws, gcp
from raysweep.lint.images import image_problem
from raysweep.lint.launcher_file import ROLES, TYPES, LauncherFile, NodeType, mapping
from raysweep.lint.problem import Problem, required
from raysweep.lint.shell import options_of, simple_commands, unpinned_install, variables

CLOUDS = {"aws": aws.problems, "gcp": gcp.problems}
RAY_START = ("ray", "start")
IMAGES = ("image", "head_image", "worker_image")
NO_IMAGE = (
    "must name image, the head's, also where head_image and worker_image are there: Ray's autoscaler fails without it"
)
EVERYWHERE = ("0.0.0.0", "::", "[::]")
MAX_IDLE_MINUTES = 60
TOKEN_MODE = re.compile(r"(?:-e|--env)[ =]['\"]?RAY_AUTH_MODE=token\b")
REQUIRED = {
    TYPES: "without it Ray takes node types of its own",
    "head_node_type": "it names the type of the head",
    "max_workers": "it bounds the nodes, and so what they cost",
    "idle_timeout_minutes": "it says when an idle node is given back",
    "docker": "its images pin Python and Ray",
    "head_start_ray_commands": "Ray's own opens the dashboard to every interface",
    "worker_start_ray_commands": "it joins the workers to the head, in the way that the head was started",
}


def problems(values: dict[str, object]) -> list[Problem]:
    """What is wrong with a file of `ray up`: Ray's own validation first, since the rules rely on its types."""
    refused = launcher_problem(values)
    if refused is not None:
        return [Problem(*refused)]
    file = LauncherFile(values)
    cloud = CLOUDS.get(file.provider["type"])
    if cloud is None:
        return [
            Problem(
                ("provider", "type"), f"must be aws or gcp, not {file.provider['type']!r}: there are no rules for it"
            )
        ]
    unreadable = [*required(values, REQUIRED), *_shell(file)]
    return unreadable or [problem for rule in (*RULES, cloud) for problem in rule(file)]


def _shell(file: LauncherFile) -> Iterator[Problem]:
    for path, command in file.all_commands():
        try:
            simple_commands(command)
        except ValueError as error:
            yield Problem(path, f"is no command of a shell: {str(error).lower()}")


def _idle_timeout(file: LauncherFile) -> Iterator[Problem]:
    minutes = file.values["idle_timeout_minutes"]
    if not 0 < minutes <= MAX_IDLE_MINUTES:
        yield Problem(("idle_timeout_minutes",), f"must be above 0 and at most {MAX_IDLE_MINUTES}, not {minutes:g}")


def _stopped_nodes(file: LauncherFile) -> Iterator[Problem]:
    if file.provider.get("cache_stopped_nodes", True):
        path = ("provider", "cache_stopped_nodes")
        yield Problem(path, "must be false: a node that is stopped instead of given back still pays for its disk")


def _resources(file: LauncherFile) -> Iterator[Problem]:
    for each in file.types:
        for name in each.resources:
            right = next((known for known in RAYS_OWN if known.lower() == name.lower()), name)
            if right != name:
                yield Problem(
                    (*each.path, "resources", name), f"must be {right}: to Ray {name} is a resource of your own"
                )


def _head(file: LauncherFile) -> Iterator[Problem]:
    head = file.head
    if head is None:
        return
    if head.resources.get("CPU") != 0:
        yield Problem(
            (*head.path, "resources"), "must be {CPU: 0}: otherwise trials run on the head, which never scales down"
        )
    for key in ("min_workers", "max_workers"):
        if head.values.get(key):
            yield Problem((*head.path, key), f"must be 0 or left out, not {head.values[key]}: the head is no worker")


def _workers(file: LauncherFile) -> Iterator[Problem]:
    if not file.workers:
        yield Problem((TYPES,), "must have a type besides the head, which runs no trials")
    for each in file.workers:
        yield from _scaling(each, file.values["max_workers"])


def _scaling(worker: NodeType, max_of_all: int) -> Iterator[Problem]:
    fewest, most = worker.values.get("min_workers", 0), worker.values.get("max_workers")
    if fewest:
        yield Problem(
            (*worker.path, "min_workers"), f"must be 0, not {fewest}: such nodes are paid for while nothing runs"
        )
    if most is None:
        yield Problem(
            (*worker.path, "max_workers"), "this key is required: without it, it is that of the whole cluster"
        )
    elif not 0 < most <= max_of_all:
        allowed = f"must lie between 1 and max_workers of the cluster, {max_of_all}, not {most}"
        yield Problem((*worker.path, "max_workers"), allowed)


def _images(file: LauncherFile) -> Iterator[Problem]:
    docker = file.values["docker"]
    if not docker.get("image"):
        yield Problem(("docker",), NO_IMAGE)
    yield from _image_problems(docker, ("docker",))
    for each in file.types:
        yield from _image_problems(mapping(each.values.get("docker")), (*each.path, "docker"))


def _image_problems(docker: Mapping[str, Any], at: KeyPath) -> Iterator[Problem]:
    for key in IMAGES:
        image = docker.get(key)
        message = image_problem(image) if image else None
        if message:
            yield Problem((*at, key), message)


def _set_up(file: LauncherFile) -> Iterator[Problem]:
    for path, command in file.all_commands():
        if loose := unpinned_install(command):
            yield Problem(path, f"installs {loose!r} in any version: add --constraint constraints.txt, or ==VERSION")


def _raysweep(file: LauncherFile) -> Iterator[Problem]:
    """Ray's own images have no raysweep; one of the user's may."""
    docker = file.values["docker"]
    for role in ROLES:
        image = docker.get(f"{role}_image") or docker.get("image") or ""
        commands = [*file.commands("setup_commands"), *file.commands(f"{role}_setup_commands")]
        installed = any("raysweep" in command and "install" in command and "pip" in command for command in commands)
        if image.startswith("rayproject/") and not installed:
            yield Problem((f"{role}_setup_commands",), f"must install raysweep, which {image} does not have")


def _head_start(file: LauncherFile) -> Iterator[Problem]:
    started = _started(file, "head")
    if started is None:
        yield Problem(("head_start_ray_commands",), "must have ray start --head")
        return
    path, options, _ = started
    if "--head" not in options:
        yield Problem(path, "must have --head")
    if "--autoscaling-config" not in options:
        yield Problem(
            path, "must have --autoscaling-config=~/ray_bootstrap_config.yaml: without it no worker ever starts"
        )
    for name in ("--dashboard-host", "--ray-client-server-host"):
        if options.get(name) in EVERYWHERE:
            yield Problem(
                path, f"{name} is {options[name]}, on every interface: must be 127.0.0.1, which `ray dashboard` reaches"
            )


def _worker_start(file: LauncherFile) -> Iterator[Problem]:
    started = _started(file, "worker")
    if started is None:
        yield Problem(("worker_start_ray_commands",), "must have ray start --address=$RAY_HEAD_IP:PORT")
        return
    path, options, _ = started
    head = _started(file, "head")
    port = (head[1] if head else {}).get("--port", "6379")
    if options.get("--address") != f"$RAY_HEAD_IP:{port}":
        found = options.get("--address")
        yield Problem(path, f"--address must be $RAY_HEAD_IP:{port}, where the head listens, not {found!r}")
    if "--head" in options:
        yield Problem(path, "must not have --head: a worker joins the head")


def _restart(file: LauncherFile) -> Iterator[Problem]:
    for role in ROLES:
        key = f"{role}_start_ray_commands"
        if not any(options_of(command, ("ray", "stop")) is not None for command in file.commands(key)):
            yield Problem((key,), "must have ray stop first: otherwise a second `ray up` meets the Ray of the first")


def _started(file: LauncherFile, role: str) -> tuple[tuple[str, int], dict[str, str], dict[str, str]] | None:
    """The place, the options and the variables of the command that starts Ray on the head or on a worker."""
    key = f"{role}_start_ray_commands"
    for index, command in enumerate(file.commands(key)):
        options = options_of(command, RAY_START)
        if options is not None:
            return (key, index), options, variables(command)
    return None


def _token(file: LauncherFile) -> Iterator[Problem]:
    for role in ROLES:
        started = _started(file, role)
        in_command = started is not None and started[2].get("RAY_AUTH_MODE") == "token"
        if not in_command and not TOKEN_MODE.search(file.run_options(role)):
            path = ("docker", "run_options")
            yield Problem(
                path,
                f"must have --env RAY_AUTH_MODE=token for the {role}: without it anybody who reaches Ray runs code",
            )
            return
    yield from _token_file(file)


def _token_file(file: LauncherFile) -> Iterator[Problem]:
    """The token reaches every node as a file of the container's user."""
    mounts = file.values.get("file_mounts") or {}
    targets = [target for target, local in mounts.items() if str(local).endswith("auth_token")]
    if not targets:
        yield Problem(("file_mounts",), "must bring ~/.ray/auth_token to the nodes, which the token mode needs")
        return
    commands = file.commands("setup_commands")
    if not any(targets[0] in command and "600" in command for command in commands):
        message = f"must give {targets[0]} to the container's user with mode 600, as `install -m 600` does"
        yield Problem(("setup_commands",), message)


RULES = (
    _idle_timeout,
    _stopped_nodes,
    _resources,
    _head,
    _workers,
    _images,
    _set_up,
    _raysweep,
    _head_start,
    _worker_start,
    _restart,
    _token,
)
