"""Random encoders of realistic shapes, for measurements on a GPU."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from benchmarks.chip_share import SHAPES, random_encoder
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.structure import Structure

SMALL = {
    "bert-base": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
    "qwen3-0.6b": {
        "vocab_size": 30522,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "head_dim": 8,
        "intermediate_size": 64,
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_build_in_a_small_size(shape: str, tmp_path: Path) -> None:
    model = encoder.load(EncoderConfig(name=random_encoder(shape, tmp_path / shape, **SMALL[shape])))
    assert Structure.of(model).num_blocks == 2
    assert model.encode(["a warm room"]).shape == (1, 32)


def test_size_of_the_qwen3_shape() -> None:
    """The checkpoint of Qwen3-Embedding-0.6B has 595,776,512 parameters."""
    model_type, sizes = SHAPES["qwen3-0.6b"]
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(model_type, **sizes))
    assert sum(parameter.numel() for parameter in model.parameters()) == 595_776_512
