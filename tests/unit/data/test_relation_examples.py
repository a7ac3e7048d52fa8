"""Triplets from relations, against explicit combinations."""

import itertools
from collections import Counter

import pytest
from scipy.stats import chisquare

from raysweep.data.relation_examples import RelationExamples
from raysweep.data.relations import RelationsBuilder

QUERIES = [("q", "abc", "de"), ("r", "a", ""), ("s", "", "b"), ("t", "f", "ghij"), ("u", "a", "b")]


def relations():
    """Return queries of unequal size, of which two lack positives or negatives; negatives come first."""
    builder = RelationsBuilder("data", "retrieval")
    for query, _, negatives in QUERIES:
        builder.add(builder.group(query, query), query, negatives, is_positive=False)
    for query, positives, _ in QUERIES:
        builder.add(builder.group(query, query), query, positives, is_positive=True)
    return builder.build()


def drawn(target, seed=0, pairing="all"):
    data = relations()
    triplets, _ = RelationExamples(data.pairs, pairing).draw("triplet", target, seed)
    return [tuple(data.sentences[number] for number in row) for row in triplets]


ALL = [triplet for query, *documents in QUERIES for triplet in itertools.product(query, *documents)]


def test_all_combinations_of_each_query():
    assert sorted(drawn(100)) == sorted(ALL)
    assert len(ALL) == 11


def test_the_first_of_each():
    assert drawn(100, pairing="first") == [("q", "a", "d"), ("t", "f", "g"), ("u", "a", "b")]
    assert len(set(drawn(2, pairing="first"))) == 2


@pytest.mark.parametrize("target", range(12))
def test_the_number_is_exact(target):
    triplets = drawn(target, seed=target)
    assert len(triplets) == len(set(triplets)) == target
    assert set(triplets) <= set(ALL)


def test_the_sample_is_uniform_and_repeatable():
    counts = Counter(itertools.chain.from_iterable(drawn(4, seed) for seed in range(600)))
    assert set(counts) == set(ALL)
    assert chisquare(list(counts.values())).pvalue > 0.001
    assert drawn(5, seed=7) == drawn(5, seed=7)
    assert len({tuple(drawn(5, seed)) for seed in range(20)}) > 10
