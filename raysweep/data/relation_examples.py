"""Training examples from retrieval data or pair files: an exact number, sampled uniformly without replacement."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysweep.config.loss_spec import ExampleKind
from raysweep.data import examples
from raysweep.data.relations import GroupedPairs, Integers

Combinations = Literal["all", "first"]
"""The examples of a group: from all positives and negatives, or only from its first positive and first negative."""

Examples = tuple[NDArray[np.int32], NDArray[np.float32] | None]


@dataclass(frozen=True)
class RelationExamples:
    """The examples that can be formed from the positives and negatives of each group.

    A triplet is the ``first`` sentence of a positive (the query), its ``second``, and the ``second`` of a negative of
    the same group. Groups that lack either have no triplets. A pair is a positive or a negative.
    """

    pairs: GroupedPairs
    combinations: Combinations = "all"

    @cached_property
    def positives(self) -> "_Rows":
        return _Rows.of(self.pairs, self.pairs.is_positive)

    @cached_property
    def negatives(self) -> "_Rows":
        return _Rows.of(self.pairs, ~self.pairs.is_positive)

    def num_candidates(self, kind: ExampleKind) -> Integers:
        """Return how many examples each group can yield: (groups,), or (groups, 2) for labeled and scored pairs."""
        num_positives, num_negatives = self.positives.sizes, self.negatives.sizes
        if self.combinations == "first":
            num_positives, num_negatives = (
                np.minimum(sizes, 1) for sizes in (num_positives, num_negatives)
            )
        if kind == "triplet":
            return num_positives * num_negatives
        if kind == "positive_pair":
            return num_positives
        return np.stack([num_positives, num_negatives], axis=1)

    def draw(
        self, kind: ExampleKind, target: int, seed: int, cosines: tuple[float, float] = (1.0, 0.0)
    ) -> Examples:
        """Return min(target, candidates) distinct examples in the order of their groups.

        The result is sentence ids (examples, 3) or (examples, 2), and targets (examples,) or None. Every candidate has
        the same probability. Half of labeled and scored pairs are positives, if there are enough of both.

        Args:
            kind: The kind of examples.
            target: The number of examples, below 1e9.
            seed: Seed of the sample; it also depends on the order of the groups.
            cosines: The targets of scored pairs, of positives and of negatives.
        """
        counts = self.num_candidates(kind)
        quotas = examples.allocate(counts, target, seed)
        stream = (examples.KINDS.index(kind),)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream))
        if kind == "triplet":
            groups, numbers = examples.pick_distinct(counts, quotas, rng)
            positive_numbers, negative_numbers = np.divmod(numbers, self.negatives.sizes[groups])
            positive_rows = self.positives.at(groups, positive_numbers)
            negative_rows = self.negatives.at(groups, negative_numbers)
            columns = [
                self.pairs.first[positive_rows],
                self.pairs.second[positive_rows],
                self.pairs.second[negative_rows],
            ]
            return np.stack(columns, axis=1).astype(np.int32), None
        if kind == "positive_pair":
            rows = self.positives.draw(counts, quotas, rng)
            return self._ids(rows), None
        positives = self.positives.draw(counts[:, 0], quotas[:, 0], rng)
        negatives = self.negatives.draw(counts[:, 1], quotas[:, 1], rng)
        rows = np.concatenate([positives, negatives])
        values = np.array(cosines if kind == "scored_pair" else (1.0, 0.0), np.float32)
        targets = np.repeat(values, [len(positives), len(negatives)])
        return self._ids(rows), targets

    def _ids(self, rows: Integers) -> NDArray[np.int32]:
        return np.stack([self.pairs.first[rows], self.pairs.second[rows]], axis=1).astype(np.int32)


@dataclass(frozen=True)
class _Rows:
    """The positives or the negatives of all groups: ``rows`` sorted by group, and where each group's rows begin."""

    rows: Integers
    starts: Integers
    sizes: Integers

    @classmethod
    def of(cls, pairs: GroupedPairs, mask: NDArray[np.bool_]) -> "_Rows":
        rows = np.flatnonzero(mask)
        groups = pairs.group[rows]
        order = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups, minlength=pairs.num_groups)
        return cls(rows[order], np.cumsum(sizes) - sizes, sizes)

    def at(self, groups: Integers, positions: Integers) -> Integers:
        """Return the rows at these positions within their groups."""
        found: Integers = self.rows[self.starts[groups] + positions]
        return found

    def draw(self, counts: Integers, quotas: Integers, rng: np.random.Generator) -> Integers:
        """Return ``quotas`` distinct rows from the first ``counts`` of each group."""
        return self.at(*examples.pick_distinct(counts, quotas, rng))
