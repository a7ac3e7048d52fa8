"""The dropout layers that replace torch's on a CPU, and the rates that a trial sets."""

import json

import pytest
import torch
import transformers
from torch import nn

from raysweep.encoders.structure import Structure
from raysweep.training.dropout import Dropouts, FastDropout, Generator
from support.families import MODEL_TYPES, random_transformer

# transformers' forward skips it
UNUSED = {"albert": {"encoder.albert_layer_groups.0.albert_layers.0.dropout"}}


def layer(rate: float, seed: int = 0) -> FastDropout:
    generator = Generator()
    generator.seed(seed)
    return FastDropout(rate, generator).train()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_share_and_scale_of_kept_elements(rate: float) -> None:
    count = 200_001
    out = layer(rate)(torch.ones(count))
    kept_elements = out[out != 0]
    deviation = (rate * (1 - rate) / count) ** 0.5
    assert len(kept_elements) / count == pytest.approx(1 - rate, abs=5 * deviation + 1 / 131072)
    assert kept_elements.unique().tolist() == pytest.approx([1 / (1 - rate)], rel=0.01)
    assert float(out.mean()) == pytest.approx(1, abs=5 * deviation / (1 - rate))


def test_masks_of_neighboring_elements_are_independent() -> None:
    centered = (layer(0.5)(torch.ones(4, 50_000)) != 0).float() - 0.5
    for shift in (1, 2, 3, 4):
        assert abs(float((centered * centered.roll(shift, 1)).mean())) < 0.003


def test_gradient_is_the_mask() -> None:
    x = torch.randn(7, 13, 5, requires_grad=True)
    out = layer(0.3)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)


def test_no_dropout_at_rate_0_or_in_evaluation_mode() -> None:
    x = torch.randn(3, 3)
    assert layer(0.0)(x) is x
    assert layer(0.5).eval()(x) is x


def test_stream_is_seeded_and_restored_from_json() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.4), nn.Sequential(nn.Dropout(0.2)))
    dropouts = Dropouts(model, "cpu")
    assert dropouts.names == ["1", "2.0"]
    model.train()
    x = torch.ones(5, 3)

    def outputs(count: int) -> list[list[float]]:
        return [model(x).detach().flatten().tolist() for _ in range(count)]

    dropouts.generator.seed(1)
    expected = outputs(6)
    dropouts.generator.seed(1)
    assert outputs(3) == expected[:3]
    state = json.loads(json.dumps(dropouts.state()))
    outputs(2)
    dropouts.restore(state)
    assert outputs(3) == expected[3:]
    dropouts.generator.seed(2)
    assert outputs(6) != expected


def test_rates_are_set_and_restored() -> None:
    model = nn.Sequential(nn.Dropout(0.4), nn.Sequential(nn.Dropout(0.2)))
    dropouts = Dropouts(model, "cpu")

    def rates() -> list[float]:
        return [model[0].p, model[1][0].p]

    dropouts.set(0.3)
    assert rates() == [0.3, 0.3]
    dropouts.set(None, off=["0"])
    assert rates() == [0.0, 0.2]
    dropouts.set(None)
    assert rates() == [0.4, 0.2]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_is_random_at_rate_above_0_only(model_type: str, device: str) -> None:
    model = random_transformer(model_type).train()
    dropouts = Dropouts(model, device)  # the layers are replaced on a CPU only
    ids = torch.arange(1, 20)[None]

    def difference() -> float:
        first, second = (model(ids).last_hidden_state for _ in range(2))
        return float((first - second).detach().abs().max())

    dropouts.set(0.5)
    assert difference() > 0
    for site in dropouts.names:  # each one by itself
        dropouts.set(0.5, off=[name for name in dropouts.names if name != site])
        used = difference() > 0
        assert used or site in UNUSED.get(model_type, set()), site
    for rate, off in ((0.0, ()), (None, dropouts.names), (0.5, dropouts.names)):
        dropouts.set(rate, off)
        assert difference() == 0


def test_clip_attention_is_random() -> None:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    model = transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=30, **sizes)).train()
    dropouts = Dropouts(model, "cpu")
    assert len(dropouts.names) == 2
    ids = torch.arange(1, 20)[None]
    for rate, is_random in ((0.5, True), (0.0, False)):
        dropouts.set(rate)
        first, second = (model(ids).last_hidden_state for _ in range(2))
        assert (first != second).any() == is_random


def test_rates_of_attention_and_absent_layers_are_restored() -> None:
    model = random_transformer("modernbert", attention_dropout=0.0)
    names = [name for name, _ in model.named_parameters()]
    dropouts = Dropouts(model, "cpu")
    assert {"layers.0.attn", "layers.0.attn.out_drop"} <= set(dropouts.names)
    dropouts.set(0.3)
    assert model.layers[0].attn.attention_dropout == model.layers[0].attn.out_drop.p == 0.3
    dropouts.set(None)
    assert model.layers[0].attn.attention_dropout == model.layers[0].attn.out_drop.p == 0.0
    frozen = Structure("modernbert", names).frozen_modules(dropouts.names, "emb+B0a")
    assert {"layers.0.attn", "layers.0.attn.out_drop"} <= set(frozen)


def test_torch_layers_are_kept_on_other_devices() -> None:
    model = nn.Sequential(nn.Dropout(0.4))
    assert Dropouts(model, "cuda").names == ["0"]
    assert type(model[0]) is nn.Dropout
