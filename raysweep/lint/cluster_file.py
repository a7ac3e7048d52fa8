"""A file that starts a cluster, of whichever kind it is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysweep.config.document import Document
from raysweep.errors import InputError
from raysweep.lint import kuberay, ray_up, skypilot
from raysweep.lint.problem import Problem
from raysweep.lint.secrets import secrets


@dataclass(frozen=True)
class Kind:
    """A kind of file: its name, what is checked of it, and the check."""

    name: str
    checked: str
    problems: Callable[[dict[str, Any]], list[Problem]]


RAY_UP = Kind(
    "a cluster of ray up", "Ray's own validation, nodes, images, commands, the token, ports, secrets", ray_up.problems
)
RAY_JOB = Kind(
    "a RayJob of KubeRay", "schema, retries, worker groups, images, the token, ports, secrets", kuberay.problems
)
SKY_TASK = Kind("a task of SkyPilot", "schema, retries, machines, images, the token, ports, secrets", skypilot.problems)


@dataclass(frozen=True)
class Linted:
    """What a file is, and a line for each problem with its place: none where the file is sound."""

    kind: Kind
    lines: tuple[str, ...]


def lint(path: Path) -> Linted:
    """Check a file. InputError where it cannot be read, or is of no kind that is known."""
    document = Document.read(path)
    kind = _kind(document)
    # A secret comes first and alone: other messages may repeat values.
    found = list(secrets(document.values)) or kind.problems(document.values)
    lines = {str(document.error(each.path, each.message)): None for each in found}
    return Linted(kind, tuple(lines))


def _kind(document: Document) -> Kind:
    values = document.values
    if isinstance(values.get("provider"), dict) and "type" in values["provider"]:
        return RAY_UP
    if "apiVersion" in values or "kind" in values:
        return RAY_JOB
    if "run" in values or "resources" in values:
        return SKY_TASK
    known = "a file of ray up (provider.type), a RayJob of KubeRay (apiVersion, kind) or a task of SkyPilot (resources, run)"
    raise InputError(f"{document.source}: is none of {known}")
