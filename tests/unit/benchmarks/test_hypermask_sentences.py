"""The methods on a made sequence: HyperMask equals a trial, the probe a baseline, and rows are means and differences."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import hypermask_sentences
from benchmarks.hypermask_sentences import (
    HYPERMASK,
    MEAN,
    METHODS,
    PROBE,
    SEPARATE,
    UNTUNED,
    DataSet,
    Method,
    compare,
    rows,
    train,
)
from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.training.hypermask.model import MaskSettings
from raysweep.training.hypermask.sequence import TrainingSettings
from raysweep.training.sequence_bench import SequenceBench
from raysweep.training.trial import rungs
from support.sequences import trial

EVALUATION = EvaluationConfig(k=4)
SETTINGS = TrainingSettings(num_iterations=5, batch_size=8, seed=3)


def test_hypermask_scores_like_a_trial(
    sequence_prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypermask_sentences, "ADAPTER_SIZE", 8)
    masks = MaskSettings(
        10, "signed", beta=0.1, lambda_=0.01, embedding_size=24, hidden_layers=(4, 4)
    )
    method = Method(HYPERMASK, 3e-3, "shared", masks)
    outcome = train(
        method, list(DataSet.read_all(sequence_prepared, EVALUATION).values()), SETTINGS
    )
    *_, last = rungs(trial(), SequenceBench(sequence_prepared, EVALUATION), seed=3, num_rungs=2)
    assert list(outcome.keys) == list(last.points)
    for number, scores in enumerate(last.points.values()):
        means = [100 * scores.mean(name) for name in ("polarity", "similarity")]
        np.testing.assert_allclose(outcome.dev.mean(axis=0)[number], means, rtol=1e-6)


def test_all_methods_in_both_orders(sequence_prepared: Prepared) -> None:
    methods = [replace(method, learning_rate=0.01) for method in METHODS]
    (order, outcomes, _), (reverse, reversed_outcomes, _) = compare(
        sequence_prepared, [0, 1], SETTINGS, EVALUATION, methods
    )
    assert order == ("sentiment", "length") == reverse[::-1]
    for name in (PROBE, UNTUNED):
        for outcome, of_reverse in zip(outcomes[name], reversed_outcomes[name], strict=True):
            np.testing.assert_array_equal(outcome.at_end, of_reverse.at_end[::-1])
    for name, of_method in outcomes.items():
        for outcome in of_method:
            assert outcome.at_end.shape == (2, len(outcome.keys), 2)
            if name in (PROBE, UNTUNED, SEPARATE):
                np.testing.assert_array_equal(outcome.right_after, outcome.at_end)
    cells = {(data_set, name): of_row for data_set, name, of_row in rows(order, outcomes)}
    assert len(cells) == 3 * len(outcomes)
    for key in ("P", "S"):
        ours, theirs = (
            np.array([one.values(None)[key] for one in outcomes[name]])
            for name in (HYPERMASK, PROBE)
        )
        mean, _ = cells[MEAN, PROBE][f"HyperMask minus it: {key}"]
        assert mean == pytest.approx((ours - theirs).mean())
        by_data_set = [cells[name, PROBE][key][0] for name in order]
        assert cells[MEAN, PROBE][key][0] == pytest.approx(np.mean(by_data_set))
