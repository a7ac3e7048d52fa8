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
        self._sizes: dict[str, int] = {}

    def holds(self, point: Point) -> bool:
        """Whether the weights behind the point are on disk."""
        return (self._points / _name(point)).is_dir()

    def forget(self, front: Sequence[Point], points: Sequence[Point] | None = None) -> None:
        """Remove folders that no member of ``front`` needs; of those of ``points`` alone if given.

        Others may hold rungs whose reports are on their way.
        """
        candidates = {path.name for path in self._points.iterdir()} if points is None else set(map(_name, points))
        for name in candidates - set(map(_name, front)):
            shutil.rmtree(self._points / name, ignore_errors=True)

    def is_full(self, front: Sequence[Point]) -> bool:
        """Whether the front's weights and the checkpoints take more than the bound."""
        return self._size(self._there(front)) > self._limit

    def only(self, front: Sequence[Point], points: Sequence[Point] | None = None) -> list[Point]:
        """:meth:`forget`, then while there is too much remove those of the front that it loses least by.

        One rung's weights always stay. Returns a point of each rung whose weights were lost to the bound.
        """
        self.forget(front, points)
        lost = []
        there = self._there(front)
        while len(there) > 1 and self._size(there) > self._limit:
            least = min(there, key=lambda name: (_loss(front, name), name))
            shutil.rmtree(self._points / least, ignore_errors=True)
            there.discard(least)
            lost.append(next(point for point in front if _name(point) == least))
        return lost

    def _there(self, front: Sequence[Point]) -> set[str]:
        return {name for name in map(_name, front) if (self._points / name).is_dir()}

    def _size(self, names: set[str]) -> int:
        for name in names - self._sizes.keys():  # written once, never changed but by test scores
            self._sizes[name] = _bytes(self._points / name)
        return sum(self._sizes[name] for name in names) + _bytes(self._checkpoints)


def _bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):  # which passes over folders that vanish: workers replace checkpoints
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).stat().st_size
    return total


def _name(point: Point) -> str:
    assert point.trial is not None and point.step is not None
    return point_name(point.trial, point.step)


def _loss(front: Sequence[Point], name: str) -> float:
    """The hypervolume that the front loses without the rung's points."""
    whole, rest = (
        hypervolume([(p.polarity, p.similarity) for p in points], (0.0, 0.0))
        for points in (front, [point for point in front if _name(point) != name])
    )
    return whole - rest
