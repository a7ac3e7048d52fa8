"""A batch's distinct sentences, embedded once each, against the library's padded columns."""

import numpy as np
import pytest
import torch

from raysweep.config.losses import LOSSES
from raysweep.config.trial import trial_config
from raysweep.encoders import buckets
from raysweep.training import batches, losses, workbench
from raysweep.training.trainer import Training


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_is_the_stock_loss_over_padded_columns(loss: str, demo_bench: workbench.Workbench) -> None:
    """Same loss and gradients whether sentences are embedded once in buckets, or column by column with padding."""
    demo_bench.reset()
    demo_bench.model.eval()  # no dropout
    config = trial_config({"loss": loss, "learning_rate": 1e-5})
    module = losses.build(loss, config.model_dump(), demo_bench.model, width=384, num_labels=2)
    ids, targets = demo_bench.prepared.examples(LOSSES[loss].example_kind)
    rows = np.random.default_rng(0).choice(len(ids), 12, replace=False)
    batch = ids[rows]
    if loss == "multiple_negatives":
        targets = demo_bench.prepared.sentences.labels[ids[:, 0]]
    labels = None if targets is None else torch.from_numpy(targets[rows])
    outcomes = []
    for columns in (
        batches.embed_columns(batches.TrainedEncoder(demo_bench.model, demo_bench.tokens), batch),
        [
            demo_bench.model(demo_bench.model.preprocess(demo_bench.prepared.sentences.texts(column)))[
                "sentence_embedding"
            ]
            for column in batch.T
        ],
    ):
        demo_bench.model.zero_grad()
        value = module.compute_loss_from_embeddings(columns, labels)
        value.backward()
        gradient = demo_bench.model[0].auto_model.encoder.layer[0].attention.self.query.weight.grad
        outcomes.append((float(value.detach()), gradient.clone()))
    assert outcomes[0][0] == pytest.approx(outcomes[1][0], rel=1e-4, abs=1e-6)
    scale = outcomes[1][1].abs().max()
    assert (outcomes[0][1] - outcomes[1][1]).abs().max() <= 1e-3 * scale + 1e-9


ROUNDING = {"fp32": 1e-5, "bf16": 0.03}  # of gradients, relative to the greatest: bf16 has 8 bits of a number


@pytest.mark.parametrize(
    ("loss", "retention_weight", "precision"),
    [*((loss, 0.5, "fp32") for loss in LOSSES), ("triplet", 0.0, "fp32"), ("triplet", 0.5, "bf16")],
)
def test_a_batch_whose_activations_are_computed_again_has_the_same_gradient(
    loss: str, retention_weight: float, precision: str, demo_bench: workbench.Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under dropout, of several packs, and for losses that compare each example with the whole batch."""
    monkeypatch.setattr(buckets, "CELLS_PER_PACK", 256)
    values = {"loss": loss, "retention_weight": retention_weight, "precision": precision}
    config = trial_config({"learning_rate": 1e-5, "dropout": 0.2, **values})
    gradients = []
    ends = []
    for recomputes in (False, True):
        training = Training(config, demo_bench, seed=3, num_rungs=1)
        training.recomputes = recomputes
        training.model.train()
        ids, targets = training.order.take(40)
        assert len(training.trained.packs(np.unique(ids))) > 1
        value = training._add_gradient(ids, targets, 2)
        gradients.append({name: each.grad for name, each in training.parameters.items() if each.grad is not None})
        ends.append((float(value), demo_bench.dropouts.state(), torch.get_rng_state()))
    whole, again = gradients
    assert whole.keys() == again.keys()
    assert len(whole) > 100
    for name, gradient in whole.items():
        scale = float(gradient.abs().max())
        assert float((again[name] - gradient).abs().max()) <= ROUNDING[precision] * scale + 1e-9, name
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-6)
    assert ends[0][1] == ends[1][1]
    assert torch.equal(ends[0][2], ends[1][2])
