"""Containment of texts by brute-force pairwise comparison."""

import string
import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt


@cache
def words(text: str) -> str:
    """Return the words of a text, each with a space before and after."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    found = "".join(
        " " if character in string.punctuation else character for character in folded
    ).split()
    return f" {' '.join(found)} "


def is_inside(text: str, other: str) -> bool:
    """Return whether the words of ``text`` are a contiguous run of those of the longer text ``other``."""
    few, many = words(text), words(other)
    return bool(few.strip()) and few != many and few in many


class Compared:
    """Containment of rows by comparing all pairs; stands in for ``containment.Containment``."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def rows_containing(self, row: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero([is_inside(self.texts[row], other) for other in self.texts])

    def is_inside(self, ids: Sequence[int]) -> npt.NDArray[np.bool_]:
        return np.array([len(self.rows_containing(row)) > 0 for row in ids], bool)

    def containing(self, ids: Sequence[int], max_rows: int) -> list[npt.NDArray[np.intp] | None]:
        containing = [self.rows_containing(row) for row in ids]
        return [rows if len(rows) <= max_rows else None for rows in containing]
