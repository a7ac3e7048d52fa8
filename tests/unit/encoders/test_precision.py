"""Which arithmetic a trial takes."""

import math

import pytest
import torch

from raysweep.encoders import precision


def test_explicit_precision_is_used() -> None:
    assert [precision.resolve(name, "cpu") for name in ("fp32", "bf16")] == ["fp32", "bf16"]


@pytest.mark.parametrize(
    ("gain", "expected"),
    [(0.0, "fp32"), (0.5, "fp32"), (1.2, "fp32"), (1.3, "bf16"), (6.0, "bf16")],
)
def test_auto_selects_the_faster_precision(
    gain: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "bf16_gain", lambda device: gain)
    assert precision.resolve("auto", "cuda:0") == expected


def test_auto_is_fp32_for_a_model_that_computes_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    monkeypatch.setattr(precision, "bf16_gain", lambda device: 2.0)
    layer = torch.nn.Linear(2, 2)
    pooled = torch.nn.Sequential(layer, HierarchicalTokenPooling(2))
    assert precision.resolve("auto", "cpu", layer) == "bf16"
    assert precision.resolve("auto", "cpu", pooled) == "fp32"
    assert precision.resolve("bf16", "cpu", pooled) == "bf16"


def test_gain_is_measured_once() -> None:
    precision.bf16_gain.cache_clear()
    gain = precision.bf16_gain("cpu")
    assert gain >= 0 and math.isfinite(gain)
    assert (gain == 0) == (not torch.ops.mkldnn._is_mkldnn_bf16_supported())
    assert precision.bf16_gain("cpu") == gain


def test_autocast_changes_matrix_products_only_for_bf16() -> None:
    layer = torch.nn.Linear(4, 4)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with precision.autocast(name, "cpu"):
            assert layer(torch.ones(2, 4)).dtype == dtype
