"""Examples from all ordered pairs of same-class sentences, for small datasets with many classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysweep.config.loss_spec import ExampleKind
from raysweep.data.dataset import Sentences
from raysweep.data.equal_rows import rows_by_value
from raysweep.data.random_neighbors import sample_anchors

MAX_PAIRS = 1_000_000  # maximum number of ordered pairs held in memory

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class AllPairs:
    """Sentence ids and labels (n,), sorted by label, and all ordered pairs of ids from the same class (m, 2).

    Each sentence is also paired with itself.
    """

    ids: Ids
    labels: NDArray[np.integer]
    pairs: Ids

    @classmethod
    def of(cls, sentences: Sentences, per_class: int | None, seed: int) -> "AllPairs":
        """Pair all training sentences, or at most ``per_class`` random ones from each class."""
        ids = sentences.ids("train").astype(np.int64)
        if per_class is not None:
            is_anchor = sample_anchors(np.asarray(sentences.labels[ids]), per_class, seed)
            ids = ids[is_anchor]
        labels = np.asarray(sentences.labels[ids])
        classes = rows_by_value(labels)
        by_label = np.concatenate(classes)
        pairs = []
        for rows in classes:
            members = ids[rows]
            first = np.repeat(members, len(members))
            second = np.tile(members, len(members))
            pairs.append(np.stack([first, second], axis=1))
        return cls(ids[by_label], labels[by_label], np.concatenate(pairs))

    def positives(self, first_joined: int | None) -> Ids:
        """Return the positive pairs, (m, 2), or (3 m, 2) if ``first_joined`` is given.

        ``first_joined`` + i is the id of the sentence that joins the two texts of pair i. Each joined sentence is also
        paired with both of its parts.
        """
        if first_joined is None:
            return self.pairs
        joined = first_joined + np.arange(len(self.pairs))
        first, second = self.pairs.T
        with_second = np.stack([joined, second], axis=1)
        with_first = np.stack([joined, first], axis=1)
        return np.concatenate([self.pairs, with_second, with_first])

    def draw_negatives(
        self, positives: Ids, labels: NDArray[np.integer], rng: np.random.Generator
    ) -> Ids:
        """Return the id of a random sentence from another class for each positive pair, (m,).

        Pairs with the same first sentence get different negatives, which repeat if there are too few. ``labels`` is
        indexed by sentence id. At least two classes are required.
        """
        classes = np.unique(self.labels).tolist()
        others = {label: self.ids[self.labels != label] for label in classes}
        anchors = positives[:, 0]
        negatives = np.empty(len(positives), np.int64)
        for rows in rows_by_value(anchors):
            anchor = anchors[rows[0]]
            label = int(labels[anchor])
            shuffled = rng.permutation(others[label])
            negatives[rows] = np.resize(shuffled, len(rows))
        return negatives


def draw(  # noqa: PLR0913 (the parameters of raysweep.data.examples.draw, plus first_joined)
    kind: ExampleKind,
    sentences: AllPairs,
    labels: NDArray[np.integer],
    target: int,
    seed: int,
    *,
    first_joined: int | None = None,
    cosines: tuple[float, float] = (1.0, 0.0),
) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
    """Return at most ``target`` examples (n, columns) and their targets (n,), or None for kinds without targets.

    Half of the labeled and scored pairs are negative. A negative pair is the first sentence of a positive pair and a
    random sentence from another class. A triplet is a positive pair plus a random sentence from another class.
    """
    rng = np.random.default_rng(seed)
    positives = sentences.positives(first_joined)
    has_negatives = kind in ("labeled_pair", "scored_pair")
    num_positives = target - target // 2 if has_negatives else target
    if num_positives < len(positives):
        chosen = rng.choice(len(positives), num_positives, replace=False)
        positives = positives[np.sort(chosen)]
    if kind == "positive_pair":
        return positives.astype(np.int32), None
    negatives = sentences.draw_negatives(positives, labels, rng)
    if kind == "triplet":
        return np.column_stack([positives, negatives]).astype(np.int32), None
    num_negatives = min(len(negatives), target // 2)
    negative_pairs = np.column_stack([positives[:, 0], negatives])
    pairs = np.concatenate([positives, negative_pairs[:num_negatives]])
    same_and_other = np.array(cosines if kind == "scored_pair" else (1.0, 0.0), np.float32)
    targets = np.repeat(same_and_other, [len(positives), num_negatives])
    return pairs.astype(np.int32), targets
