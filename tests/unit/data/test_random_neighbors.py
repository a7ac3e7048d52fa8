"""Random neighbors: their definition and their distribution."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.data.random_neighbors import RandomNeighbors, sample_anchors

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30)


@given(ROWS, st.integers(1, 6), st.integers(0, 9), st.booleans())
def test_neighbors_are_distinct_rows_of_their_slot(
    rows: list[tuple[int, int]], k: int, seed: int, only_some: bool
) -> None:
    """There are up to k neighbors, except copies with another label. Rows with the same text are not neighbors."""
    labels = np.array([label for label, _ in rows])
    groups = np.array([7 - 3 * text for _, text in rows])
    is_anchor = np.random.default_rng(seed).random(len(rows)) < 0.6 if only_some else None
    anchors = range(len(rows)) if is_anchor is None else np.flatnonzero(is_anchor).tolist()
    neighbors = RandomNeighbors(labels, groups, k, is_anchor).draw(
        0, len(rows), np.random.default_rng(seed)
    )
    assert np.isnan(neighbors.cosines).all()
    for row, sides in enumerate(neighbors.ids.tolist()):
        own = {i for i in anchors if labels[i] == labels[row] and groups[i] != groups[row]}
        others = {i for i in anchors if labels[i] != labels[row]}
        copies = {i for i in others if groups[i] == groups[row]}
        for ids, allowed, excluded in zip(
            sides, (own, others - copies), (set(), copies), strict=True
        ):
            count = sum(neighbor >= 0 for neighbor in ids)
            fewest = min(k, len(allowed) + len(excluded)) - len(excluded)
            if row in anchors:
                assert fewest <= count <= min(k, len(allowed))
            else:
                assert count == 0
            assert set(ids[:count]) <= allowed
            assert len(set(ids[:count])) == count
            assert ids[count:] == [-1] * (k - count)


def test_all_neighbors_are_equally_likely() -> None:
    """Five of 12 rows have the class of row 3, and one of them has the same text."""
    labels = np.array([0] * 5 + [1] * 7)
    groups = np.array([0, 1, 2, 1, 3, *range(4, 11)])
    neighbors = RandomNeighbors(labels, groups, 2)
    rng = np.random.default_rng(0)
    counts: Counter[int] = Counter()
    for _ in range(3000):
        counts.update(neighbors.draw(3, 4, rng).ids.ravel().tolist())
    assert set(counts) == {0, 2, 4, *range(5, 12)}
    for row, count in counts.items():
        expected = 3000 * 2 / (3 if row < 5 else 7)
        assert count == pytest.approx(expected, abs=5 * np.sqrt(expected))


@given(st.lists(st.integers(-2, 3), max_size=40), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_number_of_anchors_per_class(labels: list[int], per_class: int, seed: int) -> None:
    chosen = sample_anchors(np.array(labels, int), per_class, seed)
    expected = {label: min(per_class, count) for label, count in Counter(labels).items()}
    assert Counter(np.array(labels, int)[chosen].tolist()) == expected
    assert (chosen == sample_anchors(np.array(labels, int), per_class, seed)).all()
