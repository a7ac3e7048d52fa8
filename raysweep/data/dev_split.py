"""Carving a dev split from the training rows: stratified, seeded, and without texts that also stay in train.

A row *stands inside* another where its words are a run of the other's, as :mod:`raysweep.data.containment` says: were dev
to stand inside train, selection would reward what has memorised train. A *group* is a group of duplicates. It is *free*
where it stands inside no row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

_LOOK_AHEAD = (8, 32, 128, 512)  # groups that are looked at, time after time, for each row that dev lacks of a label


_WEIGHED = 32  # groups inside rows that are weighed against each other for each row that dev lacks of a label


_MOST_CONTAINING = 16  # rows that may leave train for one group


_MOST_LEAVING = 0.05  # of all rows


_MOST_INSIDE = 0.01  # of dev


Ids = npt.NDArray[np.integer]


class Containment(Protocol):
    """Says which rows stand inside others. Rows are named by their positions."""

    def is_inside(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of these rows stand inside another, (ids,)."""

    def containing(self, ids: Ids, most: int) -> Sequence[Ids | None]:
        """The rows that contain each of these rows; None where there are more than ``most``."""


@dataclass(frozen=True)
class Carving:
    """What becomes of the rows, (rows,) each: they become dev, or belong to no split; the others stay in train."""

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

    ``labels`` and ``groups`` are (rows,), labels counting from 0. A group moves as a whole, and only if its rows agree on
    the label. Every label with two rows or more has one in dev, and every label keeps one in train; where this, the
    groups' sizes or the following forbid a label's exact share, the labels with more rows make up the difference.

    Dev is drawn from free groups in seeded order. A label that has too few, or fewer than one in some hundreds, also gives
    groups inside rows, those inside the fewest first, and these rows leave train: at most 16 for one group, at most a
    twentieth of all rows (rounded up), and none that their own label needs for its share of dev and a row in train. Where
    that forbids it, dev has fewer rows of the label. A label that would have none gives one group inside rows that stay,
    while such groups are at most 1% of dev; otherwise it has none.
    """
    pool = _Pool(labels, groups, seed)
    quotas = _shares(pool.rows_by_label, min(max_rows, round(fraction * len(labels))))
    draw = _draw_free(pool, quotas, containment)
    if not draw.missing:
        return Carving(draw.is_drawn[groups], np.zeros(len(labels), bool))
    return _draw_inside(pool, quotas, draw, containment)


@dataclass(frozen=True)
class _Draw:
    """Which groups become dev, (groups,); their rows by label, (labels,); and the labels that lack rows, and how many."""

    is_drawn: npt.NDArray[np.bool_]
    rows_by_label: npt.NDArray[np.intp]
    missing: dict[int, int]

    @property
    def num_rows(self) -> int:
        return int(self.rows_by_label.sum())


class _Pool:
    """The groups that may become dev, and what is known of them so far. ``quotas`` are the labels' shares of dev."""

    def __init__(self, labels: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], seed: int) -> None:
        self.labels = labels
        self.groups = groups
        self.rows_by_label = np.bincount(labels)
        self.sizes = np.bincount(groups)
        num_labels = len(self.rows_by_label)
        num_groups = len(self.sizes)
        self.first_rows = _first_rows(groups, num_groups)
        self.is_known = np.zeros(num_groups, bool)  # has been looked at
        self.is_free = np.zeros(num_groups, bool)  # and stands inside no row
        # What may become dev all the same, by label, and how many rows may leave train for it, (labels,):
        self.admitted: dict[int, list[int]] = {}
        self.leaving_by_label = np.zeros(num_labels, np.intp)
        self.rarest_first = np.argsort(self.rows_by_label, kind="stable").tolist()
        agreeing = _agreeing_groups(labels, groups, num_labels)
        rng = np.random.default_rng(seed)
        self._shuffled = {label: rng.permutation(agreeing[label]) for label in self.rarest_first}

    def draw(self, quotas: npt.NDArray[np.intp]) -> _Draw:
        """Fill dev from the groups that are known to be free, then from those that are admitted."""
        is_drawn = np.zeros(len(self.sizes), bool)
        drawn_by_label = np.zeros_like(self.rows_by_label)
        missing = {}
        owed = 0  # rows that the labels so far have too few of in dev; below 0, too many
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
        """The label's groups that nobody has looked at, in seeded order."""
        shuffled = self._shuffled[label]
        return shuffled[~self.is_known[shuffled]]

    def inside(self, label: int) -> npt.NDArray[np.intp]:
        """The label's groups that are known to stand inside rows, in seeded order."""
        shuffled = self._shuffled[label]
        return shuffled[self.is_known[shuffled] & ~self.is_free[shuffled]]


def _draw_free(pool: _Pool, quotas: npt.NDArray[np.intp], containment: Containment) -> _Draw:
    """Look at groups in seeded order until dev can be drawn from the free ones among them."""
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
    """Draw groups inside rows as well, for the labels that lack rows in the draw from free ones."""
    departures = _Departures(pool, quotas)
    lone: list[tuple[int, int]] = []  # labels that dev would lack, each with a group whose containing rows stay
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
    """Draw with as many of the lone groups as are at most 1% of dev, which has about ``num_rows``."""
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
    """A group inside rows, and these rows; None where they are too many to leave train for it."""

    group: int
    containing: Ids | None

    @property
    def cost(self) -> float:
        return math.inf if self.containing is None else len(self.containing)


def _weigh(pool: _Pool, missing: dict[int, int], containment: Containment) -> dict[int, list[_Weighed]]:
    """For each label that lacks rows, groups inside rows, those inside the fewest first, otherwise in seeded order."""
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
    """The rows that leave train if the groups that were admitted become dev."""

    def __init__(self, pool: _Pool, quotas: npt.NDArray[np.intp]) -> None:
        self._pool = pool
        self._most = math.ceil(_MOST_LEAVING * len(pool.labels))
        needed = np.maximum(quotas, 1) + 1
        self._most_by_label = np.maximum(pool.rows_by_label - needed, 0)
        self._is_leaving = np.zeros(len(pool.labels), bool)
        self._causes: dict[int, Ids] = {}
        self.by_label = np.zeros_like(pool.rows_by_label)

    def admit(self, by_cost: Sequence[_Weighed], num_rows: int) -> list[int]:
        """Of these groups of a label, the first that may become dev: as many as have ``num_rows`` rows together."""
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
        """Let these rows leave if they may."""
        others = rows[~self._is_leaving[rows]]
        counts = np.bincount(self._pool.labels[others], minlength=len(self.by_label))
        by_label = self.by_label + counts
        if by_label.sum() > self._most or (by_label > self._most_by_label).any():
            return False
        self.by_label = by_label
        self._is_leaving[others] = True
        return True

    def caused_by(self, draw: _Draw) -> npt.NDArray[np.bool_]:
        """The rows that contain a group that was drawn, (rows,)."""
        is_leaving = np.zeros(len(self._is_leaving), bool)
        for group, rows in self._causes.items():
            if draw.is_drawn[group]:
                is_leaving[rows] = True
        return is_leaving


def _first_rows(groups: npt.NDArray[np.int32], num_groups: int) -> npt.NDArray[np.intp]:
    """Where each group occurs first, (groups,); 0 for one that does not occur."""
    found = np.zeros(num_groups, np.intp)
    backwards = np.arange(len(groups))[::-1]
    found[groups[backwards]] = backwards  # where one is written several times, the last time counts
    return found


def _agreeing_groups(
    labels: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], num_labels: int
) -> list[npt.NDArray[np.intp]]:
    """For each label, the groups all of whose rows have it, ascending."""
    lowest, highest = extremes(groups, labels)
    agreeing = np.flatnonzero(lowest == highest)
    by_label = agreeing[np.argsort(lowest[agreeing], kind="stable")]
    starts = np.searchsorted(lowest[by_label], np.arange(1, num_labels))
    return np.split(by_label, starts)


def extremes(
    groups: npt.NDArray[np.int32], labels: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The lowest and the highest label of each group; they differ where rows of the group disagree."""
    num_groups = int(groups.max()) + 1
    lowest = np.full(num_groups, np.iinfo(np.int32).max, np.int32)
    highest = np.full(num_groups, -1, np.int32)
    np.minimum.at(lowest, groups, labels)
    np.maximum.at(highest, groups, labels)
    return lowest, highest


def _shares(counts: npt.NDArray[np.intp], total: int) -> npt.NDArray[np.intp]:
    """``total`` shared in proportion to ``counts``, by largest remainder; ties go to the first."""
    scaled = counts * total
    shares: npt.NDArray[np.intp] = scaled // counts.sum()
    remainders = scaled % counts.sum()
    largest_first = np.argsort(-remainders, kind="stable")
    num_left = total - shares.sum()
    shares[largest_first[:num_left]] += 1
    return shares


def _fill(sizes: Sequence[int], wanted: int, most: int) -> list[int]:
    """Positions whose sizes add up to ``wanted``, each taken that still fits; if none does, the smallest within ``most``."""
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
