"""Carve a stratified dev split from the training rows.

A row is *inside* another row if its words occur consecutively in the other row. Dev rows inside training rows would
reward memorization. A *group* is a set of duplicate rows. A group is *free* if it is not inside any row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysweep.data.containment import Containment

# maximum number of groups checked per missing dev row of a label, in successive rounds
CHECKED_PER_ROW = (
    8,
    32,
    128,
    512,
)
# maximum number of groups inside other rows that are considered per missing dev row of a label
COMPARED_PER_ROW = 32
MAX_CONTAINING = 16  # maximum number of rows that leave train for one group
MAX_LEAVING = 0.05  # maximum share of all rows that leave train
MAX_INSIDE = 0.01  # maximum share of dev rows that are inside rows of train

Ids = npt.NDArray[np.integer]
Integers = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Carving:
    """Masks (rows,) of the rows that move to dev and of the rows that are left out of both splits."""

    is_dev: npt.NDArray[np.bool_]
    is_left_out: npt.NDArray[np.bool_]


def carve(
    labels: npt.NDArray[np.int32],
    groups: npt.NDArray[np.int32],
    containment: Containment,
    *,
    fraction: float,
    max_rows: int,
    seed: int,
) -> Carving:
    """Move about ``min(max_rows, round(fraction * rows))`` rows to dev, in proportion to label sizes.

    ``labels`` and ``groups`` are (rows,); labels are numbered from 0. Shares are rounded by the largest-remainder method.
    Groups are not split, and groups with several labels do not move. If possible, each label with at least two rows
    gets at least one dev row. Each label keeps at least one row in train. If a label does not get its exact share,
    labels with more rows make up the difference.

    Free groups are drawn first, in random order. Labels with too few free groups also contribute groups inside other
    rows, starting with the groups inside the fewest rows. The containing rows are removed from train, with these limits:

    - at most 16 rows for one group
    - at most 5% of all rows in total, rounded up
    - only rows that their label does not need for its share of dev and one row in train

    A label that still has no dev rows contributes one group whose containing rows stay in train. The rows of all such
    groups make up at most 1% of dev.
    """
    total = min(max_rows, round(fraction * len(labels)))
    carver = _Carver(labels, groups, containment, total, seed)
    dev = carver.draw_free_groups()
    if not dev.num_missing:
        return Carving(dev.is_drawn[groups], np.zeros(len(labels), bool))
    return carver.draw_inside_groups(dev)


@dataclass(frozen=True)
class _Dev:
    """Mask (groups,) of groups drawn for dev, dev rows per label (labels,), and missing rows keyed by label."""

    is_drawn: npt.NDArray[np.bool_]
    rows_by_label: Integers
    num_missing: dict[int, int]

    @property
    def num_rows(self) -> int:
        return int(self.rows_by_label.sum())


@dataclass(frozen=True)
class _Candidate:
    """A group inside other rows. ``containing`` is None if more than ``MAX_CONTAINING`` rows contain it."""

    group: int
    containing: Ids | None

    @property
    def cost(self) -> float:
        return math.inf if self.containing is None else len(self.containing)


class _Carver:
    """The state of :func:`carve`."""

    def __init__(
        self,
        labels: npt.NDArray[np.int32],
        groups: npt.NDArray[np.int32],
        containment: Containment,
        total: int,
        seed: int,
    ) -> None:
        self.labels = labels
        self.groups = groups
        self.containment = containment
        self.rows_by_label = np.bincount(labels)
        self.quotas = _split_in_proportion(self.rows_by_label, total)  # dev rows by label
        _, self.first_rows, self.sizes = np.unique(groups, return_index=True, return_counts=True)
        num_groups = len(self.sizes)
        self.is_checked = np.zeros(num_groups, bool)
        self.is_free = np.zeros(num_groups, bool)  # checked and not inside any row
        self.rarest_first = np.argsort(self.rows_by_label, kind="stable").tolist()
        self.shuffled = self._shuffle_groups(np.random.default_rng(seed))

        # keyed by label: groups inside other rows that may move to dev
        self.admitted: dict[int, list[int]] = {}
        # keyed by admitted group: the rows that leave train if it moves to dev
        self.containing: dict[int, Ids] = {}
        self.is_leaving = np.zeros(len(labels), bool)
        self.leaving_by_label = np.zeros_like(self.rows_by_label)
        self.max_leaving = math.ceil(MAX_LEAVING * len(labels))
        num_needed = np.maximum(self.quotas, 1) + 1  # rows in dev, plus one row in train
        self.max_leaving_by_label = np.maximum(self.rows_by_label - num_needed, 0)

    def _shuffle_groups(self, rng: np.random.Generator) -> dict[int, Integers]:
        """Return the groups with a single label, in random order, keyed by label."""
        label_of_group = self.labels[self.first_rows]
        differs = self.labels != label_of_group[self.groups]
        mixed_groups = self.groups[differs]
        uniform = np.setdiff1d(np.arange(len(self.sizes)), mixed_groups)
        uniform_labels = label_of_group[uniform]
        order = np.argsort(uniform_labels, kind="stable")
        groups = uniform[order]
        later_labels = np.arange(1, len(self.rows_by_label))
        label_starts = np.searchsorted(uniform_labels[order], later_labels)
        groups_by_label = np.split(groups, label_starts)
        return {label: rng.permutation(groups_by_label[label]) for label in self.rarest_first}

    def draw(self, leaving_by_label: Integers) -> _Dev:
        """Draw dev from the groups known to be free, then from admitted groups.

        ``leaving_by_label`` (labels,) is the number of each label's rows that leave train.
        """
        max_by_label = self.rows_by_label - leaving_by_label - 1  # one row stays in train
        is_drawn = np.zeros(len(self.sizes), bool)
        drawn_by_label = np.zeros_like(self.rows_by_label)
        num_missing = {}
        num_owed = 0  # shortfall in dev rows over the labels so far; negative for a surplus
        for label in self.rarest_first:
            quota = int(self.quotas[label])
            max_rows = int(max_by_label[label])
            num_rows = min(max(quota + num_owed, 1), max_rows)
            shuffled = self.shuffled[label]
            free = shuffled[self.is_free[shuffled]]
            admitted = np.array(self.admitted.get(label, []), np.intp)
            groups = np.concatenate([free, admitted])
            positions = _fill(self.sizes[groups].tolist(), num_rows, max_rows)
            drawn = groups[positions]
            is_drawn[drawn] = True
            num_drawn = int(self.sizes[drawn].sum())
            drawn_by_label[label] = num_drawn
            num_owed += quota - num_drawn
            if num_drawn < num_rows:
                num_missing[label] = num_rows - num_drawn
        return _Dev(is_drawn, drawn_by_label, num_missing)

    def draw_free_groups(self) -> _Dev:
        """Draw dev from free groups. Groups are checked until enough are free or a limit is reached."""
        none_leave = np.zeros_like(self.rows_by_label)
        dev = self.draw(none_leave)
        for checked_per_row in CHECKED_PER_ROW:
            unchecked = []
            for label, num_missing in dev.num_missing.items():
                shuffled = self.shuffled[label]
                is_unchecked = ~self.is_checked[shuffled]
                max_groups = checked_per_row * num_missing
                groups_of_label = shuffled[is_unchecked]
                unchecked.append(groups_of_label[:max_groups])
            if not any(map(len, unchecked)):
                break
            groups = np.concatenate(unchecked)
            is_inside = self.containment.is_inside(self.first_rows[groups])
            self.is_checked[groups] = True
            self.is_free[groups] = ~is_inside
            dev = self.draw(none_leave)
        return dev

    def draw_inside_groups(self, free: _Dev) -> Carving:
        """Add groups inside other rows for labels with too few free groups."""
        # labels without other dev rows, each with a group whose containing rows stay in train
        lone: list[tuple[int, int]] = []
        candidates_by_label = self._find_candidates(free.num_missing)
        for label, candidates in candidates_by_label.items():
            self._admit(label, candidates, free.num_missing[label])
            is_absent = not self.admitted[label] and not free.rows_by_label[label]
            if is_absent and candidates:
                lone.append((label, candidates[0].group))
        # Use as many of these groups as fit in 1% of dev.
        num_lone = min(len(lone), int(MAX_INSIDE * free.num_rows))
        while True:
            for position, (label, group) in enumerate(lone):
                self.admitted[label] = [group] if position < num_lone else []
            dev = self.draw(self.leaving_by_label)
            admitted = [group for _, group in lone[:num_lone]]
            num_inside = int(self.sizes[admitted].sum())
            if num_inside <= MAX_INSIDE * dev.num_rows:
                break
            num_lone -= 1
        is_dev = dev.is_drawn[self.groups]
        is_left_out = np.zeros(len(self.labels), bool)
        for group, rows in self.containing.items():
            if dev.is_drawn[group]:
                is_left_out[rows] = True
        is_left_out[is_dev] = False
        return Carving(is_dev, is_left_out)

    def _find_candidates(self, num_missing: dict[int, int]) -> dict[int, list[_Candidate]]:
        """Return groups inside other rows, sorted by the number of containing rows, for labels with missing rows."""
        groups_by_label = {}
        for label, count in num_missing.items():
            shuffled = self.shuffled[label]
            is_inside = self.is_checked[shuffled] & ~self.is_free[shuffled]
            max_groups = COMPARED_PER_ROW * count
            groups_by_label[label] = shuffled[is_inside][:max_groups]
        all_groups = np.concatenate(list(groups_by_label.values()))
        all_containing = self.containment.containing(self.first_rows[all_groups], MAX_CONTAINING)
        containing = dict(zip(all_groups.tolist(), all_containing, strict=True))
        candidates_by_label = {}
        for label, groups in groups_by_label.items():
            candidates = [_Candidate(group, containing[group]) for group in groups.tolist()]
            candidates.sort(key=lambda candidate: candidate.cost)
            candidates_by_label[label] = candidates
        return candidates_by_label

    def _admit(self, label: int, candidates: Sequence[_Candidate], num_rows: int) -> None:
        """Admit candidates whose containing rows may leave train, until the candidates have ``num_rows`` rows."""
        num_labels = len(self.rows_by_label)
        self.admitted[label] = []
        for candidate in candidates:
            rows = candidate.containing
            if num_rows <= 0 or rows is None:  # candidates inside too many rows come last
                break
            staying = rows[~self.is_leaving[rows]]
            labels = self.labels[staying]
            counts = np.bincount(labels, minlength=num_labels)
            leaving_by_label = self.leaving_by_label + counts
            num_leaving = leaving_by_label.sum()
            is_over_limit = leaving_by_label > self.max_leaving_by_label
            if num_leaving > self.max_leaving or is_over_limit.any():
                continue
            group = candidate.group
            self.leaving_by_label = leaving_by_label
            self.is_leaving[staying] = True
            self.containing[group] = rows
            self.admitted[label].append(group)
            num_rows -= int(self.sizes[group])


def _split_in_proportion(counts: Integers, total: int) -> Integers:
    """Split ``total`` in proportion to ``counts`` by the largest-remainder method."""
    scaled = counts * total
    shares: Integers = scaled // counts.sum()
    remainders = scaled % counts.sum()
    largest_first = np.argsort(-remainders, kind="stable")
    num_left = total - shares.sum()
    shares[largest_first[:num_left]] += 1
    return shares


def _fill(sizes: Sequence[int], total: int, max_size: int) -> list[int]:
    """Greedily select sizes that sum to at most ``total``, and return their positions.

    If none fits, select the smallest size if it is at most ``max_size``.
    """
    chosen: list[int] = []
    num_left = total
    for position, size in enumerate(sizes):
        if num_left <= 0:
            break
        if size <= num_left:
            chosen.append(position)
            num_left -= size
    if total > 0 and not chosen and sizes and min(sizes) <= max_size:
        chosen = [sizes.index(min(sizes))]
    return chosen
