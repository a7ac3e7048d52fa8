"""Random encoders of realistic shapes, for measurements on a GPU."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from benchmarks.chip_share import SHAPES, random_encoder, shape_config
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.structure import Structure

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_QWEN3 = {
    "vocab_size": 30522,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "head_dim": 8,
    "intermediate_size": 64,
}
_GEMMA3 = {**_QWEN3, "num_attention_heads": 4, "num_key_value_heads": 2}
_GROUPED = {**_SIZES, "vocab_size": 30522, "num_key_value_heads": 2}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
SMALL = {
    "distilbert": _DISTILBERT,
    "rembert-8-layers": {**_SIZES, "vocab_size": 30522, "input_embedding_size": 16},
    "t5-base": _T5,
    "gemma3-8-layers": _GEMMA3,
    "llama-2-layers": _GROUPED,
    "mistral-1-layer": _GROUPED,
    "qwen3-6-layers": _QWEN3,
    "qwen3-0.6b": _QWEN3,
    "qwen3-4b": _QWEN3,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_build_in_a_small_size(shape: str, tmp_path: Path) -> None:
    model = encoder.load(
        EncoderConfig(name=random_encoder(shape, tmp_path / shape, **SMALL.get(shape, _SIZES)))
    )
    # ALBERT shares its blocks
    assert Structure.of(model).num_blocks == (0 if shape == "albert-base" else 2)
    assert model.encode(["a warm room"]).shape == (1, 32)


@pytest.mark.parametrize(
    ("shape", "size"), [("qwen3-0.6b", 595_776_512), ("qwen3-4b", 4_021_774_336)]
)
def test_sizes_of_qwen3_shapes(shape: str, size: int) -> None:
    """The numbers of parameters are those of the checkpoints of Qwen3-Embedding-0.6B and 4B."""
    with torch.device("meta"):
        model = AutoModel.from_config(shape_config(shape))
    assert sum(parameter.numel() for parameter in model.parameters()) == size
