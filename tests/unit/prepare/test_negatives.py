"""Negatives by rank, or at random, against ranks of exact cosines."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from support.sweep_files import read

WORDS = ("the", "wheel", "river", "stone", "market", "winter", "sings", "turns", "slowly", "green")
ROWS = [
    (f"{first} {second} over {first}", number % 3)
    for number, (first, second) in enumerate(itertools.islice(itertools.permutations(WORDS, 2), 24))
]
SWEEP = """\
data: {train: train.csv}
model: demo
examples: {k: 5, target: 100000}
evaluation: {k: 2}
space:
  loss: {choices: {triplet: {margin: 0.1}, contrastive: {}, gist: {}}}
  learning_rate: 1e-5
  examples_per_rung: 2048
"""


def prepare(folder: Path, encoder: str, **overrides: str) -> Prepared:
    (folder / "train.csv").write_text(
        "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)
    )
    source = str(folder / "train.csv")
    values = {
        "data__train": source,
        "data__dev": source,
        "model": encoder,
        "storage__runs": str(folder),
        **overrides,
    }
    return prepare_here(*read(folder, SWEEP, **values))


def ranked(prepared: Prepared, same_class: bool) -> list[list[int]]:
    """Return the training sentences of each anchor's class, or of the others, nearest first."""
    train = prepared.sentences.ids("train")
    labels, vectors = (
        prepared.sentences.labels[train],
        np.asarray(prepared.reference_embeddings.document[train]),
    )
    cosines = vectors.astype(np.float64) @ vectors.T
    others = np.arange(len(train))
    return [
        sorted(
            others[(labels == labels[row]) == same_class & (others != row)],
            key=lambda other: -cosines[row, other],
        )
        for row in range(len(train))
    ]


def triplets(prepared: Prepared) -> set[tuple[int, ...]]:
    return set(map(tuple, prepared.examples("triplet")[0].tolist()))


def test_ranks_of_negatives(tmp_path: Path, tiny_encoder: str) -> None:
    prepared = prepare(tmp_path, tiny_encoder, examples__negative_ranks="[2, 3]")
    own, other = ranked(prepared, True), ranked(prepared, False)
    expected = {
        (anchor, positive, negative)
        for anchor in range(len(own))
        for positive in own[anchor][:5]
        for negative in other[anchor][1:3]
    }
    assert triplets(prepared) == expected
    ids, targets = prepared.examples("labeled_pair")
    negatives = {tuple(pair) for pair in ids[targets == 0].tolist()}
    assert negatives == {
        (anchor, negative) for anchor in range(len(own)) for negative in other[anchor][1:3]
    }


def test_random_negatives_keep_the_nearest_positives(tmp_path: Path, tiny_encoder: str) -> None:
    prepared = prepare(tmp_path, tiny_encoder, examples__negatives="random")
    own, other = ranked(prepared, True), ranked(prepared, False)
    positives: dict[int, set[int]] = {}
    negatives: dict[int, set[int]] = {}
    for anchor, positive, negative in triplets(prepared):
        positives.setdefault(anchor, set()).add(positive)
        negatives.setdefault(anchor, set()).add(negative)
    for anchor in range(len(own)):
        assert positives[anchor] == set(own[anchor][:5])
        assert len(negatives[anchor]) == 5 and negatives[anchor] <= set(other[anchor])
    ranks = [
        other[anchor].index(negative) for anchor, found in negatives.items() for negative in found
    ]
    assert 5 < np.mean(ranks) < 10  # of 0 to 15


def test_positive_pairs_do_not_depend_on_negatives(tmp_path: Path, tiny_encoder: str) -> None:
    values = ({}, {"examples__negatives": "random"}, {"examples__negative_ranks": "[2, 3]"})
    prepared = [prepare(tmp_path, tiny_encoder, **overrides) for overrides in values]
    assert len({of_negatives.examples_artifacts["positive_pair"] for of_negatives in prepared}) == 1
    assert len({of_negatives.examples_artifacts["triplet"] for of_negatives in prepared}) == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"negative_ranks": "[0, 2]"}, r"is \[0, 2\]; allowed"),
        ({"negative_ranks": "[3, 2]"}, r"is \[3, 2\]; allowed"),
        ({"negative_ranks": "[1, 6]"}, r"ranks up to k \(5\)"),
        (
            {"negative_ranks": "[1, 2]", "neighbors": "pooled"},
            "allowed with neighbors: pooled: null",
        ),
        (
            {"negative_ranks": "[1, 2]", "negatives": "random"},
            "allowed with negatives: random: null",
        ),
        ({"negatives": "random", "neighbors": "all"}, "allowed with neighbors: all: neighbors"),
        ({"negatives": "random", "max_similarity": "0.5"}, "allowed with negatives: random: null"),
    ],
)
def test_settings_that_contradict_each_other(
    tmp_path: Path, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, SWEEP, **{f"examples__{key}": value for key, value in overrides.items()})
