"""Grouping of rows by value."""

import numpy as np
from numpy.typing import NDArray


def rows_by_value(values: NDArray[np.integer]) -> list[NDArray[np.intp]]:
    """Return the row numbers of each distinct value in ``values`` (n,), in ascending order of value.

    Row numbers are ascending. If n is 0, the result is one empty array.
    """
    order = np.argsort(values, kind="stable")
    ends = np.flatnonzero(np.diff(values[order])) + 1
    return np.split(order, ends)
