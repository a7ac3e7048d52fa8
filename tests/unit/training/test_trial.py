"""Trials in-process, without Ray, on the smoke space: one step, determinism, freezing, divergence."""

import pickle

import numpy as np
import pytest
import torch

from raysweep.config.losses import LOSSES
from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.training import batches, losses, workbench
from raysweep.training import trial as engine
from support.encoders import EVALUATION, trial

PLAIN = ("plain", None)


def test_the_untrained_encoder_scores_as_the_reference(demo_bench: workbench.Workbench) -> None:
    demo_bench.reset()
    scores = demo_bench.measure(demo_bench.dev, [PLAIN])[PLAIN]
    assert scores.polarity.mean() == pytest.approx(demo_bench.dev.reference_scores.polarity.mean(), abs=1e-6)
    assert scores.similarity.mean() == pytest.approx(demo_bench.dev.reference_scores.similarity.mean(), abs=1e-6)
    assert demo_bench.dev.point(
        scores, trial=0, step=0, kind="plain", value=None, width=384
    ).retention == pytest.approx(1)


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


def test_same_seed_same_trial_to_the_bit(tiny_bench: workbench.Workbench) -> None:
    first, again, other = (
        list(engine.rungs(trial(), tiny_bench, seed=seed, num_rungs=n)) for seed, n in ((3, 2), (3, 2), (4, 1))
    )
    assert [rung.loss for rung in first] == [rung.loss for rung in again]
    assert all((a.scores.similarity == b.scores.similarity).all() for a, b in zip(first, again, strict=True))
    assert [rung.loss for rung in first] != [rung.loss for rung in other]
    assert [rung.examples_seen for rung in first] == [20, 40]


def test_training_raises_polarity_on_the_demo(demo_bench: workbench.Workbench) -> None:
    config = trial(learning_rate=5e-4, examples_per_rung=96, batch_size=16, freezing="emb+B0-1")
    last = list(engine.rungs(config, demo_bench, seed=0, num_rungs=1))[-1]
    assert last.polarity > demo_bench.dev.reference_scores.polarity.mean() + 0.1


def test_frozen_parameters_stay_and_others_move(tiny_bench: workbench.Workbench) -> None:
    from raysweep.config.freezing import frozen_names

    names = [name for name, _ in tiny_bench.model.named_parameters()]
    frozen = frozen_names(names, "emb+B0-1", freeze_output_dense=True)
    list(engine.rungs(trial(freezing="emb+B0-1", freeze_output_dense=True), tiny_bench, seed=0, num_rungs=1))
    moved = {
        name for name, value in tiny_bench.model.named_parameters() if not torch.equal(value, tiny_bench.initial[name])
    }
    assert moved
    assert not moved & frozen
    assert {name for name in names if name not in frozen and "pooler" not in name and "key.bias" not in name} <= moved


def test_a_trial_does_not_depend_on_the_one_before(tiny_bench: workbench.Workbench) -> None:
    alone = [rung.loss for rung in engine.rungs(trial(), tiny_bench, seed=1, num_rungs=1)]
    list(
        engine.rungs(
            trial(loss="contrastive", margin=0.5, freezing="emb", learning_rate=1e-3), tiny_bench, seed=1, num_rungs=1
        )
    )
    assert [rung.loss for rung in engine.rungs(trial(), tiny_bench, seed=1, num_rungs=1)] == alone


def test_divergence_is_an_error_that_says_where(tiny_bench: workbench.Workbench) -> None:
    tiny_bench.reset()
    poisoned = {name: value.clone() for name, value in tiny_bench.initial.items()}
    broken = workbench.Workbench.__new__(workbench.Workbench)
    broken.__dict__.update(tiny_bench.__dict__)
    name = next(name for name in poisoned if name.endswith("layer.3.output.dense.weight"))
    poisoned[name][:] = float("nan")
    broken.initial = poisoned
    with pytest.raises(TrialDivergedError, match="the loss became nan within rung 1"):
        list(engine.rungs(trial(), broken, seed=0, num_rungs=1))


def test_embeddings_that_are_no_numbers_are_no_point(tiny_bench: workbench.Workbench) -> None:
    tiny_bench.reset()
    with torch.no_grad():
        next(tiny_bench.model.parameters()).fill_(float("nan"))
    with pytest.raises(TrialDivergedError, match="the embeddings are no longer finite"):
        tiny_bench.measure(tiny_bench.dev, [PLAIN])


def test_what_is_sent_to_trials_stays_small(tiny_bench: workbench.Workbench) -> None:
    assert len(tiny_bench.prepared.sentences) == len(tiny_bench.prepared.reference_embeddings)  # opened here
    sent = pickle.dumps(tiny_bench.prepared)
    assert len(sent) < 5000
    assert len(pickle.loads(sent).reference_embeddings) == len(tiny_bench.prepared.reference_embeddings)


def test_run_trial_takes_a_callback_that_can_stop(tiny_prepared: Prepared) -> None:
    seen = []
    results = engine.run_trial(
        trial(),
        tiny_prepared,
        num_rungs=3,
        evaluation=EVALUATION,
        on_rung=lambda rung: seen.append(rung.step) or rung.step < 2,
    )
    assert seen == [1, 2]
    assert len(results) == 2


def test_seeds_derive_from_the_sweep_and_the_configuration() -> None:
    seeds = {engine.trial_seed(seed, trial(margin=margin)) for seed in (0, 1) for margin in (0.1, 0.2)}
    assert len(seeds) == 4
    assert engine.trial_seed(0, trial()) == engine.trial_seed(0, trial())
