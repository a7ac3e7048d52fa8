"""Training examples sampled from retrieval data or pair files, uniformly and without replacement."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysweep.config.loss_spec import ExampleKind
from raysweep.data import examples
from raysweep.data.relations import GroupedPairs, Integers

Combinations = Literal["all", "first"]
"""Whether a group's examples use all of its positives and negatives, or only the first of each."""

Examples = tuple[NDArray[np.int32], NDArray[np.float32] | None]


@dataclass(frozen=True)
class RelationExamples:
    """The examples that can be formed from the positives and negatives of each group.

    A triplet consists of both sentences of a positive pair and the ``second`` sentence of a negative pair in the same
    group.
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
        """Return the number of possible examples per group: (groups,), or (groups, 2) for labeled and scored pairs."""
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
        """Return ``target`` distinct examples, or all candidates if there are fewer.

        Sentence ids are (examples, 3) or (examples, 2), and targets are (examples,) or None. Examples are in group
        order. Labeled and scored pairs are half positives, which come first, and half negatives if there are enough of
        both.

        Args:
            target: The number of examples, below 1e9.
            seed: The random seed. The sample also depends on the order of the groups.
            cosines: The target cosines of positive and negative scored pairs.
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
    """The row numbers of all positives or all negatives, sorted by group, with each group's start and size."""

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
        """Return ``quotas[i]`` distinct rows from the first ``counts[i]`` rows of each group i."""
        return self.at(*examples.pick_distinct(counts, quotas, rng))
