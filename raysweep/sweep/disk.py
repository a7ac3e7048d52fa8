"""Which weights stay on disk: those of the front's members, within a bound."""

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from raysweep.metrics.pareto import hypervolume
from raysweep.results.ledger import point_name
from raysweep.results.types import Point


class WeightStore:
    """The folders of ``points``, one a rung, that hold weights. ``limit`` bytes bound them and the ``checkpoints``."""

    def __init__(self, points: Path, limit: int, checkpoints: Path) -> None:
        self._points, self._limit, self._checkpoints = points, limit, checkpoints
        self._sizes: dict[str, int] = {}  # of folders, in bytes

    def holds(self, point: Point) -> bool:
        """Whether the weights behind the point are on disk."""
        return (self._points / _folder_name(point)).is_dir()

    def keep_only(self, front: Sequence[Point], among: Sequence[Point] | None = None) -> None:
        """Remove the folders that no member of ``front`` needs; only those of the points ``among`` if given.

        Other folders may hold rungs whose reports are on their way.
        """
        if among is None:
            candidates = {path.name for path in self._points.iterdir()}
        else:
            candidates = {_folder_name(point) for point in among}
        needed = {_folder_name(point) for point in front}
        for name in candidates - needed:
            shutil.rmtree(self._points / name, ignore_errors=True)

    def is_full(self, front: Sequence[Point]) -> bool:
        """Whether the front's weights and the checkpoints take more than the bound."""
        return self._num_bytes(self._present(front)) > self._limit

    def shrink(self, front: Sequence[Point]) -> list[Point]:
        """While there is too much on disk, remove the weights that the front loses least hypervolume by.

        One rung's weights always stay. Returns a point of each rung whose weights were removed.
        """

        def hypervolume_and_name(name: str) -> tuple[float, str]:
            return _hypervolume_lost(front, name), name

        lost = []
        present = self._present(front)
        while len(present) > 1 and self._num_bytes(present) > self._limit:
            least = min(present, key=hypervolume_and_name)
            shutil.rmtree(self._points / least, ignore_errors=True)
            present.remove(least)
            lost.append(next(point for point in front if _folder_name(point) == least))
        return lost

    def _present(self, front: Sequence[Point]) -> set[str]:
        """The names of the front's folders that are on disk."""
        names = {_folder_name(point) for point in front}
        return {name for name in names if (self._points / name).is_dir()}

    def _num_bytes(self, names: set[str]) -> int:
        """What these folders and the checkpoints take."""
        for name in names - self._sizes.keys():  # written once, never changed but by test scores
            self._sizes[name] = _num_bytes_in(self._points / name)
        return sum(self._sizes[name] for name in names) + _num_bytes_in(self._checkpoints)


def _num_bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):  # which passes over folders that vanish: workers replace checkpoints
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).stat().st_size
    return total


def _folder_name(point: Point) -> str:
    assert point.trial is not None and point.step is not None
    return point_name(point.trial, point.step)


def _hypervolume_lost(front: Sequence[Point], name: str) -> float:
    """The hypervolume that the front loses without the points of the rung in this folder."""
    rest = [point for point in front if _folder_name(point) != name]
    return _hypervolume(front) - _hypervolume(rest)


def _hypervolume(points: Sequence[Point]) -> float:
    return hypervolume([(point.polarity, point.similarity) for point in points], (0.0, 0.0))
