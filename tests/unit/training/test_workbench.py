"""The state that trials of a process share: the encoder, its scores, and the prefix cache."""

import pickle

import pytest
import torch

from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.training.trainable import TrainedWeights
from raysweep.training.trainer import Training
from raysweep.training.trial import rungs
from raysweep.training.workbench import Workbench
from support.encoders import EVALUATION, trial

PLAIN = ("plain", None)


def test_untrained_encoder_scores_like_the_reference(demo_bench: Workbench) -> None:
    demo_bench.reset()
    scores = demo_bench.measure(demo_bench.dev, [PLAIN])[PLAIN]
    assert scores["polarity"].mean() == pytest.approx(
        demo_bench.dev.reference_scores["polarity"].mean(), abs=1e-6
    )
    assert scores["similarity"].mean() == pytest.approx(
        demo_bench.dev.reference_scores["similarity"].mean(), abs=1e-6
    )
    point = demo_bench.dev.point(scores, trial=0, step=0, kind="plain", value=None, width=384)
    assert point["retention"] == pytest.approx(1)


def test_non_finite_embeddings_are_rejected(tiny_bench: Workbench) -> None:
    name, parameter = next(iter(tiny_bench.model.named_parameters()))
    tiny_bench.reset(TrainedWeights({name: torch.full_like(parameter, float("nan"))}))
    with pytest.raises(TrialDivergedError, match="embeddings.*finite"):
        tiny_bench.measure(tiny_bench.dev, [PLAIN])


def test_pickled_artifacts_are_small(tiny_bench: Workbench) -> None:
    # opened here
    assert len(tiny_bench.prepared.sentences) == len(
        tiny_bench.prepared.reference_embeddings.document
    )
    pickled = pickle.dumps(tiny_bench.prepared)
    assert len(pickled) < 5000
    assert len(pickle.loads(pickled).reference_embeddings.document) == len(
        tiny_bench.prepared.reference_embeddings.document
    )


def losses_and_similarities(
    prepared: Prepared, cache_bytes: int
) -> tuple[list[float], list[float]]:
    """Return the losses and similarities of two rungs."""
    bench = Workbench(prepared, EVALUATION, cache_bytes=cache_bytes)
    config = trial(freezing="emb+B0-1", learning_rate=1e-3, examples_per_rung=80)
    assert (Training(config, bench, 3, 2).prefixes is None) == (cache_bytes == 0)
    results = list(rungs(config, bench, seed=3, num_rungs=2))
    return [rung.loss for rung in results], [rung.similarity for rung in results]


@pytest.mark.parametrize("cache_bytes", [1 << 30, 300_000, 1])
def test_prefix_cache_does_not_change_training(tiny_prepared: Prepared, cache_bytes: int) -> None:
    """The cache has room for all sentences, for some or for none, and the trained blocks have dropout."""
    cached_losses, cached_similarities = losses_and_similarities(tiny_prepared, cache_bytes)
    expected_losses, expected_similarities = losses_and_similarities(tiny_prepared, 0)
    assert cached_losses == pytest.approx(expected_losses, rel=1e-5)
    assert cached_similarities == pytest.approx(expected_similarities, abs=1e-3)


def test_frozen_dropout_disables_the_prefix_cache(tiny_prepared: Prepared) -> None:
    bench = Workbench(tiny_prepared, EVALUATION)
    config = trial(freezing="emb+B0", examples_per_rung=700)
    assert Training(config, bench, 0, 1).prefixes is not None
    assert (
        Training(config.model_copy(update={"frozen_dropout": True}), bench, 0, 1).prefixes is None
    )
    for level in ("none", "emb", "emb+B0aio"):
        assert Training(config.model_copy(update={"freezing": level}), bench, 0, 1).prefixes is None
