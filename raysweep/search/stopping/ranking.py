"""A ranking of numbers by changing values."""

import bisect
from collections.abc import Iterator


class Ranking:
    """Numbers by value, the largest value first; ties go to the lower number."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[float, int]] = {}
        self._sorted: list[tuple[float, int]] = []

    def __iter__(self) -> Iterator[int]:
        return (number for _, number in self._sorted)

    def put(self, number: int, value: float) -> None:
        """Set the value of a number, replacing its previous one."""
        self.drop(number)
        key = self._keys[number] = (-value, number)
        bisect.insort(self._sorted, key)

    def drop(self, number: int) -> None:
        key = self._keys.pop(number, None)
        if key is not None:
            del self._sorted[bisect.bisect_left(self._sorted, key)]
