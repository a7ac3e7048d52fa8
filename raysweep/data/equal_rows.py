"""Grouping of rows by value."""

import numpy as np
from numpy.typing import NDArray


def rows_by_value(values: NDArray[np.integer]) -> list[NDArray[np.intp]]:
    """Return the rows with each distinct value in ``values`` (n,), both ascending; one empty array if n is 0."""
    order = np.argsort(values, kind="stable")
    ends = np.flatnonzero(np.diff(values[order])) + 1
    return np.split(order, ends)
