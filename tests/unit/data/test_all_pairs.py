"""Every ordered pair of the same class, and as many of different classes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from raysweep.config.loss_spec import ExampleKind
from raysweep.data.all_pairs import AllPairs, draw


class MadeSentences:
    """Sentences of the given labels, all in train."""

    def __init__(self, labels: list[int]) -> None:
        self.labels = np.array(labels, np.int32)

    def ids(self, split: str) -> np.ndarray:
        return np.arange(len(self.labels))


def drawn(
    labels: list[int], kind: ExampleKind, target: int = 10**6, joined: bool = False
) -> tuple[Any, Any]:
    sentences: Any = MadeSentences(labels)
    pairs = AllPairs.of(sentences, None, 0)
    first_joined = len(labels) if joined else None
    all_labels = np.append(labels, np.array(labels)[pairs.pairs[:, 0]])
    return draw(kind, pairs, all_labels, target, 1, first_joined=first_joined, cosines=(0.9, 0.2))


def test_published_numbers_of_pairs() -> None:
    """26 questions of 40 phrasings, as in arXiv:2408.11868."""
    labels = np.repeat(np.arange(26), 40).tolist()
    rng = np.random.default_rng(0)
    rng.shuffle(labels)
    pairs, _ = drawn(labels, "positive_pair")
    assert len(pairs) == 41_600
    assert len(drawn(labels, "positive_pair", joined=True)[0]) == 124_800
    ids, targets = drawn(labels, "scored_pair", joined=True)
    assert len(ids) == 249_600
    assert Counter(targets.tolist()) == {np.float32(0.9): 124_800, np.float32(0.2): 124_800}


def test_positive_pairs_are_all_ordered_pairs() -> None:
    labels = [2, 0, 1, 0, 2, 2, 0]
    pairs, targets = drawn(labels, "positive_pair")
    expected = {(i, j) for i in range(7) for j in range(7) if labels[i] == labels[j]}
    assert {tuple(pair) for pair in pairs.tolist()} == expected
    assert len(pairs) == len(expected)
    assert targets is None


def test_joined_sentences_are_paired_with_both_of_their_parts() -> None:
    labels = [0, 1, 0, 1, 1]
    plain = drawn(labels, "positive_pair")[0].tolist()
    pairs = drawn(labels, "positive_pair", joined=True)[0].tolist()
    joined = [[5 + number, second] for number, (_, second) in enumerate(plain)]
    joined += [[5 + number, first] for number, (first, _) in enumerate(plain)]
    assert sorted(pairs) == sorted(plain + joined)


@pytest.mark.parametrize("joined", [False, True])
def test_each_negative_has_the_first_sentence_of_its_positive(joined: bool) -> None:
    labels = np.repeat(np.arange(5), 6).tolist()
    ids, targets = drawn(labels, "labeled_pair", joined=joined)
    positives, negatives = ids[targets == 1], ids[targets == 0]
    np.testing.assert_array_equal(positives[:, 0], negatives[:, 0])
    classes = np.append(labels, np.repeat(labels, 6))
    assert (classes[negatives[:, 0]] != classes[negatives[:, 1]]).all()
    assert negatives[:, 1].max() < 30, "joined sentences are only the first of a pair"
    assert len(np.unique(negatives, axis=0)) == len(negatives)


def test_few_other_sentences_are_repeated_equally() -> None:
    labels = [0] * 7 + [1, 2]
    triplets, _ = drawn(labels, "triplet")
    counts = {
        anchor: Counter(triplets[triplets[:, 0] == anchor, 2].tolist()) for anchor in range(9)
    }
    for anchor in range(7):
        assert sorted(counts[anchor].values()) == [3, 4]
        assert set(counts[anchor]) == {7, 8}
    assert (triplets[:, 0] < 7).sum() == 49
    assert counts[7].total() == counts[8].total() == 1


@pytest.mark.parametrize("target", [10, 11])
def test_target_limits_the_examples(target: int) -> None:
    labels = np.repeat(np.arange(4), 5).tolist()
    every_pair = {tuple(pair) for pair in drawn(labels, "positive_pair")[0].tolist()}
    ids, targets = drawn(labels, "scored_pair", target)
    assert len(ids) == target
    assert (targets == np.float32(0.9)).sum() == target - target // 2
    assert {tuple(pair) for pair in ids[targets > 0.5].tolist()} <= every_pair
    assert (
        len(drawn(labels, "triplet", target)[0])
        == len(drawn(labels, "positive_pair", target)[0])
        == target
    )
