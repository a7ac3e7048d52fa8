"""Learning rate schedules against transformers and torch, and averaged weights against their closed form."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_polynomial_decay_schedule_with_warmup, get_scheduler

from raysweep.config.trial import SCHEDULES
from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.training.optimization import WeightAverage, rate_multiplier
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench
from support.encoders import trial

TRANSFORMERS = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
PEERS = {
    **{
        kind: lambda optimizer, warmup, steps, name=name: get_scheduler(
            name, optimizer, warmup, steps
        )
        for kind, name in TRANSFORMERS.items()
    },
    "polynomial": lambda optimizer, warmup, steps: get_polynomial_decay_schedule_with_warmup(
        optimizer, warmup, steps, lr_end=0, power=2
    ),
}
DECAY = {"exponential": 0.95}
PUBLISHED = {"quadratic": lambda t, steps: 1 - (t / steps) ** 2}  # Vasilyev et al. 2024, Table 19


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def test_every_schedule_has_a_peer():
    assert {*PEERS, *DECAY, *PUBLISHED} == set(SCHEDULES)


def test_quadratic_follows_the_published_formula():
    assert [rate_multiplier("quadratic", step, 4, 0) for step in range(5)] == [
        1,
        0.9375,
        0.75,
        0.4375,
        0,
    ]


@given(st.sampled_from(sorted(PUBLISHED)), st.integers(1, 200), st.integers(0, 50), st.floats(0, 1))
def test_published_formula_applies_after_warm_up(kind, num_steps, warmup_steps, place):
    t = round(place * num_steps)
    multiplier = rate_multiplier(kind, warmup_steps + t, warmup_steps + num_steps, warmup_steps)
    assert multiplier == pytest.approx(PUBLISHED[kind](t, num_steps), abs=1e-12)


@pytest.mark.parametrize("warmup_steps", [0, 1, 7, 50, 200])
@pytest.mark.parametrize("kind", PEERS)
def test_schedules_equal_those_of_transformers(kind, warmup_steps):
    num_steps = 50
    optimizer = sgd()
    peer = PEERS[kind](optimizer, warmup_steps, num_steps)
    for step in range(num_steps):
        if step:
            optimizer.step()
            peer.step()
        assert rate_multiplier(kind, step, num_steps, warmup_steps) == pytest.approx(
            peer.get_last_lr()[0], abs=1e-12
        )


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("decay", [0.95, 0.98])
def test_exponential_equals_torchs_scheduler_stepped_at_each_epoch(decay, restart):
    """This holds after warm-up. With a restart each rung, warm-up repeats and the decay continues."""
    optimizer = sgd()
    peer = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=decay)
    warmup_steps = 3
    for rung in range(6):
        for step in range(10):
            position = step if restart else 10 * rung + step
            warm = min(1.0, position / warmup_steps)
            expected = warm if warm < 1 else peer.get_last_lr()[0]
            multiplier = rate_multiplier(
                "exponential", position, 10, warmup_steps, rung=rung, decay=decay
            )
            assert multiplier == pytest.approx(expected, abs=1e-12)
        optimizer.step()
        peer.step()


@pytest.mark.parametrize("kind", SCHEDULES)
def test_published_settings_never_leave_warm_up(kind):
    """With rate 3e-5 and 10,000 warm-up steps, restarted each epoch of 782 steps, it rises from 0 to 2.3e-6 five times."""
    rates = [
        3e-5 * rate_multiplier(kind, step, 782, 10_000, rung=rung, decay=DECAY.get(kind))
        for rung in range(5)
        for step in range(782)
    ]
    assert max(rates) == pytest.approx(2.343e-6)
    assert [step for step, rate in enumerate(rates) if rate == 0] == [0, 782, 1564, 2346, 3128]


@pytest.mark.parametrize("kind", SCHEDULES)
def test_multiplier_is_in_range_past_the_end_and_without_steps(kind):
    assert 0 <= rate_multiplier(kind, 99, 50, 5, decay=DECAY.get(kind)) <= 1
    assert rate_multiplier(kind, 0, 0, 0, decay=DECAY.get(kind)) == 1


@given(
    st.sampled_from(SCHEDULES),
    st.integers(0, 300),
    st.integers(1, 200),
    st.integers(0, 300),
    st.integers(0, 20),
    st.floats(0.01, 0.99),
)
def test_multiplier_is_between_0_and_1(kind, step, num_steps, warmup_steps, rung, decay):
    assert 0 <= rate_multiplier(kind, step, num_steps, warmup_steps, rung=rung, decay=decay) <= 1


@pytest.mark.parametrize(
    ("rule", "batch_size", "accumulation_steps", "expected"),
    [
        ("none", 256, 4, 1e-4),
        ("linear", 64, 1, 1e-4),
        ("linear", 256, 1, 4e-4),
        ("linear", 64, 4, 4e-4),
        ("linear", 16, 1, 2.5e-5),
        ("square_root", 256, 1, 2e-4),
        ("square_root", 64, 4, 2e-4),
        ("square_root", 4, 4, 5e-5),
    ],
)
def test_learning_rate_rules(rule, batch_size, accumulation_steps, expected):
    """The configured rate is for 64 examples per optimizer step, including accumulated batches."""
    config = trial(
        learning_rate=1e-4,
        learning_rate_rule=rule,
        batch_size=batch_size,
        accumulation_steps=accumulation_steps,
    )
    assert config.peak_learning_rate == pytest.approx(expected)
    assert (
        trial(learning_rate=1e-4, learning_rate_rule=rule, base_batch_size=8).peak_learning_rate
        == 1e-4
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedule": "exponential"}, "decay is missing; the schedule exponential"),
        ({"schedule": "linear", "decay": 0.95}, "decay is 0.95, but the schedule linear"),
        ({"schedule": "exponential", "decay": 1.0}, "decay"),
        (
            {"schedule": "step"},
            "schedule is 'step'; allowed: constant, linear, quadratic, polynomial, cosine, exponential",
        ),
        ({"optimizer": "adadelta", "momentum": 0.9}, "momentum is 0.9, but the optimizer adadelta"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"weight_decay": float("inf")}, "weight_decay"),
        ({"optimizer": "sgd", "momentum": 1.0}, "momentum"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"learning_rate_rule": "cubic"}, "learning_rate_rule"),
        ({"dropout": 1.0}, "dropout"),
        ({"retention_weight": -0.1}, "retention_weight"),
        ({"accumulation_steps": 0}, "accumulation_steps"),
        ({"idle_rungs": 0}, "idle_rungs"),
        ({"precision": "fp16"}, "precision"),
        ({"loss": "softmax", "margin": 0.1}, "margin is 0.1, but the loss softmax"),
        ({"freezing": "emb+B1"}, "freezing is 'emb"),
    ],
)
def test_invalid_configurations_are_rejected(values, message):
    with pytest.raises(InputError, match=message):
        trial(**values)


AVERAGE_DECAY = 0.8


def make_parameters(values: np.ndarray) -> dict[str, torch.nn.Parameter]:
    return {
        "a": torch.nn.Parameter(torch.from_numpy(values)),
        "b": torch.nn.Parameter(torch.from_numpy(-values[:1])),
    }


def weighted_mean(history: list[np.ndarray], decay: float) -> np.ndarray:
    """Return the mean in which each step's weights count ``decay`` times those of the next step."""
    weights = decay ** np.arange(len(history))[::-1]
    return np.tensordot(weights / weights.sum(), np.stack(history), 1)


@given(st.floats(0.05, 0.999), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_average_is_the_weighted_mean_of_all_steps(decay: float, num_steps: int, seed: int) -> None:
    history = list(np.random.default_rng(seed).normal(size=(num_steps + 1, 3)))
    trained = make_parameters(history[0].copy())
    average = WeightAverage(trained, decay)
    for values in history[1:]:
        with torch.no_grad():
            trained["a"].copy_(torch.from_numpy(values))
            trained["b"].copy_(torch.from_numpy(-values[:1]))
        average.update()
    expected = weighted_mean(history[1:], decay)
    np.testing.assert_allclose(average.tensors["a"], expected, rtol=1e-9, atol=1e-12)
    average.swap()
    np.testing.assert_allclose(trained["a"].detach(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(trained["b"].detach(), -expected[:1], rtol=1e-9, atol=1e-12)
    average.swap()
    np.testing.assert_array_equal(trained["a"].detach(), history[-1])


def test_average_with_decay_near_1_is_the_mean() -> None:
    trained = make_parameters(np.zeros(2))
    average = WeightAverage(trained, 1 - 1e-9)
    for number in range(1, 8):
        with torch.no_grad():
            trained["a"].fill_(number)
        average.update()
    np.testing.assert_allclose(average.tensors["a"], 4, rtol=1e-6)


@pytest.mark.parametrize("freezing", ["none", "emb+B0"])
def test_rungs_are_scored_with_the_average_and_training_continues_without_it(
    freezing: str, tiny_bench: Workbench
) -> None:
    config = trial(
        loss="softmax", learning_rate=3e-3, freezing=freezing, average_decay=AVERAGE_DECAY
    )
    last_only = config.model_copy(update={"average_decay": None})
    reference = Training(last_only, tiny_bench, seed=3, num_rungs=2)
    history: list[dict[str, np.ndarray]] = []
    for _ in range(2):
        while not reference.rung_is_full:
            reference.step()
            history.append(
                {
                    name: weight.detach().numpy().copy()
                    for name, weight in reference.parameters.items()
                }
            )
        reference.evaluate()

    training = Training(config, tiny_bench, seed=3, num_rungs=2)
    num_steps = 0
    for _ in range(2):
        while not training.rung_is_full:
            training.step()
            for name, weight in training.parameters.items():
                np.testing.assert_array_equal(
                    weight.detach(), history[num_steps][name], err_msg=name
                )
            num_steps += 1
        rung = training.evaluate()
        for name, weight in training.parameters.items():
            expected = weighted_mean([step[name] for step in history[:num_steps]], AVERAGE_DECAY)
            np.testing.assert_allclose(weight.detach(), expected, atol=1e-6, err_msg=name)
        shown = encoder.embed(training.model, tiny_bench.tokens.document, tiny_bench.dev.queries)
        pool = encoder.embed(training.model, tiny_bench.tokens.document, tiny_bench.dev.pool)
        assert rung.polarity == pytest.approx(tiny_bench.dev.score(shown, pool).mean("polarity"))
        head = training.head()
        assert head is not None and tiny_bench.head is not None and rung.calibration is not None
        np.testing.assert_allclose(
            tiny_bench.head.weight * np.float32(rung.calibration.temperature),
            head.weight,
            rtol=1e-5,
        )
    assert num_steps == len(history)
    moved = [
        np.abs(history[-1][name] - weight.detach().numpy()).max()
        for name, weight in training.parameters.items()
    ]
    assert max(moved) > 1e-4, "the average differs from the last weights"
