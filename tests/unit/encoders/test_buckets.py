"""Cutting a batch into buckets of like length: nothing lost, and at the least cost of all cuts."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.encoders.buckets import buckets, minimize_cost

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=9).map(np.array)


def cost(cut: list[np.ndarray], lengths: np.ndarray, bucket_cost: int) -> int:
    return sum(len(bucket) * int(lengths[bucket].max()) + bucket_cost for bucket in cut)


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(10, 120), st.integers(0, 20))
def test_minimize_cost_finds_the_best_of_all_cuts(
    lengths: np.ndarray, max_tokens: int, bucket_cost: int
) -> None:
    order = np.argsort(-lengths, kind="stable")
    allowed = (
        cut
        for parts in range(len(lengths))
        for cut in (
            [*np.split(order, places)]
            for places in itertools.combinations(range(1, len(lengths)), parts)
        )
        if all(
            len(bucket) == 1 or len(bucket) * lengths[bucket].max() <= max_tokens for bucket in cut
        )
    )
    cheapest = minimize_cost(lengths, max_tokens, bucket_cost)
    assert np.concatenate(cheapest).tolist() == order.tolist()
    assert all(
        len(bucket) == 1 or len(bucket) * lengths[bucket].max() <= max_tokens for bucket in cheapest
    )
    assert cost(cheapest, lengths, bucket_cost) == min(
        cost(cut, lengths, bucket_cost) for cut in allowed
    )


@given(st.lists(st.integers(1, 300), max_size=200).map(np.array), st.integers(1, 2000))
def test_buckets_hold_each_sentence_once_within_the_limit(
    lengths: np.ndarray, max_tokens: int
) -> None:
    all_buckets = list(buckets(lengths, max_tokens))
    assert sorted(position for bucket in all_buckets for position in bucket) == list(
        range(len(lengths))
    )
    assert all(
        len(bucket) == 1 or len(bucket) * lengths[bucket].max() <= max_tokens
        for bucket in all_buckets
    )


def test_empty_batch_has_no_bucket() -> None:
    assert minimize_cost(np.array([], np.int64), 512, 10) == []
