"""A file of Ray's cluster launcher, `ray up`, as the rules read it. Ray's own schema has checked its types before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysweep.config.document import KeyPath

TYPES = "available_node_types"
ROLES = ("head", "worker")


def mapping(value: Any) -> Mapping[str, Any]:
    """A value that should be a mapping, or an empty one: Ray's schema leaves what the cloud reads unchecked."""
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class NodeType:
    """One of the node types: its name, and what the file says of it."""

    name: str
    values: Mapping[str, Any]

    @property
    def path(self) -> KeyPath:
        return (TYPES, self.name)

    @property
    def node_config(self) -> Mapping[str, Any]:
        return mapping(self.values.get("node_config"))

    @property
    def resources(self) -> Mapping[str, Any]:
        return mapping(self.values.get("resources"))


@dataclass(frozen=True)
class LauncherFile:
    """The values of the whole file."""

    values: Mapping[str, Any]

    @property
    def provider(self) -> Mapping[str, Any]:
        return mapping(self.values["provider"])

    @property
    def types(self) -> list[NodeType]:
        return [NodeType(name, values) for name, values in (self.values.get(TYPES) or {}).items()]

    @property
    def head(self) -> NodeType | None:
        return next((each for each in self.types if each.name == self.values.get("head_node_type")), None)

    @property
    def workers(self) -> list[NodeType]:
        return [each for each in self.types if each.name != self.values.get("head_node_type")]

    def commands(self, key: str) -> Sequence[str]:
        """A list of commands, empty where the file has none."""
        return self.values.get(key) or []

    def all_commands(self) -> Iterator[tuple[KeyPath, str]]:
        """Every command of the file with its place."""
        for key in self.values:
            if key.endswith("_commands"):
                yield from (((key, index), command) for index, command in enumerate(self.commands(key)))

    def run_options(self, role: str) -> str:
        """What Docker is told when the container of the head, or of a worker, starts."""
        docker = self.values.get("docker") or {}
        return " ".join(map(str, [*docker.get("run_options", []), *docker.get(f"{role}_run_options", [])]))
