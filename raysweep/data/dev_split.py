"""Dev splits carved from the training rows: stratified, seeded, and without texts that also stay in train.

A row is *inside* another row if its words are a contiguous run of the other row's words (see
:mod:`raysweep.data.containment`). Dev rows inside training rows would reward memorization of train. A *group* is a
group of duplicates. A group is *free* if it is inside no row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

_LOOK_AHEAD = (8, 32, 128, 512)  # groups checked in successive rounds for each missing dev row of a label


_WEIGHED = 32  # groups inside rows that are compared for each missing dev row of a label


_MOST_CONTAINING = 16  # maximum number of rows that leave train for one group


_MOST_LEAVING = 0.05  # maximum share of all rows that leave train


_MOST_INSIDE = 0.01  # maximum share of dev


Ids = npt.NDArray[np.integer]


class Containment(Protocol):
    """An index that finds which rows are inside others. Rows are identified by position."""

    def is_inside(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return which of these rows are inside another row, (ids,)."""

    def containing(self, ids: Ids, most: int) -> Sequence[Ids | None]:
        """Return the rows that contain each of these rows, or None if there are more than ``most``."""


@dataclass(frozen=True)
class Carving:
    """The rows that become dev and the rows that belong to no split, (rows,) each; all others stay in train."""

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
    """Make about ``min(max_rows, round(fraction * rows))`` rows dev, shared among labels by largest remainder.

    ``labels`` and ``groups`` are (rows,), with labels counting from 0. A group moves as a unit, and only if its rows
    have the same label. Each label with at least two rows has one in dev, and each label keeps one in train. If these
    rules, the sizes of the groups or the limits below prevent a label's exact share, labels with more rows make up the
    difference.

    Dev is drawn from free groups in seeded order. A label with too few free groups, or fewer than one free in several
    hundred, also contributes groups that are inside rows, starting with those inside the fewest, and the containing
    rows leave train. The limits: at most 16 rows leave for one group, at most a twentieth of all rows (rounded up)
    leave in total, and no label loses rows that it needs for its share of dev and one row in train. If the limits
    prevent this, dev has fewer rows of the label. A label that would have no dev row contributes one group inside rows
    that stay in train, as long as such groups are at most 1% of dev; otherwise it has none.
    """
    pool = _Pool(labels, groups, seed)
    quotas = _shares(pool.rows_by_label, min(max_rows, round(fraction * len(labels))))
    draw = _draw_free(pool, quotas, containment)
    if not draw.missing:
        return Carving(draw.is_drawn[groups], np.zeros(len(labels), bool))
    return _draw_inside(pool, quotas, draw, containment)


@dataclass(frozen=True)
class _Draw:
    """Groups that become dev, (groups,), their rows by label, (labels,), and the number of missing rows by label."""

    is_drawn: npt.NDArray[np.bool_]
    rows_by_label: npt.NDArray[np.intp]
    missing: dict[int, int]

    @property
    def num_rows(self) -> int:
        return int(self.rows_by_label.sum())


class _Pool:
    """The groups that may become dev, and the containment results so far."""

    def __init__(self, labels: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], seed: int) -> None:
        self.labels = labels
        self.groups = groups
        self.rows_by_label = np.bincount(labels)
        self.sizes = np.bincount(groups)
        num_labels = len(self.rows_by_label)
        num_groups = len(self.sizes)
        self.first_rows = _first_rows(groups, num_groups)
        self.is_known = np.zeros(num_groups, bool)  # has been checked
        self.is_free = np.zeros(num_groups, bool)  # has been checked and is inside no row
        # Groups inside rows that may become dev, by label, and the number of rows that leave train for them, (labels,):
        self.admitted: dict[int, list[int]] = {}
        self.leaving_by_label = np.zeros(num_labels, np.intp)
        self.rarest_first = np.argsort(self.rows_by_label, kind="stable").tolist()
        agreeing = _agreeing_groups(labels, groups, num_labels)
        rng = np.random.default_rng(seed)
        self._shuffled = {label: rng.permutation(agreeing[label]) for label in self.rarest_first}

    def draw(self, quotas: npt.NDArray[np.intp]) -> _Draw:
        """Fill dev with groups known to be free, then with admitted groups. ``quotas`` is each label's share of dev."""
        is_drawn = np.zeros(len(self.sizes), bool)
        drawn_by_label = np.zeros_like(self.rows_by_label)
        missing = {}
        owed = 0  # dev rows that the labels so far are missing; negative if they have too many
        for label in self.rarest_first:
            quota = int(quotas[label])
            num_rows = int(self.rows_by_label[label] - self.leaving_by_label[label])
            wanted = min(max(quota + owed, 1), num_rows - 1)
            allowed = self._allowed(label)
            sizes = self.sizes[allowed].tolist()
            chosen = allowed[_fill(sizes, wanted, num_rows - 1)]
            is_drawn[chosen] = True
            num_drawn = int(self.sizes[chosen].sum())
            drawn_by_label[label] = num_drawn
            owed += quota - num_drawn
            if num_drawn < wanted:
                missing[label] = wanted - num_drawn
        return _Draw(is_drawn, drawn_by_label, missing)

    def _allowed(self, label: int) -> npt.NDArray[np.intp]:
        shuffled = self._shuffled[label]
        free = shuffled[self.is_free[shuffled]]
        admitted = np.array(self.admitted.get(label, []), np.intp)
        return np.concatenate([free, admitted])

    def unknown(self, label: int) -> npt.NDArray[np.intp]:
        """Return the label's unchecked groups, in seeded order."""
        shuffled = self._shuffled[label]
        return shuffled[~self.is_known[shuffled]]

    def inside(self, label: int) -> npt.NDArray[np.intp]:
        """Return the label's groups that are known to be inside rows, in seeded order."""
        shuffled = self._shuffled[label]
        return shuffled[self.is_known[shuffled] & ~self.is_free[shuffled]]


def _draw_free(pool: _Pool, quotas: npt.NDArray[np.intp], containment: Containment) -> _Draw:
    """Check groups in seeded order until dev can be drawn from the free ones."""
    draw = pool.draw(quotas)
    for times in _LOOK_AHEAD:
        parts = [pool.unknown(label)[: times * missing] for label, missing in draw.missing.items()]
        if not any(map(len, parts)):
            break
        groups = np.concatenate(parts)
        is_inside = containment.is_inside(pool.first_rows[groups])
        pool.is_known[groups] = True
        pool.is_free[groups] = ~is_inside
        draw = pool.draw(quotas)
    return draw


def _draw_inside(pool: _Pool, quotas: npt.NDArray[np.intp], free: _Draw, containment: Containment) -> Carving:
    """Also draw groups inside rows, for the labels that have too few free groups."""
    departures = _Departures(pool, quotas)
    lone: list[tuple[int, int]] = []  # labels otherwise missing in dev, each with a group whose containing rows stay
    weighed = _weigh(pool, free.missing, containment)
    for label, by_cost in weighed.items():
        admitted = departures.admit(by_cost, free.missing[label])
        pool.admitted[label] = admitted
        is_absent = not admitted and not free.rows_by_label[label]
        if is_absent and by_cost:
            cheapest = by_cost[0]
            lone.append((label, cheapest.group))
    pool.leaving_by_label = departures.by_label
    draw = _draw_with(pool, quotas, lone, free.num_rows)
    is_dev = draw.is_drawn[pool.groups]
    is_leaving = departures.caused_by(draw)
    return Carving(is_dev, is_leaving & ~is_dev)


def _draw_with(pool: _Pool, quotas: npt.NDArray[np.intp], lone: Sequence[tuple[int, int]], num_rows: int) -> _Draw:
    """Draw with as many of the lone groups as fit in 1% of dev, which has about ``num_rows`` rows."""
    some = list(lone[: int(_MOST_INSIDE * num_rows)])
    while True:
        for label, _ in lone:
            pool.admitted[label] = []
        for label, group in some:
            pool.admitted[label] = [group]
        draw = pool.draw(quotas)
        num_inside = sum(int(pool.sizes[group]) for _, group in some)
        if num_inside <= _MOST_INSIDE * draw.num_rows:
            return draw
        some.pop()


@dataclass(frozen=True)
class _Weighed:
    """A group inside rows, and the rows that contain it, or None if they are too many to leave train."""

    group: int
    containing: Ids | None

    @property
    def cost(self) -> float:
        return math.inf if self.containing is None else len(self.containing)


def _weigh(pool: _Pool, missing: dict[int, int], containment: Containment) -> dict[int, list[_Weighed]]:
    """Return groups inside rows for each label with missing rows, by number of containing rows, then seeded order."""
    groups = {label: pool.inside(label)[: _WEIGHED * count] for label, count in missing.items()}
    asked = np.concatenate(list(groups.values()))
    rows = pool.first_rows[asked]
    containing = iter(containment.containing(rows, _MOST_CONTAINING))
    found = {}
    for label, some in groups.items():
        weighed = [_Weighed(group, next(containing)) for group in some.tolist()]
        weighed.sort(key=lambda one: one.cost)
        found[label] = weighed
    return found


class _Departures:
    """The rows that leave train if the admitted groups become dev."""

    def __init__(self, pool: _Pool, quotas: npt.NDArray[np.intp]) -> None:
        self._pool = pool
        self._most = math.ceil(_MOST_LEAVING * len(pool.labels))
        needed = np.maximum(quotas, 1) + 1
        self._most_by_label = np.maximum(pool.rows_by_label - needed, 0)
        self._is_leaving = np.zeros(len(pool.labels), bool)
        self._causes: dict[int, Ids] = {}
        self.by_label = np.zeros_like(pool.rows_by_label)

    def admit(self, by_cost: Sequence[_Weighed], num_rows: int) -> list[int]:
        """Return the first groups of a label that may become dev, until they have ``num_rows`` rows in total."""
        admitted: list[int] = []
        missing = num_rows
        for weighed in by_cost:
            if missing <= 0:
                break
            if weighed.containing is not None and self._let_go(weighed.containing):
                self._causes[weighed.group] = weighed.containing
                admitted.append(weighed.group)
                missing -= int(self._pool.sizes[weighed.group])
        return admitted

    def _let_go(self, rows: Ids) -> bool:
        """Let these rows leave train if the limits allow it, and return whether they do."""
        others = rows[~self._is_leaving[rows]]
        counts = np.bincount(self._pool.labels[others], minlength=len(self.by_label))
        by_label = self.by_label + counts
        if by_label.sum() > self._most or (by_label > self._most_by_label).any():
            return False
        self.by_label = by_label
        self._is_leaving[others] = True
        return True

    def caused_by(self, draw: _Draw) -> npt.NDArray[np.bool_]:
        """Return the rows that contain a drawn group, (rows,)."""
        is_leaving = np.zeros(len(self._is_leaving), bool)
        for group, rows in self._causes.items():
            if draw.is_drawn[group]:
                is_leaving[rows] = True
        return is_leaving


def _first_rows(groups: npt.NDArray[np.int32], num_groups: int) -> npt.NDArray[np.intp]:
    """Return the first row of each group, (groups,), or 0 if a group does not occur."""
    found = np.zeros(num_groups, np.intp)
    backwards = np.arange(len(groups))[::-1]
    found[groups[backwards]] = backwards  # repeated assignments: the last one, the first row, wins
    return found


def _agreeing_groups(
    labels: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], num_labels: int
) -> list[npt.NDArray[np.intp]]:
    """Return, for each label, the groups whose rows all have that label, ascending."""
    lowest, highest = extremes(groups, labels)
    agreeing = np.flatnonzero(lowest == highest)
    by_label = agreeing[np.argsort(lowest[agreeing], kind="stable")]
    starts = np.searchsorted(lowest[by_label], np.arange(1, num_labels))
    return np.split(by_label, starts)


def extremes(
    groups: npt.NDArray[np.int32], labels: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the lowest and the highest label of each group; they differ if the group's rows disagree."""
    num_groups = int(groups.max()) + 1
    lowest = np.full(num_groups, np.iinfo(np.int32).max, np.int32)
    highest = np.full(num_groups, -1, np.int32)
    np.minimum.at(lowest, groups, labels)
    np.maximum.at(highest, groups, labels)
    return lowest, highest


def _shares(counts: npt.NDArray[np.intp], total: int) -> npt.NDArray[np.intp]:
    """Return ``total`` split in proportion to ``counts``, by largest remainder; ties go to the first."""
    scaled = counts * total
    shares: npt.NDArray[np.intp] = scaled // counts.sum()
    remainders = scaled % counts.sum()
    largest_first = np.argsort(-remainders, kind="stable")
    num_left = total - shares.sum()
    shares[largest_first[:num_left]] += 1
    return shares


def _fill(sizes: Sequence[int], wanted: int, most: int) -> list[int]:
    """Return positions whose sizes sum to at most ``wanted``, taking each in order that still fits.

    If no position fits, return the smallest, provided it is at most ``most``.
    """
    chosen: list[int] = []
    left = wanted
    for position, size in enumerate(sizes):
        if left <= 0:
            break
        if size <= left:
            chosen.append(position)
            left -= size
    if wanted > 0 and not chosen and sizes and min(sizes) <= most:
        chosen = [sizes.index(min(sizes))]
    return chosen
