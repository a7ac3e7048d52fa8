"""Averaged weights: the closed form, and a trial that is scored with them and trains on without."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raysweep.encoders import encoder
from raysweep.training.averages import WeightAverage
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench
from support.encoders import trial

DECAY = 0.8


def parameters(values: np.ndarray) -> dict[str, torch.nn.Parameter]:
    return {"a": torch.nn.Parameter(torch.from_numpy(values)), "b": torch.nn.Parameter(torch.from_numpy(-values[:1]))}


def weighted_mean(history: list[np.ndarray], decay: float) -> np.ndarray:
    """Each step's weights count ``decay`` times those of the next step."""
    weights = decay ** np.arange(len(history))[::-1]
    return np.tensordot(weights / weights.sum(), np.stack(history), 1)


@given(st.floats(0.05, 0.999), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_it_is_the_weighted_mean_of_all_steps(decay: float, num_steps: int, seed: int) -> None:
    history = list(np.random.default_rng(seed).normal(size=(num_steps + 1, 3)))
    trained = parameters(history[0].copy())
    average = WeightAverage(trained, decay)
    for values in history[1:]:
        with torch.no_grad():
            trained["a"].copy_(torch.from_numpy(values))
            trained["b"].copy_(torch.from_numpy(-values[:1]))
        average.update()
    expected = weighted_mean(history[1:], decay)
    np.testing.assert_allclose(average.tensors["a"], expected, rtol=1e-9, atol=1e-12)
    with average.in_place():
        np.testing.assert_allclose(trained["a"].detach(), expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(trained["b"].detach(), -expected[:1], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(trained["a"].detach(), history[-1])


def test_near_1_it_is_the_mean() -> None:
    trained = parameters(np.zeros(2))
    average = WeightAverage(trained, 1 - 1e-9)
    for number in range(1, 8):
        with torch.no_grad():
            trained["a"].fill_(number)
        average.update()
    np.testing.assert_allclose(average.tensors["a"], 4, rtol=1e-6)


@pytest.mark.parametrize("freezing", ["none", "emb+B0"])
def test_a_rung_is_scored_with_the_average_and_training_goes_on_without(freezing: str, tiny_bench: Workbench) -> None:
    config = trial(loss="softmax", learning_rate=3e-3, freezing=freezing, average_decay=DECAY)
    last_only = config.model_copy(update={"average_decay": None})
    reference = Training(last_only, tiny_bench, seed=3, num_rungs=2)
    history: list[dict[str, np.ndarray]] = []
    for _ in range(2):
        while not reference.rung_is_full:
            reference.step()
            history.append({name: each.detach().numpy().copy() for name, each in reference.parameters.items()})
        reference.evaluate()

    training = Training(config, tiny_bench, seed=3, num_rungs=2)
    num_steps = 0
    for _ in range(2):
        while not training.rung_is_full:
            training.step()
            for name, each in training.parameters.items():
                np.testing.assert_array_equal(each.detach(), history[num_steps][name], err_msg=name)
            num_steps += 1
        rung = training.evaluate()
        for name, each in training.parameters.items():
            expected = weighted_mean([step[name] for step in history[:num_steps]], DECAY)
            np.testing.assert_allclose(each.detach(), expected, atol=1e-6, err_msg=name)
        shown = encoder.embed(training.model, tiny_bench.tokens, tiny_bench.dev.queries)
        pool = encoder.embed(training.model, tiny_bench.tokens, tiny_bench.dev.pool)
        assert rung.polarity == pytest.approx(tiny_bench.dev.score(shown, pool).polarity.mean())
        head = training.head()
        assert head is not None and tiny_bench.head is not None and rung.calibration is not None
        np.testing.assert_allclose(
            tiny_bench.head.weight * np.float32(rung.calibration.temperature), head.weight, rtol=1e-5
        )
    assert num_steps == len(history)
    moved = [np.abs(history[-1][name] - each.detach().numpy()).max() for name, each in training.parameters.items()]
    assert max(moved) > 1e-4, "the average is not the last weights"
