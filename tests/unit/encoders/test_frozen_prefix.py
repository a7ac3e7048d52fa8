"""Cached hidden states of an encoder's frozen part equal those of transformers' own forward pass."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.families import FAMILIES
from raysweep.encoders.frozen_prefix import Prefix
from raysweep.encoders.structure import Structure
from raysweep.encoders.tokens import Tokens
from raysweep.training.dropout import Dropouts
from support.families import random_transformer, write_random_encoder

CACHED = [
    model_type
    for family in FAMILIES.values()
    if family.caches_prefix and not family.shares_blocks
    for model_type in family.model_types
]
WIDTH = 32
LENGTHS = (3, 25, 7, 7, 1, 12, 40, 2)  # some longer than ModernBERT's local attention


@pytest.fixture(scope="module", params=CACHED)
def model(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    demo_package: ModuleType,
) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    return encoder.load(
        EncoderConfig(
            name=write_random_encoder(request.param, folder, demo_package.get_model_path())
        )
    )


def tokens_of(lengths: tuple[int, ...]) -> Tokens:
    rng = np.random.default_rng(0)
    return Tokens.of([rng.integers(1000, 30000, length).astype(np.int32) for length in lengths])


def prefix_of(model: Any, level: str, tokens: Tokens, max_bytes: int = 1 << 20) -> Prefix:
    names = Structure.of(model).prefix_names([name for name, _ in model.named_modules()], level)
    assert names is not None
    return Prefix(model, names, tokens, max_bytes, torch.float32)


@pytest.mark.parametrize(("level", "num_blocks"), [("emb+B0", 1), ("emb+B0-1", 2)])
def test_cached_states_equal_hidden_states_of_transformers(
    model: Any, level: str, num_blocks: int
) -> None:
    tokens = tokens_of(LENGTHS)
    prefix = prefix_of(model, level, tokens)
    ids = np.array([6, 0, 3, 4, 6])
    cached = prefix.hidden(ids)
    assert cached.shape == (5, 40, WIDTH)
    for row, sentence in enumerate(ids):
        input_ids = torch.from_numpy(tokens.of_ids(np.array([sentence])).astype(np.int64))[None]
        with torch.no_grad():
            output = model[0].auto_model(
                input_ids=input_ids,
                attention_mask=torch.ones_like(input_ids),
                output_hidden_states=True,
            )
        expected = output.hidden_states[num_blocks][0]
        assert (cached[row, : len(expected)] - expected).abs().max() < 1e-5
        assert not cached[row, len(expected) :].any()


@pytest.mark.parametrize("level", ["emb+B0", "emb+B0-1"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_replayed_embeddings_and_gradients_equal_ordinary_ones(
    model: Any, level: str, share: float
) -> None:
    """With memory for all tokens, for half of them and for none; each computed first and then read from the cache."""
    tokens = tokens_of(LENGTHS)
    prefix = prefix_of(model, level, tokens, int(share * sum(LENGTHS) * WIDTH * 4))
    ids = np.array([1, 0, 6, 3])

    frozen = Structure.of(model).frozen_names(level)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)

    def run(with_prefix: Prefix | None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        model.zero_grad()
        embeddings = encoder.forward(model, tokens, ids, with_prefix and with_prefix.replayed(ids))
        (embeddings * torch.arange(WIDTH)).sum().backward()
        return embeddings.detach(), {
            n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
        }

    expected, gradients = run(None)
    for _ in range(2):
        embeddings, replayed_gradients = run(prefix)
        assert (embeddings - expected).abs().max() < 1e-6
        assert gradients.keys() == replayed_gradients.keys()
        for name, gradient in replayed_gradients.items():
            assert (gradient - gradients[name]).abs().max() <= 1e-5 * gradients[
                name
            ].abs().max() + 1e-5
    assert (encoder.forward(model, tokens, ids) - expected).abs().max() < 1e-6, (
        "the model is left as it was"
    )


def test_cached_states_are_not_computed_again(model: Any) -> None:
    tokens, ids = tokens_of(LENGTHS), np.array([1, 0, 6, 3])
    prefix = prefix_of(model, "emb+B0", tokens)
    table = model[0].auto_model.get_input_embeddings()
    with torch.no_grad():
        first = encoder.forward(model, tokens, ids, prefix.replayed(ids))
        table.weight.neg_()  # cached states do not change
        replayed = encoder.forward(model, tokens, ids, prefix.replayed(ids))
        ordinary = encoder.forward(model, tokens, ids)
        table.weight.neg_()
    assert torch.equal(first, replayed)
    assert not torch.equal(first, ordinary)


@pytest.mark.parametrize("level", ["emb+B0", "emb+B0-1"])
def test_cached_states_are_those_of_evaluation_mode(model: Any, level: str) -> None:
    """Only trained layers apply dropout, so that a trial is the same with and without the cache."""
    tokens, ids = tokens_of(LENGTHS), np.array([1, 1, 6])
    prefix = prefix_of(model, level, tokens)
    dropouts = Dropouts(model, "cpu")
    dropouts.set(0.5, Structure.of(model).frozen_modules(dropouts.names, level))
    reached: list[torch.Tensor] = []

    def note(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        reached.append(args[0] if args else kwargs["hidden_states"])

    handle = dict(model.named_modules())[prefix.names.next_block].register_forward_pre_hook(
        note, with_kwargs=True
    )
    model.train()
    embeddings = encoder.forward(model, tokens, ids)
    model.eval()
    handle.remove()
    cached = prefix.hidden(ids)
    inside = np.arange(cached.shape[1]) < tokens.lengths(ids)[:, None]
    assert (reached[0] - cached)[torch.from_numpy(inside)].abs().max() < 1e-5
    assert (embeddings[0] - embeddings[1]).abs().max() > 1e-5, "the rest drops"


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(0, 60_000))
def test_memory_stays_within_the_budget(lengths: list[int], max_bytes: int) -> None:
    """Complete sentences are cached, the shortest first, in fp32 and in bf16."""
    model = bert()
    tokens = tokens_of(tuple(lengths))
    for dtype in (torch.float32, torch.bfloat16):
        prefix = Prefix(model, prefix_of(model, "emb+B0", tokens).names, tokens, max_bytes, dtype)
        assert prefix.capacity * 16 * dtype.itemsize <= max_bytes
        assert prefix.capacity <= sum(lengths)
        assert prefix.capacity == sum(lengths) or max_bytes < sum(lengths) * 16 * dtype.itemsize


@cache
def bert() -> Any:
    """Return a substitute for a sentence encoder; only its module names and width are read."""
    transformer = torch.nn.Module()
    transformer.auto_model = random_transformer("bert", vocab_size=30, hidden_size=16)
    model = torch.nn.Sequential(transformer)
    model.device = torch.device("cpu")
    return model
