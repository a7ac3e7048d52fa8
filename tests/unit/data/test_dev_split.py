"""Carved dev splits: exact shares, no overlap with train, and every label in both splits."""

import math
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.data.dev_split import carve
from support.containment import Compared, is_inside, words


def carved(labels, groups=None, fraction=0.1, max_rows=1000, seed=0):
    """Return which rows become dev if no row is inside another."""
    groups = np.arange(len(labels)) if groups is None else groups
    texts = [f"word{group}" for group in groups]
    carving = carve_texts(
        texts, labels, fraction=fraction, max_rows=max_rows, seed=seed, containment=Apart()
    )
    assert not carving.is_left_out.any()
    return carving.is_dev


def carve_texts(texts, labels, fraction=0.1, max_rows=1000, seed=0, containment=None):
    codes = {}
    groups = [codes.setdefault(words(text), len(codes)) for text in texts]
    return carve(
        np.asarray(labels, np.int32),
        np.asarray(groups, np.int32),
        containment or Compared(texts),
        fraction=fraction,
        max_rows=max_rows,
        seed=seed,
    )


class Apart:
    """No row is inside another."""

    def is_inside(self, ids):
        return np.zeros(len(ids), bool)

    def containing(self, ids, max_rows):
        assert not len(ids)
        return []


def count_inside(texts, carving):
    """Return how many dev rows are inside a row that stays in train."""
    stays = ~carving.is_dev & ~carving.is_left_out
    left = [texts[row] for row in np.flatnonzero(stays)]
    return sum(
        any(is_inside(texts[row], other) for other in left)
        for row in np.flatnonzero(carving.is_dev)
    )


def test_labels_share_dev_by_largest_remainder():
    labels = np.repeat([0, 1, 2], [470, 326, 204])
    dev = carved(labels, fraction=0.01)  # exact shares 4.7, 3.26, 2.04
    assert np.bincount(labels[dev]).tolist() == [5, 3, 2]
    assert np.bincount(labels[carved(labels, fraction=0.5, max_rows=100)]).tolist() == [47, 33, 20]


def test_draw_is_seeded_and_uniform():
    labels = np.arange(1000) % 2
    first, again, other = (carved(labels, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    # binomial(200, 0.1) each
    drawn = sum(carved(labels, seed=seed).astype(int) for seed in range(200))
    assert abs(drawn - 20).max() < 6 * np.sqrt(200 * 0.1 * 0.9)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=60),
    st.floats(0.05, 0.6),
)
def test_invariants_hold_for_any_rows(rows, fraction):
    names = sorted({label for label, _ in rows})
    labels = [names.index(label) for label, _ in rows]
    groups = [group for _, group in rows]
    dev = carved(labels, groups, fraction)
    sides = {}
    for group, is_dev in zip(groups, dev, strict=True):
        assert sides.setdefault(group, is_dev) == is_dev, "a group is in both splits"
    in_train = Counter(label for label, is_dev in zip(labels, dev, strict=True) if not is_dev)
    assert len(in_train) == len(names), "a label is missing in train"
    in_dev = Counter(label for label, is_dev in zip(labels, dev, strict=True) if is_dev)
    for label, count in Counter(labels).items():
        agreeing = [
            g
            for g in set(groups)
            if {la for la, gr in zip(labels, groups, strict=True) if gr == g} == {label}
        ]
        could = [g for g in agreeing if groups.count(g) < count]
        assert in_dev[label] > 0 or not could, "a label is missing in dev"


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 2**32))
def test_without_duplicates_the_total_is_exact(counts, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    total = round(0.3 * len(labels))
    at_least = sum(count > 1 for count in counts)
    at_most = sum(counts) - len(counts)
    assert carved(labels, fraction=0.3, seed=seed).sum() == min(max(total, at_least), at_most)


def test_groups_move_as_units_and_the_largest_label_compensates():
    labels = np.repeat([0, 1], [40, 100])
    # label 0 comes in groups of four
    groups = np.concatenate([np.arange(40) // 4, 10 + np.arange(100)])
    dev = carved(labels, groups, fraction=0.1)  # shares: exactly 4 and 10
    assert np.bincount(labels[dev]).tolist() == [4, 10]
    dev = carved(labels, groups, fraction=0.05)  # 2 and 5, of which four for label 0 are the least
    assert np.bincount(labels[dev]).tolist() == [4, 3]


def test_group_with_different_labels_stays_in_train():
    labels, groups = [0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 3]
    assert not carved(labels, groups, 0.5)[:4].any()


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "A,"]), min_size=1, max_size=7).map(" ".join)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 2), TEXTS), min_size=1, max_size=80),
    st.floats(0.05, 0.6),
    st.integers(0, 2**32),
)
def test_dev_is_inside_no_row_of_train(rows, fraction, seed):
    names = sorted({label for label, _ in rows})
    labels = np.array([names.index(label) for label, _ in rows])
    texts = [text for _, text in rows]
    carving = carve_texts(texts, labels, fraction, seed=seed)
    again = carve_texts(texts, labels, fraction, seed=seed)
    assert (carving.is_dev == again.is_dev).all()
    assert (carving.is_left_out == again.is_left_out).all()
    num_inside = count_inside(texts, carving)
    assert num_inside <= 0.01 * carving.is_dev.sum()
    sides = {}
    for text, is_dev, is_left_out in zip(texts, carving.is_dev, carving.is_left_out, strict=True):
        side = (is_dev, is_left_out)
        assert side != (True, True)
        assert sides.setdefault(words(text), side) == side, "a group is in several splits"
    in_train = set(labels[~carving.is_dev & ~carving.is_left_out].tolist())
    assert len(in_train) == len(names), "a label is missing in train"
    assert carving.is_left_out.sum() <= math.ceil(0.05 * len(rows))
    dev = [texts[row] for row in np.flatnonzero(carving.is_dev)]
    for row in np.flatnonzero(carving.is_left_out):
        assert any(is_inside(text, texts[row]) for text in dev), "a row left train without a reason"


def sentences(count, start=0):
    """Return texts of six unique words each."""
    return [
        " ".join(f"w{number}-{place}" for place in range(6))
        for number in range(start, start + count)
    ]


def test_free_rows_are_preferred_and_shares_stay_exact():
    whole = sentences(200)
    parts = [" ".join(text.split()[:3]) for text in whole for _ in range(4)]
    labels = np.arange(1000) % 2
    carving = carve_texts(whole + parts, labels)
    assert np.bincount(labels[carving.is_dev]).tolist() == [50, 50]
    assert not carving.is_dev[200:].any()
    assert not carving.is_left_out.any()


def test_containing_rows_leave_train_for_a_class_without_free_rows():
    whole = sentences(300)
    parts = [" ".join(text.split()[1:]) for text in whole[:40]]
    labels = np.repeat([0, 1], [300, 40])
    carving = carve_texts(whole + parts, labels, fraction=0.1)
    assert np.bincount(labels[carving.is_dev]).tolist() == [30, 4]
    assert carving.is_left_out.sum() <= 4
    assert count_inside(whole + parts, carving) == 0
    # 36 of the 40; a twentieth of 340 rows may leave
    wanted = carve_texts(whole + parts, labels, fraction=0.9)
    assert wanted.is_left_out.sum() <= 17
    assert count_inside(whole + parts, wanted) == 0


def test_groups_inside_few_rows_come_before_those_inside_many():
    whole = [f"{text} film" for text in sentences(300)]
    short = ["film"] * 2 + [" ".join(text.split()[:4]) for text in whole[:2]]
    labels = np.repeat([0, 1], [300, 4])
    for seed in range(5):
        carving = carve_texts(whole + short, labels, fraction=0.5, max_rows=100, seed=seed)
        assert carving.is_dev[302:].sum() == 1
        assert not carving.is_dev[300:302].any()
        assert carving.is_left_out.sum() <= 1


def test_rows_that_their_class_needs_stay():
    texts = ["good film", "bad film", "good", "bad", *sentences(60)]
    labels = np.array([0, 0, 1, 1] + [2] * 60)
    for seed in range(10):
        carving = carve_texts(texts, labels, seed=seed)
        assert np.bincount(labels[carving.is_dev], minlength=3).tolist() == [1, 0, 5]
        assert not carving.is_left_out.any()


def test_missing_class_may_be_inside_train_up_to_one_percent_of_dev():
    for num_whole, expected in ((1000, [99, 1]), (900, [90, 0])):
        texts = [*(f"{text} good day" for text in sentences(num_whole)), "good", "day"]
        labels = np.array([0] * num_whole + [1, 1])
        carving = carve_texts(texts, labels, fraction=0.1)
        assert np.bincount(labels[carving.is_dev], minlength=2).tolist() == expected
        assert not carving.is_left_out.any()
        assert count_inside(texts, carving) == expected[1]
