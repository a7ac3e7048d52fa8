"""Relations between sentences: queries with positive and negative documents, or positive and negative pairs.

:mod:`raysweep.data.relation_sources` describes the kinds of relations and their sources.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Kind = Literal["retrieval", "pairs", "scored_pairs", "labeled"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class GroupedPairs:
    """Positive and negative pairs of sentences in groups.

    Within a group, each positive is compared with each negative. ``first`` (queries) and ``second`` (documents) are
    sentence ids, int64 (pairs,). ``group`` (pairs,) contains numbers below ``num_groups``.
    """

    first: Integers
    second: Integers
    is_positive: NDArray[np.bool_]
    group: Integers
    num_groups: int

    @property
    def table(self) -> Integers:
        """Return all columns as one array (pairs, 4): first, second, is_positive, group."""
        return np.stack([self.first, self.second, self.is_positive, self.group], axis=1)

    @classmethod
    def of_table(cls, table: NDArray[np.integer]) -> "GroupedPairs":
        """Create pairs from a non-empty :attr:`table`."""
        first, second, is_positive, group = np.asarray(table, np.int64).T
        return cls(first, second, is_positive == 1, group, int(group.max()) + 1)

    @property
    def are_measured(self) -> NDArray[np.bool_]:
        """Return a mask (num_groups,) of the groups with both positives and negatives; only these can be scored."""
        num_positives = np.bincount(self.group[self.is_positive], minlength=self.num_groups)
        num_pairs = np.bincount(self.group, minlength=self.num_groups)
        are_measured: NDArray[np.bool_] = (num_positives > 0) & (num_positives < num_pairs)
        return are_measured


@dataclass(frozen=True)
class Relations:
    """Positive and negative pairs of sentences in groups, with the texts of the sentences.

    A group contains the pairs of one query in retrieval data, or the pairs with the same values in the group columns of
    a pair file.

    The arrays are as in :class:`GroupedPairs`. Ids are positions in ``sentences``, which are distinct, and groups are
    positions in ``group_names``. ``num_left_out`` is the number of rows in the source that are neither positive nor
    negative.
    """

    name: str
    kind: Kind
    sentences: list[str]
    first: Integers
    second: Integers
    is_positive: NDArray[np.bool_]
    group: Integers
    group_names: list[str]
    num_left_out: int = 0

    @classmethod
    def of_pairs(
        cls, name: str, kind: Kind, pairs: GroupedPairs, read_texts: Callable[[Integers], list[str]]
    ) -> "Relations":
        """Create relations from pairs with arbitrary sentence ids. Groups are named by number."""
        ids, positions = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
        first, second = np.split(positions, 2)
        group_names = list(map(str, range(pairs.num_groups)))
        return cls(
            name, kind, read_texts(ids), first, second, pairs.is_positive, pairs.group, group_names
        )

    @property
    def num_groups(self) -> int:
        return len(self.group_names)

    @property
    def pairs(self) -> GroupedPairs:
        return GroupedPairs(self.first, self.second, self.is_positive, self.group, self.num_groups)


def join(parts: Sequence[Relations]) -> Relations:
    """Concatenate the groups of all parts. Equal sentences share an id."""
    ids: dict[str, int] = {}
    tables = []
    group_names: list[str] = []
    for part in parts:
        new_ids = np.array(
            [ids.setdefault(sentence, len(ids)) for sentence in part.sentences], np.int64
        )
        table = part.pairs.table
        table[:, :2] = new_ids[table[:, :2]]
        table[:, 3] += len(group_names)
        tables.append(table)
        group_names += part.group_names
    pairs = GroupedPairs.of_table(np.concatenate(tables))
    first = parts[0]
    columns = pairs.first, pairs.second, pairs.is_positive, pairs.group
    num_left_out = sum(part.num_left_out for part in parts)
    return Relations(first.name, first.kind, list(ids), *columns, group_names, num_left_out)


def sample_groups(relations: Relations, max_groups: int | None, seed: int) -> Relations:
    """Return a random sample of at most ``max_groups`` groups (None: all groups) in their original order."""
    if max_groups is None or relations.num_groups <= max_groups:
        return relations
    order = np.random.default_rng(seed).permutation(relations.num_groups)
    groups = np.sort(order[:max_groups])
    table = relations.pairs.table[np.isin(relations.group, groups)]
    table[:, 3] = np.searchsorted(groups, table[:, 3])
    sampled = Relations.of_pairs(
        relations.name,
        relations.kind,
        GroupedPairs.of_table(table),
        lambda ids: [relations.sentences[number] for number in ids.tolist()],
    )
    names = [relations.group_names[number] for number in groups.tolist()]
    return replace(sampled, group_names=names, num_left_out=relations.num_left_out)


@dataclass
class RelationsBuilder:
    """Builder of relations. Sentences and groups are numbered in order of first occurrence."""

    name: str
    kind: Kind
    _ids: dict[str, int] = field(default_factory=dict)
    _groups: dict[Hashable, int] = field(default_factory=dict)
    _group_names: list[str] = field(default_factory=list)
    _rows: list[tuple[int, int, bool, int]] = field(default_factory=list)

    def group(self, key: Hashable, name: str) -> int:
        """Return the number of the group with this key, adding the group if the key is new."""
        if key not in self._groups:
            self._groups[key] = len(self._group_names)
            self._group_names.append(name)
        return self._groups[key]

    def add(self, group: int, first: str, documents: Iterable[str], *, is_positive: bool) -> None:
        """Add a pair to a group for each document, with ``first`` as the first sentence."""
        first_id = self._id(first)
        for document in documents:
            self._rows.append((first_id, self._id(document), is_positive, group))

    def build(self, num_left_out: int = 0) -> Relations:
        """Return relations with all added pairs."""
        table = np.array(self._rows, np.int64).reshape(-1, 4)
        first, second, is_positive, group = table.T
        sentences = list(self._ids)
        return Relations(
            self.name,
            self.kind,
            sentences,
            first,
            second,
            is_positive == 1,
            group,
            self._group_names,
            num_left_out,
        )

    def _id(self, sentence: str) -> int:
        return self._ids.setdefault(sentence, len(self._ids))
