"""Packed passes equal passes of single sentences through the model's own modules."""

import contextlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder, packed
from raysweep.encoders.buckets import CELLS_PER_PACK, packs, training_buckets
from raysweep.encoders.families import FAMILIES
from raysweep.encoders.frozen_prefix import Prefix
from raysweep.encoders.structure import Structure
from raysweep.encoders.tokens import Tokens
from support.families import MODEL_TYPES, write_random_encoder

PACKABLE = [
    model_type
    for family in FAMILIES.values()
    if family.positions
    for model_type in family.model_types
]
OTHERS = [model_type for model_type in MODEL_TYPES if model_type not in PACKABLE]
# padded, of one sentence, much padded
BUCKETS = [
    np.array([6, 1]),
    np.array([5]),
    np.array([2, 3, 0, 7, 4]),
]
LENGTHS = (3, 25, 7, 7, 1, 12, 40, 2)


def load_random(model_type: str, folder: Any, demo_package: ModuleType) -> Any:
    return encoder.load(
        EncoderConfig(name=write_random_encoder(model_type, folder, demo_package.get_model_path()))
    )


@pytest.fixture(scope="module", params=PACKABLE)
def model(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    demo_package: ModuleType,
) -> Any:
    return load_random(request.param, tmp_path_factory.mktemp(request.param), demo_package)


@pytest.fixture
def tokens() -> Tokens:
    rng = np.random.default_rng(0)
    return Tokens.of([rng.integers(1000, 30000, length).astype(np.int32) for length in LENGTHS])


def pooled_otherwise(model: Any, pooling: str) -> Any:
    """A model of the same transformer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    behind = [Pooling(32, pooling_mode=pooling), Dense(32, 16)]
    return SentenceTransformer(modules=[model[0], *behind], device="cpu")


def gradients(model: Any, embeddings: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    weights = torch.arange(embeddings.numel(), dtype=torch.float32).view_as(embeddings).cos()
    (embeddings * weights).sum().backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_packed_embeddings_and_gradients_equal_those_of_single_sentences(
    model: Any, tokens: Tokens, pooling: str
) -> None:
    pooled = pooled_otherwise(model, pooling)
    pooled.eval()
    assert packed.is_packable(pooled)
    embeddings = packed.forward(pooled, tokens, BUCKETS, contextlib.nullcontext())
    packed_gradients = gradients(pooled, embeddings)
    ids = np.concatenate(BUCKETS)
    single = torch.cat([encoder.forward(pooled, tokens, np.array([sentence])) for sentence in ids])
    assert (embeddings - single).abs().max() < 1e-5
    single_gradients = gradients(pooled, single)
    assert packed_gradients.keys() == single_gradients.keys()
    for name, gradient in single_gradients.items():
        assert (
            packed_gradients[name] - gradient
        ).abs().max() <= 1e-4 * gradient.abs().max() + 1e-6, name
    assert model[0].auto_model.config._attn_implementation == "sdpa"


def test_packed_pass_starts_from_cached_states(model: Any, tokens: Tokens) -> None:
    model.eval()
    names = Structure.of(model).prefix_names([name for name, _ in model.named_modules()], "emb+B0")
    assert names is not None
    prefix = Prefix(model, names, tokens, 1 << 20, torch.float32)
    table = encoder.word_table(model)
    assert table is not None
    with torch.no_grad():
        expected = packed.forward(model, tokens, BUCKETS, contextlib.nullcontext())
        first = packed.forward(model, tokens, BUCKETS, prefix.replayed(*BUCKETS))
        assert (first - expected).abs().max() < 1e-5
        table.weight.neg_()  # cached states do not change
        replayed = packed.forward(model, tokens, BUCKETS, prefix.replayed(*BUCKETS))
        table.weight.neg_()
    assert (replayed - expected).abs().max() < 1e-5


def test_packed_attention_applies_dropout(model: Any, tokens: Tokens) -> None:
    rates = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout):
            rates[name], module.p = module.p, 0.5 if name.endswith("self.dropout") else 0.0
    model.train()
    try:
        with torch.no_grad():
            first, second = (
                packed.forward(model, tokens, BUCKETS, contextlib.nullcontext()) for _ in range(2)
            )
        assert (first - second).abs().max() > 1e-3
    finally:
        for name, module in model.named_modules():
            if name in rates:
                module.p = rates[name]
        model.eval()


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures_are_not_packed(
    name: str, tmp_path: Any, demo_package: ModuleType
) -> None:
    assert not packed.is_packable(load_random(name, tmp_path, demo_package))


NOT_PACKABLE = [
    ("_attn_implementation", "eager"),
    ("is_decoder", True),
    ("position_embedding_type", "relative_key"),
    ("model_type", "electra"),
]


@pytest.mark.parametrize(("name", "value"), NOT_PACKABLE)
def test_other_configurations_are_not_packed(
    model: Any, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert packed.is_packable(model)
    monkeypatch.setattr(model[0].auto_model.config, name, value, raising=False)
    assert not packed.is_packable(model)


def test_gradient_checkpointing_is_not_packed(model: Any) -> None:
    """Whose layers would run after the packed pass has ended."""
    model[0].auto_model.gradient_checkpointing_enable()
    try:
        assert not packed.is_packable(model)
    finally:
        model[0].auto_model.gradient_checkpointing_disable()
    assert packed.is_packable(model)


def test_other_modules_after_the_transformer_are_not_packed(model: Any) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    assert not packed.is_packable(
        SentenceTransformer(modules=[*model, LayerNorm(32)], device="cpu")
    )


@pytest.mark.parametrize("output", [["hidden_states", -2], "last_hidden_state"])
def test_hidden_states_by_name_of_the_module_output(
    output: Any, tokens: Tokens, model: Any
) -> None:
    transformer = model[0]
    usual = transformer.modality_config
    transformer.modality_config = {"text": {"method": "forward", "method_output_name": output}}
    try:
        embeddings = packed.forward(model, tokens, BUCKETS, contextlib.nullcontext())
        expected = torch.cat([encoder.forward(model, tokens, ids) for ids in BUCKETS])
    finally:
        transformer.modality_config = usual
    assert (embeddings - expected).abs().max() < 1e-5


def test_encoder_without_token_embeddings_is_not_packed(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model[0], "module_output_name", "sentence_embedding")
    assert not packed.is_packable(model)


def test_packs_hold_every_bucket_once_within_their_limit() -> None:
    lengths = np.random.default_rng(3).integers(1, 60, 400)
    all_buckets = training_buckets(lengths, "cpu", 64, packed=True)
    all_packs = packs(all_buckets, lengths)
    assert [bucket.tolist() for pack in all_packs for bucket in pack] == [
        bucket.tolist() for bucket in all_buckets
    ]
    cells = [sum(len(bucket) * int(lengths[bucket].max()) for bucket in pack) for pack in all_packs]
    assert max(cells) <= CELLS_PER_PACK
    assert len(all_packs) < len(all_buckets) / 2
