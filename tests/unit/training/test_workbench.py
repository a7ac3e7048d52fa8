"""What trials in a process share: the encoder, its scores, and the cache of a frozen part."""

import pickle

import pytest
import torch

from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.workbench import Workbench
from support.encoders import EVALUATION, trial

PLAIN = ("plain", None)


def test_the_untrained_encoder_scores_as_the_reference(demo_bench: Workbench) -> None:
    demo_bench.reset()
    scores = demo_bench.measure(demo_bench.dev, [PLAIN])[PLAIN]
    assert scores.polarity.mean() == pytest.approx(demo_bench.dev.reference_scores.polarity.mean(), abs=1e-6)
    assert scores.similarity.mean() == pytest.approx(demo_bench.dev.reference_scores.similarity.mean(), abs=1e-6)
    assert demo_bench.dev.point(
        scores, trial=0, step=0, kind="plain", value=None, width=384
    ).retention == pytest.approx(1)


def test_embeddings_that_are_no_numbers_are_no_point(tiny_bench: Workbench) -> None:
    tiny_bench.reset()
    with torch.no_grad():
        next(tiny_bench.model.parameters()).fill_(float("nan"))
    with pytest.raises(TrialDivergedError, match="the embeddings are no longer finite"):
        tiny_bench.measure(tiny_bench.dev, [PLAIN])


def test_what_is_sent_to_trials_stays_small(tiny_bench: Workbench) -> None:
    assert len(tiny_bench.prepared.sentences) == len(tiny_bench.prepared.reference_embeddings)  # opened here
    sent = pickle.dumps(tiny_bench.prepared)
    assert len(sent) < 5000
    assert len(pickle.loads(sent).reference_embeddings) == len(tiny_bench.prepared.reference_embeddings)


def losses(prepared: Prepared, cache_bytes: int, **values: object) -> tuple[list[float], list[float]]:
    bench = Workbench(prepared, EVALUATION, cache_bytes=cache_bytes)
    config = trial(**{"freezing": "emb+B0-1", "learning_rate": 1e-3, "examples_per_rung": 80, **values})
    assert (Training(config, bench, 3, 2).prefix is None) == (cache_bytes == 0)
    results = list(rungs(config, bench, seed=3, num_rungs=2))
    return [rung.loss for rung in results], [rung.similarity for rung in results]


@pytest.mark.parametrize("cache_bytes", [1 << 30, 300_000, 1])
def test_training_with_it_is_training_without(tiny_prepared: Prepared, cache_bytes: int) -> None:
    """With dropout in the blocks that train; with room for all sentences, for some and for none."""
    found, expected = (losses(tiny_prepared, size) for size in (cache_bytes, 0))
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert found[1] == pytest.approx(expected[1], abs=1e-3)


def test_dropout_in_the_frozen_part_goes_without(tiny_prepared: Prepared) -> None:
    bench = Workbench(tiny_prepared, EVALUATION)
    config = trial(freezing="emb+B0", examples_per_rung=700)
    assert Training(config, bench, 0, 1).prefix is not None
    assert Training(config.model_copy(update={"frozen_dropout": True}), bench, 0, 1).prefix is None
    for level in ("none", "emb", "emb+B0aio"):
        assert Training(config.model_copy(update={"freezing": level}), bench, 0, 1).prefix is None
