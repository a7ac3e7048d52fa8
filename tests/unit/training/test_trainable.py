"""What trials train and store, adapters above all, and what they leave to the next trial of the process."""

import dataclasses
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from raysweep.config.sweep import PointsConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import packed
from raysweep.training.trainable import TrainedWeights
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.weights import read_point, save_point
from raysweep.training.workbench import RungResult, Workbench
from support.encoders import EVALUATION, prepare_demo, trial
from support.families import write_random_encoder

pytest.importorskip("peft")

LORA = trial(
    loss="softmax", learning_rate=2e-2, adapter="lora", lora_rank=4, lora_targets="attention"
)
EVERYTHING = trial(learning_rate=1e-3)
WIDTH, NUM_BLOCKS = 64, 4  # of the tiny encoder


@pytest.fixture
def bench(tiny_prepared: Prepared) -> Workbench:
    points = PointsConfig(concat=[0.3], interpolate=[0.25])
    return Workbench(tiny_prepared, EVALUATION.model_copy(update={"points": points}))


def train(bench: Workbench, config: Any) -> RungResult:
    (result,) = rungs(config, bench, seed=3, num_rungs=1)
    return result


def state(bench: Workbench) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in bench.model.state_dict().items()}


def is_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_only_the_adapter_is_trained(bench: Workbench) -> None:
    base = state(bench)
    train(bench, LORA)
    weights = bench.trainable.trained()
    # query, key, value and output, each with A and B
    assert len(weights.tensors) == NUM_BLOCKS * 4 * 2
    assert all(tensor.abs().max() > 0 for tensor in weights.tensors.values())
    bench.reset()
    assert is_same(state(bench), base)


def test_trials_after_an_adapter_equal_those_of_a_new_process(
    bench: Workbench, tiny_prepared: Prepared
) -> None:
    other_adapter = LORA.model_copy(update={"lora_rank": 2, "lora_targets": "all_linear"})
    for config in (EVERYTHING, other_adapter):
        train(bench, LORA)
        result = train(bench, config)
        alone = Workbench(tiny_prepared, bench.evaluation)
        expected = train(alone, config)
        assert result.loss == expected.loss
        assert np.array_equal(result.scores["similarity"], expected.scores["similarity"])
        assert is_same(state(bench), state(alone))


def test_memory_holds_a_second_copy_of_trained_weights_only(bench: Workbench) -> None:
    parameters = dict(bench.model.named_parameters())
    for config, copied in ((LORA, set()), (trial(freezing="emb+B0-2"), None)):
        bench.start(config)
        base = bench.trainable.base
        own = {value.data_ptr() for value in bench.model.state_dict().values()}
        names = {name for name, value in base.items() if value.data_ptr() not in own}
        assert names == (set(bench.trainable.parameters) if copied is None else copied)
    assert len(parameters) > len(bench.trainable.parameters) > 0


@pytest.fixture(scope="module")
def bf16_prepared(tiny_prepared: Prepared) -> Prepared:
    return dataclasses.replace(tiny_prepared, model={**tiny_prepared.model, "weights": "bf16"})


def test_only_frozen_matrices_are_in_bf16(bf16_prepared: Prepared) -> None:
    """The adapter's own matrices, norms, biases and the tables of positions are in fp32."""
    bench = Workbench(bf16_prepared, EVALUATION)
    names = {
        name for name, value in bench.model.named_parameters() if value.dtype == torch.bfloat16
    }
    is_matrix = re.compile(r"(word_embeddings|query|key|value|dense)\.weight$")
    assert names == {name for name, _ in bench.model.named_parameters() if is_matrix.search(name)}
    rounded = state(bench)
    for config in (
        LORA,
        trial(freezing="emb+B0-2"),
        trial(freeze_output_dense=True),
        LORA,
        EVERYTHING,
    ):
        train(bench, config)
        trained = bench.trainable.trained().tensors
        assert {value.dtype for value in trained.values()} == {torch.float32}
        for name, value in bench.model.named_parameters():
            name_in_base = name.replace(".base_layer", "")
            assert (value.dtype == torch.bfloat16) == (
                name_in_base in names and name not in trained
            ), name
        bench.reset()
        for name, value in bench.model.state_dict().items():
            assert torch.equal(value.float(), rounded[name].float()), name


@pytest.mark.parametrize("config", [LORA, trial(freezing="emb+B0", learning_rate=1e-3)])
def test_trials_with_bf16_weights_equal_those_of_the_rounded_encoder(
    config: Any, bf16_prepared: Prepared, tiny_prepared: Prepared
) -> None:
    bench, expected = Workbench(bf16_prepared, EVALUATION), Workbench(tiny_prepared, EVALUATION)
    with torch.no_grad():
        for name, value in bench.model.named_parameters():
            expected.model.get_parameter(name).copy_(value)
    results = [list(rungs(config, each, seed=3, num_rungs=2)) for each in (bench, expected)]
    for rung, expected_rung in zip(*results, strict=True):
        assert rung.loss == pytest.approx(expected_rung.loss, rel=1e-3)
        assert rung.similarity == pytest.approx(expected_rung.similarity, abs=5e-3)


def test_weights_in_memory(bf16_prepared: Prepared, tiny_prepared: Prepared) -> None:
    """An adapter and its frozen encoder: 2 or 4 bytes a value, and no copies."""
    num_bytes = []
    for prepared in (bf16_prepared, tiny_prepared):
        bench = Workbench(prepared, EVALUATION)
        bench.start(LORA)
        values = [*bench.trainable.base.values(), *bench.model.state_dict().values()]
        storages = {value.data_ptr(): value.numel() * value.element_size() for value in values}
        num_bytes.append(sum(storages.values()))
    num_values = sum(parameter.numel() for parameter in bench.model.parameters())
    assert num_bytes[1] == 4 * num_values
    assert num_bytes[0] < 0.51 * num_bytes[1]


def test_point_holds_the_adapter_and_gives_the_same_scores(
    bench: Workbench, tmp_path: Path
) -> None:
    result = train(bench, LORA)
    save_point(tmp_path / "point", bench.trainable.trained(), bench.head)
    stored = safetensors.torch.load_file(tmp_path / "point" / "trained.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == NUM_BLOCKS * 4 * 4 * (WIDTH + WIDTH)
    train(bench, EVERYTHING)
    weights, head = read_point(tmp_path / "point")
    assert weights.lora == LORA.lora
    bench.reset(weights, head)
    scores = bench.measure(bench.dev, list(result.points))
    for key, expected in result.points.items():
        assert np.array_equal(scores[key]["similarity"], expected["similarity"]), key


def test_checkpoint_holds_the_adapter_only(bench: Workbench, tmp_path: Path) -> None:
    list(rungs(LORA, bench, seed=3, num_rungs=1, checkpoints=tmp_path))
    (file,) = tmp_path.glob("*/tensors")
    stored = safetensors.torch.load_file(file)
    in_optimizer = [
        value for name, value in stored.items() if name.startswith("optimizer.") and value.ndim == 2
    ]
    in_adapter = {name: value for name, value in stored.items() if name.startswith("weight.0.")}
    assert all("lora_" in name for name in in_adapter)
    num_parameters = sum(value.numel() for value in in_adapter.values())
    head = stored["weight.loss.head.weight"].numel()
    assert sum(value.numel() for value in in_optimizer) == 2 * (num_parameters + head)


def test_merged_and_interpolated_weights(bench: Workbench) -> None:
    """The merged matrix is W + (alpha / rank) B A, and interpolation is that of merged weights."""
    base = state(bench)
    result = train(bench, LORA)
    tuned = bench.trainable.trained()
    before = bench.encode(bench.dev)
    layer = "0.model.encoder.layer.2.attention.self.query"
    a, b = (tuned.tensors[f"{layer}.lora_{name}.default.weight"].clone() for name in "AB")
    weights = TrainedWeights(
        {name: tensor.clone() for name, tensor in tuned.tensors.items()}, tuned.lora
    )
    bench.trainable.finish()
    merged = state(bench)
    torch.testing.assert_close(merged[f"{layer}.weight"], base[f"{layer}.weight"] + 2 * b @ a)
    np.testing.assert_allclose(bench.encode(bench.dev).queries, before.queries, atol=1e-5)
    bench.model.load_state_dict({name: base[name].lerp(merged[name], 0.25) for name in base})
    between = bench.encode(bench.dev)
    fresh = Workbench(bench.prepared, bench.evaluation)
    fresh.reset(weights, None)
    with fresh.trainable.interpolated(0.25):
        np.testing.assert_allclose(fresh.encode(fresh.dev).queries, between.queries, atol=1e-5)
    np.testing.assert_allclose(fresh.encode(fresh.dev).queries, before.queries, atol=1e-6)
    scores = fresh.measure(fresh.dev, [("interpolate", 0.25)])["interpolate", 0.25]
    assert np.array_equal(scores["similarity"], result.points["interpolate", 0.25]["similarity"])


def test_packed_pass_and_no_prefix_cache_with_an_adapter(bench: Workbench) -> None:
    training = Training(LORA, bench, seed=0, num_rungs=1)
    assert training.prefixes is None
    assert packed.is_packable(bench.model)


def test_recomputed_activations_give_the_same_step(bench: Workbench) -> None:
    config = LORA.model_copy(
        update={"lora_dropout": 0.3, "optimizer": "sgd", "warmup_fraction": 0.0}
    )
    steps = []
    for recomputes in (False, True):
        training = Training(config, bench, seed=0, num_rungs=1)
        training.recomputes = recomputes
        before = {name: value.detach().clone() for name, value in training.parameters.items()}
        training.step()
        steps.append(
            {name: value.detach() - before[name] for name, value in training.parameters.items()}
        )
    for name, step in steps[0].items():
        difference = (steps[1][name] - step).abs().max()
        assert difference <= 1e-4 * step.abs().max() + 1e-8, name


def test_ranks_and_targets_on_a_decoder(tmp_path: Path, demo_package: ModuleType) -> None:
    """A trial of each configuration on a random Qwen3, one after the other in a process."""
    encoder = write_random_encoder("qwen3", tmp_path, demo_package.get_model_path())
    bench = Workbench(prepare_demo(tmp_path, encoder, rows=300), EVALUATION)
    inputs_and_outputs = {"attention": 2 * (32 + 32) + 2 * (32 + 16), "feed_forward": 3 * (32 + 48)}
    inputs_and_outputs["all_linear"] = sum(inputs_and_outputs.values())
    untuned = bench.encode(bench.dev).queries
    for targets, per_block in inputs_and_outputs.items():
        for rank in (2, 5):
            train(bench, LORA.model_copy(update={"lora_rank": rank, "lora_targets": targets}))
            tuned = bench.trainable.trained()
            assert sum(tensor.numel() for tensor in tuned.tensors.values()) == 3 * rank * per_block
            scored = bench.encode(bench.dev).queries
            bench.trainable.finish()
            np.testing.assert_allclose(bench.encode(bench.dev).queries, scored, atol=1e-5)
            assert np.abs(scored - untuned).max() > 1e-3
            bench = Workbench(bench.prepared, EVALUATION)  # merging has changed the base weights


def test_weights_of_another_encoder_are_rejected(bench: Workbench) -> None:
    name = "0.model.encoder.layer.0.attention.self.query.lora_A.default.weight"
    with pytest.raises(ValueError, match="no .*lora_A.* of shape"):
        bench.reset(TrainedWeights({name: torch.zeros(4, 8)}, LORA.lora))
