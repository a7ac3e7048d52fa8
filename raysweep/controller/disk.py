"""Which weights stay stored: those of the front's members, within a bound."""

from collections.abc import Collection, Sequence
from pathlib import Path

from raysweep.metrics.pareto import hypervolume
from raysweep.results.ledger import checkpoint_folder, point_name
from raysweep.results.types import Point
from raysweep.storage.folder import Folder, as_folder

POINTS = "points"
CHECKPOINTS = "checkpoints"


class WeightStore:
    """The folders of a run's points, one a rung, that hold weights.

    ``limit`` bytes bound them and what else the run keeps, which callers pass as ``others``, in bytes.
    """

    def __init__(self, run: Path | Folder, limit: int) -> None:
        self._run, self._limit = as_folder(run), limit
        self._sizes: dict[str, int] = {}  # of folders, in bytes

    def held(self, front: Sequence[Point]) -> list[Point]:
        """The points whose weights are stored."""
        present = self._present(front)
        return [point for point in front if _folder_name(point) in present]

    def keep_only(self, front: Sequence[Point], among: Sequence[Point] | None = None) -> None:
        """Remove the folders that no member of ``front`` needs; only those of the points ``among`` if given.

        Other folders may hold rungs whose reports are on their way.
        """
        candidates = self._run.names(POINTS) if among is None else {_folder_name(point) for point in among}
        needed = {_folder_name(point) for point in front}
        for name in candidates - needed:
            self._run.remove(f"{POINTS}/{name}")

    def is_full(self, front: Sequence[Point], others: int = 0) -> bool:
        """Return whether the front's weights and the others take more than the bound."""
        return self._num_bytes(self._present(front)) + others > self._limit

    def shrink(self, front: Sequence[Point], others: int = 0) -> list[Point]:
        """While there is too much on disk, remove the weights that the front loses least hypervolume by.

        One rung's weights always stay. Returns a point of each rung whose weights were removed.
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
        """Return what the checkpoints of these trials take."""
        if not trials:
            return 0
        folders = {Path(checkpoint_folder(number)).name for number in trials}
        sizes = self._run.sizes(CHECKPOINTS)
        return sum(size for name, size in sizes.items() if name.partition("/")[0] in folders)

    def _present(self, front: Sequence[Point]) -> set[str]:
        """The names of the front's folders that are stored."""
        return {_folder_name(point) for point in front} & self._run.names(POINTS)

    def _num_bytes(self, names: set[str]) -> int:
        """Return what these folders take."""
        for name in names - self._sizes.keys():  # written once, never changed but by test scores
            self._sizes[name] = sum(self._run.sizes(f"{POINTS}/{name}").values())
        return sum(self._sizes[name] for name in names)


def _folder_name(point: Point) -> str:
    assert point.trial is not None and point.step is not None
    return point_name(point.trial, point.step)


def _hypervolume_lost(front: Sequence[Point], name: str) -> float:
    """The hypervolume that the front loses without the points of the rung in this folder."""
    rest = [point for point in front if _folder_name(point) != name]
    return _hypervolume(front) - _hypervolume(rest)


def _hypervolume(points: Sequence[Point]) -> float:
    return hypervolume([(point.polarity, point.similarity) for point in points], (0.0, 0.0))
