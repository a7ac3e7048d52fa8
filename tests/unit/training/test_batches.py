"""A batch's distinct sentences, embedded once each, against the library's padded columns."""

import numpy as np
import pytest
import torch

from raysweep.config.losses import LOSSES
from raysweep.config.trial import trial_config
from raysweep.training import batches, losses, workbench


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
    labels = None if targets is None else torch.from_numpy(targets[rows])
    outcomes = []
    for columns in (
        batches.embed_columns(demo_bench.model, demo_bench.tokens, batch),
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
