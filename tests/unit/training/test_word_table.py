"""The gradient of the table of word embeddings, step after step, against autograd's own."""

from typing import Any

import numpy as np
import pytest
import torch

from raysweep.config.trial import trial_config
from raysweep.encoders import encoder
from raysweep.training import batches
from raysweep.training.batches import TrainedEncoder
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench


def table_of(bench: Workbench) -> torch.nn.Embedding:
    table = encoder.word_table(bench.model)
    assert table is not None
    return table


def loss_of(trained: TrainedEncoder, ids: Any) -> torch.Tensor:
    """Any function of the embeddings whose gradient is not the same for all."""
    trained.model.eval()  # no dropout
    (embeddings,) = batches.embed_columns(trained, ids[:, None])
    weights = torch.linspace(-1, 1, embeddings.shape[1])
    return (embeddings * weights).square().sum()


def autograds_own(bench: Workbench, some: Any, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """The table's gradient where the model looks words up by itself."""
    with monkeypatch.context() as patch:
        patch.setattr(encoder, "word_table", lambda model: None)
        trained = TrainedEncoder(bench.model, bench.tokens)
    bench.model.zero_grad()
    for ids in some:
        loss_of(trained, ids).backward()
    gradient = table_of(bench).weight.grad
    assert gradient is not None
    return gradient.clone()


def test_each_step_has_the_gradient_of_its_own_words(tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one batch or of two, after steps with other words whose gradients were scaled, in memory that stays."""
    tiny_bench.reset()
    weight = table_of(tiny_bench).weight
    trained = TrainedEncoder(tiny_bench.model, tiny_bench.tokens)
    rng = np.random.default_rng(0)
    places = set()
    for num_batches in (1, 2, 1):
        some = [rng.choice(len(tiny_bench.tokens), 6, replace=False) for _ in range(num_batches)]
        expected = autograds_own(tiny_bench, some, monkeypatch)
        tiny_bench.model.zero_grad(set_to_none=True)
        for ids in some:
            loss_of(trained, ids).backward()
        assert weight.grad is not None
        assert 0 < (expected != 0).any(dim=1).sum() < len(weight)
        torch.testing.assert_close(weight.grad, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))
        assert torch.equal(weight.grad == 0, expected == 0)
        places.add(weight.grad.data_ptr())
        weight.grad *= 3.0
    assert len(places) == 1


@pytest.mark.parametrize("optimizer", ["adamw", "adamax", "adadelta", "sgd"])
def test_every_optimizer_goes_where_it_would_with_autograds_own_gradient(
    optimizer: str, tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trial_config(
        {
            "loss": "softmax",
            "learning_rate": 1e-2,
            "optimizer": optimizer,
            "weight_decay": 0.1,
            "dropout": 0.0,
            "batch_size": 4,
            "accumulation_steps": 2,
            "examples_per_rung": 24,
            "precision": "fp32",
        }
    )
    tiny_bench.reset()
    beginning = table_of(tiny_bench).weight.detach().clone()
    tables = []
    for is_plain in (True, False):
        with monkeypatch.context() as patch:
            if is_plain:
                patch.setattr(encoder, "word_table", lambda model: None)
            training = Training(config, tiny_bench, seed=1, num_rungs=1)
        while not training.rung_is_full:
            training.step()
        tables.append(table_of(tiny_bench).weight.detach().clone())
    plain, kept = tables
    moved = float((plain - beginning).abs().max())
    assert moved > 0
    assert float((plain - kept).abs().max()) <= 0.01 * moved


def test_a_trial_after_one_that_diverged_begins_without_its_gradient(tiny_bench: Workbench) -> None:
    values = {"loss": "softmax", "batch_size": 4, "examples_per_rung": 8, "precision": "fp32"}
    diverging = Training(trial_config({**values, "learning_rate": 1e-4}), tiny_bench, seed=1, num_rungs=1)
    with torch.no_grad():
        diverging.loss.head.weight.fill_(torch.nan)
    diverging.step()
    following = Training(trial_config({**values, "learning_rate": 1e-4}), tiny_bench, seed=1, num_rungs=1)
    following.step()
    assert torch.isfinite(table_of(tiny_bench).weight).all()


def test_a_table_that_serves_for_more_is_left_to_autograd(
    tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an encoder with a head that predicts words: its gradient is not of the batch's words alone."""
    head = torch.nn.Linear(1, 1)
    head.weight = table_of(tiny_bench).weight
    monkeypatch.setattr(tiny_bench.model[0].auto_model, "get_output_embeddings", lambda: head)
    assert encoder.word_table(tiny_bench.model) is None
