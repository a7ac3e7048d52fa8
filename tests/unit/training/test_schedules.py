"""Schedules against transformers' and torch's own, and the learning rate that they multiply."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_polynomial_decay_schedule_with_warmup, get_scheduler

from raysweep.config.trial import SCHEDULES
from raysweep.errors import InputError
from raysweep.training.schedules import multiplier
from support.encoders import trial

TRANSFORMERS = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
PEERS = {
    **{
        kind: lambda optimizer, warmup, steps, name=name: get_scheduler(name, optimizer, warmup, steps)
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


def test_quadratic_is_the_papers():
    assert [multiplier("quadratic", step, 4, 0) for step in range(5)] == [1, 0.9375, 0.75, 0.4375, 0]


@given(st.sampled_from(sorted(PUBLISHED)), st.integers(1, 200), st.integers(0, 50), st.floats(0, 1))
def test_equal_to_the_papers_formula_after_the_warm_up(kind, num_steps, warmup_steps, place):
    t = round(place * num_steps)
    found = multiplier(kind, warmup_steps + t, warmup_steps + num_steps, warmup_steps)
    assert found == pytest.approx(PUBLISHED[kind](t, num_steps), abs=1e-12)


@pytest.mark.parametrize("warmup_steps", [0, 1, 7, 50, 200])
@pytest.mark.parametrize("kind", PEERS)
def test_equal_to_transformers_at_every_step(kind, warmup_steps):
    num_steps = 50
    optimizer = sgd()
    peer = PEERS[kind](optimizer, warmup_steps, num_steps)
    for step in range(num_steps):
        if step:
            optimizer.step()
            peer.step()
        assert multiplier(kind, step, num_steps, warmup_steps) == pytest.approx(peer.get_last_lr()[0], abs=1e-12)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("decay", [0.95, 0.98])
def test_exponential_is_torchs_stepped_at_each_epoch(decay, restart):
    """After the warm-up; restarted each rung, the warm-up comes back and the decay goes on."""
    optimizer = sgd()
    peer = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=decay)
    warmup_steps = 3
    for rung in range(6):
        for step in range(10):
            position = step if restart else 10 * rung + step
            warm = min(1.0, position / warmup_steps)
            expected = warm if warm < 1 else peer.get_last_lr()[0]
            found = multiplier("exponential", position, 10, warmup_steps, rung=rung, decay=decay)
            assert found == pytest.approx(expected, abs=1e-12)
        optimizer.step()
        peer.step()


@pytest.mark.parametrize("kind", SCHEDULES)
def test_published_schedule_never_leaves_its_warm_up(kind):
    """Learning rate 3e-5 and a warm-up of 10,000 steps, restarted each epoch of 782 steps: 0 to 2.3e-6, five times."""
    rates = [
        3e-5 * multiplier(kind, step, 782, 10_000, rung=rung, decay=DECAY.get(kind))
        for rung in range(5)
        for step in range(782)
    ]
    assert max(rates) == pytest.approx(2.343e-6)
    assert [step for step, rate in enumerate(rates) if rate == 0] == [0, 782, 1564, 2346, 3128]


@pytest.mark.parametrize("kind", SCHEDULES)
def test_in_range_past_the_end_and_without_steps(kind):
    assert 0 <= multiplier(kind, 99, 50, 5, decay=DECAY.get(kind)) <= 1
    assert multiplier(kind, 0, 0, 0, decay=DECAY.get(kind)) == 1


@given(
    st.sampled_from(SCHEDULES),
    st.integers(0, 300),
    st.integers(1, 200),
    st.integers(0, 300),
    st.integers(0, 20),
    st.floats(0.01, 0.99),
)
def test_a_factor_lies_between_0_and_1(kind, step, num_steps, warmup_steps, rung, decay):
    assert 0 <= multiplier(kind, step, num_steps, warmup_steps, rung=rung, decay=decay) <= 1


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
    """Meant for 64 examples an optimizer step; accumulated batches count."""
    config = trial(
        learning_rate=1e-4, learning_rate_rule=rule, batch_size=batch_size, accumulation_steps=accumulation_steps
    )
    assert config.peak_learning_rate == pytest.approx(expected)
    assert trial(learning_rate=1e-4, learning_rate_rule=rule, base_batch_size=8).peak_learning_rate == 1e-4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedule": "exponential"}, "the schedule exponential needs a decay"),
        ({"schedule": "linear", "decay": 0.95}, "decay is given, but the schedule linear has none"),
        ({"schedule": "exponential", "decay": 1.0}, "decay"),
        (
            {"schedule": "step"},
            "schedule is 'step'; allowed: constant, linear, quadratic, polynomial, cosine, exponential",
        ),
        ({"optimizer": "adadelta", "momentum": 0.9}, "momentum is given, but the optimizer adadelta has none"),
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
        ({"loss": "softmax", "margin": 0.1}, "margin is given, but the loss softmax has none"),
        ({"freezing": "emb+B1"}, "freezing is 'emb"),
    ],
)
def test_refused_configurations(values, message):
    with pytest.raises(InputError, match=message):
        trial(**values)
