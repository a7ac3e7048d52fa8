"""Examples: exact counts, valid kinds, uniform samples, and no dependence on chunks."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare, hypergeom
from sentence_transformers.util import mine_hard_negatives

from raysweep.data.examples import (
    CHUNK,
    KINDS,
    Chunk,
    allocate,
    draw,
    keep_similar_up_to,
    num_candidates,
    num_negatives,
)
from raysweep.data.neighbors import Neighbors


def neighborhood(n, k, seed, num_labels=3):
    """Labels (n,) and neighbor ids (n, 2, k), padded at random."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_labels, n)
    ids = np.full((n, 2, k), -1, dtype=np.int32)
    for row in range(n):
        for slot, side in enumerate((labels == labels[row], labels != labels[row])):
            side = np.flatnonzero(side & (np.arange(n) != row))
            size = min(len(side), rng.integers(0, k + 1))
            ids[row, slot, :size] = rng.choice(side, size, replace=False)
    return labels, ids


def candidates(kind, ids):
    """Return every candidate of every anchor: tuples of ids, and for pairs also the slot."""
    own, other = ([[i for i in row if i >= 0] for row in ids[:, slot].tolist()] for slot in (0, 1))
    rows = range(len(ids))
    if kind == "triplet":
        return [(row, p, n) for row in rows for p, n in itertools.product(own[row], other[row])]
    pairs = [(row, p, 1) for row in rows for p in own[row]]
    if kind == "positive_pair":
        return [pair[:2] for pair in pairs]
    return pairs + [(row, n, 0) for row in rows for n in other[row]]


def sample(kind, ids, target, seed, order=None, **options):
    """Return the examples of all chunks, drawn in any order."""
    quotas = allocate(num_candidates(kind, ids), target, seed)
    chunks = range(0, len(ids), CHUNK)
    drawn = {}
    for start in order or chunks:
        part = slice(start, start + CHUNK)
        anchors = np.arange(len(ids))[part]
        drawn[start] = draw(
            kind, Chunk(start // CHUNK, anchors, ids[part], quotas[part]), seed, **options
        )
    examples = np.concatenate([drawn[start][0] for start in chunks])
    targets = [drawn[start][1] for start in chunks]
    return examples, None if targets[0] is None else np.concatenate(targets)


def as_candidates(examples, targets):
    rows = map(tuple, examples.tolist())
    return (
        list(rows)
        if targets is None
        else [(*row, int(t)) for row, t in zip(rows, targets, strict=True)]
    )


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 99),
    st.integers(0, 300),
)
def test_exact_count_of_distinct_candidates(kind, n, k, seed, target):
    labels, ids = neighborhood(n, k, seed)
    possible = candidates(kind, ids)
    counts = num_candidates(kind, ids)
    assert counts.dtype == np.int64 and counts.sum() == len(possible)
    for row in range(n):
        assert counts[row].sum() == sum(candidate[0] == row for candidate in possible)

    quotas = allocate(counts, target, seed)
    assert quotas.shape == counts.shape and (quotas >= 0).all() and (quotas <= counts).all()
    examples, targets = sample(kind, ids, target, seed)
    assert examples.dtype == np.int32 and examples.shape[1] == (3 if kind == "triplet" else 2)
    drawn = as_candidates(examples, targets)
    assert len(drawn) == len(set(drawn)) == min(target, len(possible))
    assert set(drawn) <= set(possible)
    anchors, others = examples[:, 0], examples[:, 1]
    assert (examples[:, :1] != examples[:, 1:]).all()
    if kind in ("triplet", "positive_pair"):
        assert targets is None and (labels[anchors] == labels[others]).all()
    else:
        assert (
            targets.dtype == np.float32 and ((labels[anchors] == labels[others]) == targets).all()
        )
    if kind == "triplet":
        assert (labels[anchors] != labels[examples[:, 2]]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_large_target_gives_every_candidate_once(kind):
    _, ids = neighborhood(200, 7, 1)
    assert sorted(as_candidates(*sample(kind, ids, 10**8, 0))) == sorted(candidates(kind, ids))


@pytest.mark.parametrize("kind", KINDS)
def test_no_candidates(kind):
    examples, targets = sample(kind, np.full((5, 2, 3), -1, dtype=np.int32), 10, 0)
    assert examples.shape == (0, 3 if kind == "triplet" else 2)
    assert targets is None or targets.shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_examples_do_not_depend_on_the_order_of_chunks(kind):
    _, ids = neighborhood(2 * CHUNK + 100, 4, 2)
    first, targets = sample(kind, ids, 3000, 5)
    again, targets_again = sample(kind, ids, 3000, 5, order=[2 * CHUNK, 0, CHUNK])
    np.testing.assert_array_equal(first, again)
    assert targets is None or (targets == targets_again).all()
    other, _ = sample(kind, ids, 3000, 6)
    assert {*map(tuple, first.tolist())} != {*map(tuple, other.tolist())}


def test_chunks_and_kinds_have_separate_random_streams():
    ids = np.arange(1, 2 * 1000 + 1, dtype=np.int32).reshape(1, 2, 1000)
    quotas = np.array([[50, 50]])
    chunks = [Chunk(number, np.array([0]), ids, quotas) for number in (0, 1)]
    drawn = [draw(kind, chunk, 7)[0] for kind in KINDS[1::2] for chunk in chunks]
    assert len({drawn_ids.tobytes() for drawn_ids in drawn}) == 4


@pytest.mark.parametrize("kind", KINDS)
# quotas below and above half of an anchor's candidates
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_uniform_over_candidates(kind, share):
    ids = np.full((4, 2, 5), -1, dtype=np.int32)
    for row, (own, other) in enumerate([(5, 4), (1, 1), (3, 3), (0, 2)]):
        ids[row, 0, :own], ids[row, 1, :other] = range(10, 10 + own), range(20, 20 + other)
    possible = candidates(kind, ids)
    target = round(share * len(possible))
    repeats = 800
    drawn = Counter(
        c for seed in range(repeats) for c in as_candidates(*sample(kind, ids, target, seed))
    )
    sides = (
        [possible]
        if kind in ("triplet", "positive_pair")
        else [[c for c in possible if c[2] == s] for s in (1, 0)]
    )
    for side in sides:  # of labeled pairs, each class is uniform within its half
        seen = np.array([drawn[c] for c in side])
        fraction = seen.sum() / repeats / len(side)
        # without replacement, counts vary less than chi-square has it by 1 - fraction
        if fraction < 1:
            assert chi2.sf(chisquare(seen).statistic / (1 - fraction), len(side) - 1) > 1e-3
    if len(sides) == 1:
        first = sum(c[0] == 0 for c in possible)
        quotas = [allocate(num_candidates(kind, ids), target, seed)[0] for seed in range(repeats)]
        exact = hypergeom(len(possible), first, target)
        assert np.mean(quotas) == pytest.approx(
            exact.mean(), abs=4 * exact.std() / np.sqrt(repeats)
        )
        assert np.var(quotas) == pytest.approx(exact.var(), rel=0.2)


@pytest.mark.parametrize(
    ("own", "other", "target", "expected"),
    [
        (100, 100, 40, (20, 20)),
        (100, 100, 41, (21, 20)),
        (100, 3, 40, (37, 3)),
        (5, 100, 40, (5, 35)),
        (5, 3, 40, (5, 3)),
    ],
)
def test_pairs_are_balanced_if_there_are_enough_candidates(own, other, target, expected):
    counts = np.array([[own - 2, 1], [2, other - 1]])
    assert tuple(allocate(counts, target, 0).sum(axis=0)) == expected


def test_more_candidates_than_numpy_can_draw_from():
    counts = np.full(40_000, 512 * 512)  # 1e10
    quotas = allocate(counts, 250_000, 0)
    assert quotas.sum() == 250_000
    exact = hypergeom(int(counts.sum()), int(counts[:100].sum()), 250_000)
    groups = quotas.reshape(-1, 100).sum(axis=1)
    assert groups.var() == pytest.approx(exact.var(), rel=0.3)
    assert chisquare(groups).pvalue > 1e-3


def test_targets_of_scored_pairs():
    labels, ids = neighborhood(50, 4, 3)
    examples, targets = sample("scored_pair", ids, 60, 0, cosines=(0.9, -0.25))
    same = labels[examples[:, 0]] == labels[examples[:, 1]]
    np.testing.assert_array_equal(targets, np.where(same, np.float32(0.9), np.float32(-0.25)))


def test_anchors_keep_their_ids():
    _, ids = neighborhood(20, 4, 4)
    quotas = num_candidates("triplet", ids)
    examples, _ = draw("triplet", Chunk(3, np.arange(1000, 1020), ids, quotas), 0)
    assert set(examples[:, 0]) == {1000 + row for row in np.flatnonzero(quotas)}


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 99), st.floats(-1, 1), st.floats(0, 1))
def test_limits_leave_out_near_negatives(n, k, seed, maximum, margin):
    """Every triplet within the limits is drawn, and no others: by brute force, and by the library's rule."""
    _, ids = neighborhood(n, k, seed)
    cosines = np.random.default_rng(seed).uniform(-1, 1, ids.shape).astype(np.float32)
    cosines = np.where(ids >= 0, -np.sort(-cosines, axis=2), np.nan)
    cosine_of = {
        (row, slot, ids[row, slot, place]): cosines[row, slot, place]
        for row, slot, place in np.argwhere(ids >= 0).tolist()
    }

    def is_within(anchor, positive, negative):
        near, far = cosine_of[anchor, 0, positive], cosine_of[anchor, 1, negative]
        return far <= maximum and far <= near - np.float32(margin) * abs(near)

    expected = {triplet for triplet in candidates("triplet", ids) if is_within(*triplet)}
    kept_ids, kept_cosines = keep_similar_up_to(maximum, ids, cosines)
    negatives = num_negatives(kept_ids, kept_cosines, np.float32(margin))
    quotas = num_candidates("triplet", kept_ids, negatives)
    examples, _ = draw("triplet", Chunk(0, np.arange(n), kept_ids, quotas, negatives), seed)
    assert sorted(map(tuple, examples.tolist())) == sorted(expected)
    pairs = {
        (row, negative)
        for row, slot, negative in cosine_of
        if slot and cosine_of[row, 1, negative] <= maximum
    }
    examples, targets = draw(
        "labeled_pair",
        Chunk(0, np.arange(n), kept_ids, num_candidates("labeled_pair", kept_ids)),
        seed,
    )
    assert {
        tuple(pair) for pair, target in zip(examples.tolist(), targets, strict=True) if not target
    } == pairs


class RandomModel:
    """What ``mine_hard_negatives`` uses of a model; texts are the numbers of the vectors."""

    device = "cpu"

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_query(self, texts, **options):
        return self.vectors[[int(text) for text in texts]]

    encode_document = encode_query

    def similarity(self, queries, documents):
        return torch.as_tensor(queries) @ torch.as_tensor(documents).T

    def similarity_pairwise(self, queries, documents):
        return (torch.as_tensor(queries) * torch.as_tensor(documents)).sum(1)


@pytest.mark.parametrize(
    ("maximum", "margin"), [(0.5, None), (None, 0.1), (0.6, 0.05), (-0.1, 0.6)]
)
def test_limits_equal_the_library(maximum, margin):
    """The triplets of every anchor and positive are those that sentence-transformers mines from the other class."""
    datasets = pytest.importorskip("datasets")
    num_sentences = 12
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(num_sentences, 3))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    labels = np.arange(num_sentences) % 2
    all_cosines = vectors @ vectors.T
    neighbors = Neighbors.empty(num_sentences, num_sentences)
    for row in range(num_sentences):
        for slot, is_in_slot in enumerate((labels == labels[row], labels != labels[row])):
            near = np.flatnonzero(is_in_slot & (np.arange(num_sentences) != row))
            near = near[np.argsort(-all_cosines[row, near])]
            neighbors.put(row, slot, near, all_cosines[row, near])
    ids, cosines = neighbors.ids, neighbors.cosines
    if maximum is not None:
        ids, cosines = keep_similar_up_to(maximum, ids, cosines)
    negatives = num_negatives(ids, cosines, margin)
    quotas = num_candidates("triplet", ids, negatives)
    examples, _ = draw("triplet", Chunk(0, np.arange(num_sentences), ids, quotas, negatives), 0)
    expected = set()
    for anchor, positive in itertools.permutations(range(num_sentences), 2):
        others = np.flatnonzero(labels != labels[anchor])
        if labels[anchor] != labels[positive]:
            continue
        mined = mine_hard_negatives(
            datasets.Dataset.from_dict({"anchor": [str(anchor)], "positive": [str(positive)]}),
            RandomModel(vectors),
            corpus=[str(other) for other in others],
            max_score=maximum,
            relative_margin=margin,
            num_negatives=len(others),
            verbose=False,
        )
        expected |= {(anchor, positive, int(negative)) for negative in mined["negative"]}
    assert len(expected) > 20
    assert sorted(map(tuple, examples.tolist())) == sorted(expected)


def test_without_limits_the_examples_are_the_same():
    _, ids = neighborhood(200, 5, 1)
    quotas = allocate(num_candidates("triplet", ids), 300, 7)
    free = draw("triplet", Chunk(0, np.arange(200), ids, quotas), 7)[0]
    limited = draw("triplet", Chunk(0, np.arange(200), ids, quotas, num_negatives(ids)), 7)[0]
    np.testing.assert_array_equal(free, limited)
