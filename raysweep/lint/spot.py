"""Spot machines: where the cloud has none left, a type that is not taken back stands in, and comes second."""

from collections.abc import Callable, Iterator, Sequence

from raysweep.lint.launcher_file import NodeType
from raysweep.lint.problem import Problem


def fallback_problems(workers: Sequence[NodeType], is_spot: Callable[[NodeType], bool]) -> Iterator[Problem]:
    """A problem for each spot type that no other stands in for, or that does not come first."""
    others = [worker for worker in workers if not is_spot(worker)]
    highest = max((_priority(other) for other in others), default=0)
    for worker in filter(is_spot, workers):
        if not others:
            yield Problem(
                worker.path, "must have a type on demand beside it, for when the cloud has no spot machine left"
            )
        elif _priority(worker) <= highest:
            path = (*worker.path, "priority")
            yield Problem(
                path, f"must be above {highest}, that of the type on demand, which would come first otherwise"
            )


def _priority(worker: NodeType) -> int:
    return int(worker.values.get("priority", 0))
