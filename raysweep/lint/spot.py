"""Spot machines: where the cloud has none left, a type that is not taken back stands in, and comes second."""

from collections.abc import Callable, Iterator

from raysweep.cluster import own_resources
from raysweep.lint.launcher_file import LauncherFile, NodeType
from raysweep.lint.problem import Problem


def fallback_problems(file: LauncherFile, is_spot: Callable[[NodeType], bool]) -> Iterator[Problem]:
    """A problem for each spot type that does not come first, or that no other stands in for which can be asked for."""
    others = [worker for worker in file.workers if not is_spot(worker)]
    marked = own_resources({each.name: each.resources for each in file.types})
    highest = max((_priority(other) for other in others), default=0)
    for worker in filter(is_spot, file.workers):
        if not others:
            yield Problem(
                worker.path, "must have a type on demand beside it, for when the cloud has no spot machine left"
            )
        elif _priority(worker) <= highest:
            path = (*worker.path, "priority")
            yield Problem(
                path, f"must be above {highest}, that of the type on demand, which would come first otherwise"
            )
        elif not any(other.name in marked for other in others):
            yield Problem(
                (*others[0].path, "resources"),
                "must have a resource that no other type has, such as on_demand: 1, by which raysweep asks for such nodes "
                "where the cloud has no spot machine left",
            )


def _priority(worker: NodeType) -> int:
    return int(worker.values.get("priority", 0))
