"""A carved dev split: exact shares, no text on both sides, every label on both."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.data.dev_split import carve


def carved(labels, groups=None, fraction=0.1, max_rows=1000, seed=0):
    labels = np.asarray(labels, np.int32)
    groups = np.arange(len(labels), dtype=np.int32) if groups is None else np.asarray(groups, np.int32)
    return carve(labels, groups, fraction=fraction, max_rows=max_rows, seed=seed)


def test_shares_are_by_largest_remainder():
    labels = np.repeat([0, 1, 2], [470, 326, 204])
    dev = carved(labels, fraction=0.01)  # exact shares 4.7, 3.26, 2.04
    assert np.bincount(labels[dev]).tolist() == [5, 3, 2]
    assert np.bincount(labels[carved(labels, fraction=0.5, max_rows=100)]).tolist() == [47, 33, 20]


def test_rows_are_drawn_by_seed_and_from_everywhere():
    labels = np.arange(1000) % 2
    first, again, other = (carved(labels, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    drawn = sum(carved(labels, seed=seed).astype(int) for seed in range(200))  # binomial(200, 0.1) each
    assert abs(drawn - 20).max() < 6 * np.sqrt(200 * 0.1 * 0.9)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=60), st.floats(0.05, 0.6))
def test_invariants_hold_for_any_rows(rows, fraction):
    names = sorted({label for label, _ in rows})
    labels = [names.index(label) for label, _ in rows]
    groups = [group for _, group in rows]
    dev = carved(labels, groups, fraction)
    sides = {}
    for group, is_dev in zip(groups, dev, strict=True):
        assert sides.setdefault(group, is_dev) == is_dev, "a group stands on both sides"
    in_train = Counter(label for label, is_dev in zip(labels, dev, strict=True) if not is_dev)
    assert len(in_train) == len(names), "a label is gone from train"
    in_dev = Counter(label for label, is_dev in zip(labels, dev, strict=True) if is_dev)
    for label, count in Counter(labels).items():
        agreeing = [g for g in set(groups) if {la for la, gr in zip(labels, groups, strict=True) if gr == g} == {label}]
        could = [g for g in agreeing if groups.count(g) < count]
        assert in_dev[label] > 0 or not could, "a label could be in dev and is not"


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 2**32))
def test_without_duplicates_the_total_is_exact(counts, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    total = round(0.3 * len(labels))
    at_least = sum(count > 1 for count in counts)
    at_most = sum(counts) - len(counts)
    assert carved(labels, fraction=0.3, seed=seed).sum() == min(max(total, at_least), at_most)


def test_groups_move_whole_and_the_largest_label_evens_out():
    labels = np.repeat([0, 1], [40, 100])
    groups = np.concatenate([np.arange(40) // 4, 10 + np.arange(100)])  # label 0 comes in groups of four
    dev = carved(labels, groups, fraction=0.1)  # shares: exactly 4 and 10
    assert np.bincount(labels[dev]).tolist() == [4, 10]
    dev = carved(labels, groups, fraction=0.05)  # 2 and 5, of which four for label 0 are the least
    assert np.bincount(labels[dev]).tolist() == [4, 3]


def test_a_group_that_disagrees_on_the_label_stays():
    labels, groups = [0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 3]
    assert not carved(labels, groups, 0.5)[:4].any()
