"""Storage of the front members' weights, within a size limit."""

from collections.abc import Collection, Sequence
from pathlib import Path

from raysweep.metrics.pareto import hypervolume
from raysweep.results.ledger import checkpoint_folder, point_name
from raysweep.results.types import Point
from raysweep.storage.folder import Folder, as_folder

POINTS = "points"
CHECKPOINTS = "checkpoints"


class WeightStore:
    """The folders that store the weights of a run's points, one per rung.

    ``limit`` bounds the total size in bytes of the weights and the run's other files, which callers pass as ``others``.
    """

    def __init__(self, run: Path | Folder, limit: int) -> None:
        self._run, self._limit = as_folder(run), limit
        self._sizes: dict[str, int] = {}  # bytes by folder

    def held(self, front: Sequence[Point]) -> list[Point]:
        """Return the points whose weights are stored."""
        present = self._present(front)
        return [point for point in front if _folder_name(point) in present]

    def keep_only(self, front: Sequence[Point], among: Sequence[Point] | None = None) -> None:
        """Remove the folders that no member of ``front`` needs.

        With ``among``, only folders of these points are removed, since other folders may belong to rungs whose reports
        have not arrived yet.
        """
        candidates = self._run.names(POINTS) if among is None else {_folder_name(point) for point in among}
        needed = {_folder_name(point) for point in front}
        for name in candidates - needed:
            self._run.remove(f"{POINTS}/{name}")

    def is_full(self, front: Sequence[Point], others: int = 0) -> bool:
        """Return whether the front's weights and ``others`` exceed the limit."""
        return self._num_bytes(self._present(front)) + others > self._limit

    def shrink(self, front: Sequence[Point], others: int = 0) -> list[Point]:
        """Remove weights, those that cost the front the least hypervolume first, until the limit is met.

        The weights of one rung always stay. Returns one point per rung whose weights were removed.
        """

        def hypervolume_and_name(name: str) -> tuple[float, str]:
            return _hypervolume_lost(front, name), name

        lost = []
        present = self._present(front)
        while len(present) > 1 and self._num_bytes(present) + others > self._limit:
            least = min(present, key=hypervolume_and_name)
            self._run.remove(f"{POINTS}/{least}")
            present.remove(least)
            lost.append(next(point for point in front if _folder_name(point) == least))
        return lost

    def checkpoint_bytes(self, trials: Collection[int]) -> int:
        """Return the size of these trials' checkpoints in bytes."""
        if not trials:
            return 0
        folders = {Path(checkpoint_folder(number)).name for number in trials}
        sizes = self._run.sizes(CHECKPOINTS)
        return sum(size for name, size in sizes.items() if name.partition("/")[0] in folders)

    def _present(self, front: Sequence[Point]) -> set[str]:
        """Return the names of the front's folders that exist."""
        return {_folder_name(point) for point in front} & self._run.names(POINTS)

    def _num_bytes(self, names: set[str]) -> int:
        """Return the size of these folders in bytes."""
        for name in names - self._sizes.keys():  # written once and changed only by test scores
            self._sizes[name] = sum(self._run.sizes(f"{POINTS}/{name}").values())
        return sum(self._sizes[name] for name in names)


def _folder_name(point: Point) -> str:
    assert point.trial is not None and point.step is not None
    return point_name(point.trial, point.step)


def _hypervolume_lost(front: Sequence[Point], name: str) -> float:
    """Return the hypervolume that the front loses without the points of the rung in this folder."""
    rest = [point for point in front if _folder_name(point) != name]
    return _hypervolume(front) - _hypervolume(rest)


def _hypervolume(points: Sequence[Point]) -> float:
    return hypervolume([(point.polarity, point.similarity) for point in points], (0.0, 0.0))
