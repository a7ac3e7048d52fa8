"""Schedules against transformers' own."""

import pytest
import torch
from transformers import get_scheduler

from raysweep.schedules import SCHEDULES, multiplier

PEERS = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def test_every_schedule_has_a_peer():
    assert PEERS.keys() == SCHEDULES.keys()


@pytest.mark.parametrize("warmup_steps", [0, 1, 7, 50, 200])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_equal_to_transformers_at_every_step(kind, warmup_steps):
    num_steps = 50
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    peer = get_scheduler(PEERS[kind], optimizer, num_warmup_steps=warmup_steps, num_training_steps=num_steps)
    for step in range(num_steps):
        assert multiplier(kind, step, num_steps, warmup_steps) == pytest.approx(peer.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        peer.step()


@pytest.mark.parametrize("kind", SCHEDULES)
def test_published_schedule_never_leaves_its_warm_up(kind):
    """Learning rate 3e-5 and a warm-up of 10,000 steps, restarted each epoch of 782 steps: 0 to 2.3e-6, five times."""
    rates = [3e-5 * multiplier(kind, step, 782, 10_000) for _ in range(5) for step in range(782)]
    assert max(rates) == pytest.approx(2.343e-6)
    assert [step for step, rate in enumerate(rates) if rate == 0] == [0, 782, 1564, 2346, 3128]


@pytest.mark.parametrize("kind", SCHEDULES)
def test_in_range_past_the_end_and_without_steps(kind):
    assert 0 <= multiplier(kind, 99, 50, 5) <= 1
    assert multiplier(kind, 0, 0, 0) == 1
