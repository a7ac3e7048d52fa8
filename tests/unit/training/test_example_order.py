"""The order of examples, with and without duplicate sentences in a batch."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raysweep.training.example_order import ExampleOrder

datasets = pytest.importorskip("datasets")


def order_of(ids: np.ndarray, seed: int = 0, *, no_duplicates: bool = True) -> ExampleOrder:
    prepared: Any = SimpleNamespace(examples=lambda kind: (ids, np.arange(len(ids))))
    return ExampleOrder(prepared, "positive_pair", seed, no_duplicates=no_duplicates)


def random_pairs(num_examples: int, num_sentences: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(num_sentences, 2, replace=False) for _ in range(num_examples)])


def test_batches_are_those_of_the_librarys_sampler() -> None:
    from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

    ids = random_pairs(600, 150)
    dataset = datasets.Dataset.from_dict({"anchor": ids[:, 0].tolist(), "positive": ids[:, 1].tolist()})
    sampler = NoDuplicatesBatchSampler(
        dataset, batch_size=16, drop_last=True, generator=torch.Generator().manual_seed(7), seed=7
    )
    order = order_of(ids)
    order.remaining = torch.randperm(len(ids), generator=torch.Generator().manual_seed(7)).numpy()
    theirs = list(sampler)
    ours = [order.take(16)[1].tolist() for _ in theirs]  # type: ignore[union-attr]
    assert len(theirs) > 30
    assert [sorted(batch) for batch in ours] == [sorted(batch) for batch in theirs]


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 5))
def test_examples_of_one_anchor_still_make_batches(num_examples: int, batch_size: int, seed: int) -> None:
    """Each example comes equally often, though no two of them fit into one batch."""
    ids = np.stack([np.zeros(num_examples, int), np.arange(1, num_examples + 1)], axis=1)
    order = order_of(ids, seed)
    taken = [order.take(batch_size) for _ in range(10)]
    assert all(len(batch) == batch_size for batch, _ in taken)
    counts = np.bincount(np.concatenate([positions for _, positions in taken]), minlength=num_examples)  # type: ignore[misc]
    assert counts.max() - counts.min() <= 2


def test_every_pass_has_every_example_once() -> None:
    ids = np.arange(24).reshape(12, 2)  # no two share a sentence
    for no_duplicates in (False, True):
        order = order_of(ids, no_duplicates=no_duplicates)
        passes = np.concatenate([order.take(4)[1] for _ in range(9)]).reshape(3, 12)  # type: ignore[misc]
        assert all(sorted(one) == list(range(12)) for one in passes.tolist())
        assert len({tuple(one) for one in passes.tolist()}) == 3


def test_the_option_is_off_by_default() -> None:
    ids = random_pairs(64, 20)
    with_duplicates, _ = order_of(ids, no_duplicates=False).take(32)
    assert len(np.unique(with_duplicates)) < with_duplicates.size
