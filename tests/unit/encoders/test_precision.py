"""Which arithmetic a trial takes."""

import math

import numpy as np
import pytest
import torch

from raysweep.encoders import precision
from raysweep.training.trial import rungs
from raysweep.training.workbench import Workbench
from support.encoders import trial


def test_what_is_asked_for_is_taken() -> None:
    assert [precision.resolve(name, "cpu") for name in ("fp32", "bf16")] == ["fp32", "bf16"]


@pytest.mark.parametrize(("gain", "taken"), [(0.0, "fp32"), (0.5, "fp32"), (1.2, "fp32"), (1.3, "bf16"), (6.0, "bf16")])
def test_auto_takes_what_is_faster(gain: float, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "bf16_gain", lambda device: gain)
    assert precision.resolve("auto", "cuda:0") == taken


def test_the_gain_is_measured_once() -> None:
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


@pytest.mark.parametrize("freezing", ["none", "emb+B0-1"])
def test_training_in_bf16_stays_near_fp32_and_is_scored_in_fp32(freezing: str, tiny_bench: Workbench) -> None:
    """With a frozen part its kept states are bf16 too, but scores come from the fp32 weights alone."""
    means = {}
    for name in ("fp32", "bf16"):
        config = trial(precision=name, freezing=freezing, dropout=0.0, learning_rate=3e-4, examples_per_rung=40)
        results = list(rungs(config, tiny_bench, seed=0, num_rungs=3))
        means[name] = np.array([rung.loss for rung in results])
        assert {value.dtype for value in tiny_bench.model.state_dict().values()} == {torch.float32}
        scores = tiny_bench.measure(tiny_bench.dev, [("plain", None)])["plain", None]
        np.testing.assert_array_equal(results[-1].scores.polarity, scores.polarity)
        np.testing.assert_allclose(results[-1].scores.similarity, scores.similarity, atol=1e-6)
    assert means["bf16"] == pytest.approx(means["fp32"], rel=0.1)
    assert (means["bf16"] != means["fp32"]).all()
