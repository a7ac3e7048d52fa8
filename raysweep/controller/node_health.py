"""Tracking of node health. Nodes are excluded after repeated errors and paused after storage failures."""

from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass, field

FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 300.0


@dataclass(frozen=True)
class WorkerNode:
    """A cluster node, with its Ray ID and a name for messages."""

    id: str
    name: str


@dataclass
class _Pause:
    seconds: float
    until: float  # on the sweep's clock


@dataclass
class NodeHealth:
    """Tracks the errors and pauses of nodes during a session.

    If a job raises an error on a second node too, its errors are not counted against the nodes. The last usable node is
    never excluded or paused. ``list_usable`` returns the IDs of the live nodes that can run trials.
    """

    max_errors: int
    list_usable: Callable[[], Set[str]]
    excluded: set[str] = field(default_factory=set)
    _errors: dict[str, int] = field(default_factory=dict)  # consecutive errors, keyed by node ID
    # the node of a job's first error since its last rung
    _raised_on: dict[Hashable, str] = field(default_factory=dict)
    _pauses: dict[str, _Pause] = field(default_factory=dict)

    def count_error(self, job: Hashable, node: WorkerNode) -> bool:
        """Count an error that a job raised on a node, and return whether the node is now excluded."""
        first_node = self._raised_on.get(job)
        if first_node is not None and first_node not in self.excluded:
            num_counted = self._errors.get(first_node, 0)
            self._errors[first_node] = max(0, num_counted - 1)
            return False
        num_errors = self._errors.get(node.id, 0) + 1
        self._errors[node.id] = num_errors
        if num_errors < self.max_errors or node.id in self.excluded or not self._list_others(node):
            return False
        self.excluded.add(node.id)
        return True

    def may_retry(self, job: Hashable, node: WorkerNode) -> bool:
        """Return whether to retry a job that raised an error. A job is retried only once, on another node."""
        if job in self._raised_on:
            return False
        self._raised_on[job] = node.id
        return bool(self._list_others(node))

    def pause(self, node: WorkerNode, now: float) -> float | None:
        """Pause a node whose storage failed, and return the length of the pause in seconds.

        Each pause is twice as long as the previous one, up to ``MAX_PAUSE_SECONDS``. If no other node is available,
        the storage is assumed to be shared. In this case, the node is not paused, and None is returned.
        """
        if not self._list_others(node) - self._paused(now):
            return None
        last = self._pauses.get(node.id)
        seconds = min(2 * last.seconds, MAX_PAUSE_SECONDS) if last else FIRST_PAUSE_SECONDS
        self._pauses[node.id] = _Pause(seconds, now + seconds)
        return seconds

    def note_rung(self, job: Hashable, node_id: str) -> None:
        """Clear the errors of a job and its node, and the node's pause, after a finished rung."""
        self._raised_on.pop(job, None)
        self._errors.pop(node_id, None)
        self._pauses.pop(node_id, None)

    def nodes_to_avoid(self, job: Hashable, now: float) -> tuple[str, ...]:
        """Return the IDs of the nodes on which a job should not start."""
        usable = self.list_usable() - self.excluded
        avoided = self._paused(now)
        if job in self._raised_on:
            avoided.add(self._raised_on[job])
        if not usable - avoided:  # no other node is left
            avoided = set()
        return tuple(sorted(self.excluded | avoided))

    def _list_others(self, node: WorkerNode) -> Set[str]:
        """Return the IDs of the usable nodes other than this one."""
        return self.list_usable() - self.excluded - {node.id}

    def _paused(self, now: float) -> set[str]:
        return {node_id for node_id, pause in self._pauses.items() if pause.until > now}
