"""Trials on a GPU equal those on a CPU, are resumed, and survive running out of memory."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raysweep.config.losses import LOSSES
from raysweep.config.sweep import PointsConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import buckets
from raysweep.training import trainer
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.workbench import RungResult, Workbench
from support.encoders import EVALUATION, trial
from support.losses import WithOtherReference

CONFIGURATIONS = {
    "everything": {},
    "frozen": {"freezing": "emb+B0-1", "examples_per_rung": 200},
    "lora": {"adapter": "lora", "lora_rank": 4, "learning_rate": 5e-3},
    "tower query": {"tower": "query"},
    "tower separate": {"tower": "separate"},
    "average, retention": {"average_decay": 0.9, "retention_weight": 0.5},
    "sgd, accumulation": {"optimizer": "sgd", "learning_rate": 1e-2, "accumulation_steps": 2},
    "matryoshka": {"matryoshka": "halves"},
}


@pytest.fixture(scope="module")
def benches(tiny_prepared: Prepared) -> dict[str, Workbench]:
    points = PointsConfig(concat=[0.3], interpolate=[0.25])
    evaluation = EVALUATION.model_copy(update={"points": points})
    return {
        device: Workbench(tiny_prepared, evaluation, device=device) for device in ("cuda", "cpu")
    }


def run(bench: Workbench, config: Any, **options: Any) -> list[RungResult]:
    return list(rungs(config, bench, seed=3, num_rungs=2, **options))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_trial_equals_that_on_a_cpu(name: str, benches: dict[str, Workbench]) -> None:
    """Without dropout, whose masks differ."""
    if "lora" in name:
        pytest.importorskip("peft")
    config = trial(
        **{"dropout": 0.0, "learning_rate": 1e-3, "examples_per_rung": 40, **CONFIGURATIONS[name]}
    )
    on_gpu, on_cpu = (run(bench, config) for bench in benches.values())
    for rung, expected in zip(on_gpu, on_cpu, strict=True):
        assert rung.loss == pytest.approx(expected.loss, rel=2e-3)
        assert rung.points.keys() == expected.points.keys()
        for key, scores in expected.points.items():
            assert rung.points[key].mean("similarity") == pytest.approx(
                scores.mean("similarity"), abs=2e-3
            ), key


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_of_a_loss_equals_that_on_a_cpu(loss: str, benches: dict[str, Workbench]) -> None:
    config = trial(loss=loss, dropout=0.0, batch_size=16)
    values, gradients = [], []
    for bench in benches.values():
        training = WithOtherReference(config, bench, seed=3, num_rungs=1)
        training.model.train()
        values.append(float(training.add_gradient(*training.order.take(16))))
        gradients.append(
            {
                name: value.grad.cpu()
                for name, value in training.parameters.items()
                if value.grad is not None
            }
        )
    assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-6)
    assert gradients[0].keys() == gradients[1].keys()
    largest = max((float(gradient.abs().max()) for gradient in gradients[1].values()), default=0)
    for name, gradient in gradients[1].items():
        difference = (gradients[0][name] - gradient).abs().max()
        assert difference <= 2e-3 * gradient.abs().max() + 1e-4 * largest, name


def test_bf16_follows_fp32(benches: dict[str, Workbench]) -> None:
    losses = []
    for precision in ("fp32", "bf16"):
        config = trial(precision=precision, dropout=0.0, learning_rate=1e-3, examples_per_rung=80)
        losses.append([rung.loss for rung in run(benches["cuda"], config)])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


@pytest.mark.parametrize("values", [{}, {"freezing": "emb+B0-1", "examples_per_rung": 200}])
def test_resumed_trial(
    values: dict[str, Any], benches: dict[str, Workbench], tmp_path: Path
) -> None:
    """With dropout; gradients on a GPU are sums in varying order, so that values are equal up to rounding."""
    bench = benches["cuda"]
    config = trial(**{"examples_per_rung": 40, **values})
    uninterrupted = run(bench, config)
    next(iter(rungs(config, bench, seed=3, num_rungs=2, checkpoints=tmp_path)))
    bench.reset()
    resumed = run(bench, config, checkpoints=tmp_path)
    for rung, expected in zip(resumed, uninterrupted, strict=True):
        assert rung.loss == pytest.approx(expected.loss, rel=1e-4)
        assert rung.similarity == pytest.approx(expected.similarity, abs=1e-4)


def test_trial_continues_after_the_memory_ran_out(
    demo_prepared: Prepared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process may use half as much memory as a batch's activations need, and a pass a tenth of it."""
    monkeypatch.setitem(buckets.TOKENS_PER_BUCKET, "cuda", 2048)
    bench = Workbench(demo_prepared, EVALUATION, device="cuda")
    config = trial(
        loss="multiple_negatives",
        batch_size=1024,
        examples_per_rung=1024,
        optimizer="sgd",
        dropout=0.2,
    )
    steps = []
    needed = 0  # bytes, in the unlimited step
    total = torch.cuda.get_device_properties(0).total_memory
    for is_limited in (False, True):
        training = Training(config, bench, seed=1, num_rungs=1)
        before = {name: value.detach().clone() for name, value in training.parameters.items()}
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        used = torch.cuda.memory_allocated()
        if is_limited:
            torch.cuda.set_per_process_memory_fraction((used + needed / 2) / total)
        try:
            training.step()
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        needed = torch.cuda.max_memory_allocated() - used
        assert training.recomputes == is_limited
        steps.append(
            {name: value.detach() - before[name] for name, value in training.parameters.items()}
        )
    largest = max(float(step.abs().max()) for step in steps[0].values())
    for name, step in steps[0].items():
        difference = (steps[1][name] - step).abs().max()
        assert difference <= 1e-2 * step.abs().max() + 1e-4 * largest, name
    assert capsys.readouterr().out.count("out of memory") == 1


def test_peak_memory_covers_a_trial(benches: dict[str, Workbench]) -> None:
    """No batch of a trial needs more than the longest sentences do."""
    bench, config = benches["cuda"], trial(batch_size=32, examples_per_rung=200)
    measured = trainer.measure_peak_bytes(bench, [config])
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run(bench, config)
    assert 0 < torch.cuda.max_memory_allocated() <= measured


def test_bf16_weights_take_half_the_memory(tiny_prepared: Prepared) -> None:
    used = []
    for weights in ("fp32", "bf16"):
        prepared = dataclasses.replace(
            tiny_prepared, model={**tiny_prepared.model, "weights": weights}
        )
        before = torch.cuda.memory_allocated()
        bench = Workbench(prepared, EVALUATION, device="cuda")
        used.append(torch.cuda.memory_allocated() - before)
        config = trial(adapter="lora", lora_rank=2, learning_rate=1e-3)
        assert all(np.isfinite(rung.loss) for rung in run(bench, config))
        del bench
    assert used[1] < 0.55 * used[0]
