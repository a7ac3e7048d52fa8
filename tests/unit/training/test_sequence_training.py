"""Trials over a sequence of data sets."""

from pathlib import Path

import numpy as np
import pytest
import torch

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.training.sequence_bench import SequenceBench
from raysweep.training.sequence_training import SequenceTraining
from raysweep.training.sub_embeddings import SubEmbeddings
from raysweep.training.trial import run_trial, rungs
from raysweep.training.workbench import RungResult
from support.sequences import trial

EVALUATION = EvaluationConfig(k=4)


@pytest.fixture
def bench(sequence_prepared: Prepared) -> SequenceBench:
    return SequenceBench(sequence_prepared, EVALUATION)


def check_equal(resumed: RungResult, expected: RungResult) -> None:
    assert (resumed.step, resumed.loss) == (expected.step, expected.loss)
    for key, scores in {**expected.tasks, **expected.points}.items():
        for name, values in scores.named.items():
            np.testing.assert_array_equal({**resumed.tasks, **resumed.points}[key][name], values)


def test_only_the_last_rung_has_points_of_all_data_sets(bench: SequenceBench) -> None:
    first, last = rungs(trial(), bench, seed=3, num_rungs=2)
    assert list(first.points) == []
    assert list(first.tasks) == [("mask", 1.0)]
    assert list(last.tasks) == [("mask", 1.0), ("mask", 2.0)]
    assert list(last.points) == [
        ("plain", None),
        *(("concat", weight) for weight in (0.1, 0.3, 1.0, 3.0)),
    ]
    of_tasks = [scores.mean("polarity") for scores in last.tasks.values()]
    assert last.polarity == pytest.approx(np.mean(of_tasks))


def test_points_are_scored_as_on_each_data_set_alone(bench: SequenceBench) -> None:
    *_, last = rungs(trial(), bench, seed=3, num_rungs=2)
    for number, part in enumerate(bench.prepared.parts.values()):
        num_queries = len(last.tasks["mask", 1.0]["polarity"])
        alone = EvaluationSet.of(part, "dev", EVALUATION, num_queries)
        embeddings = torch.tensor(np.array(part.reference_embeddings.document))
        embedded = bench.sub_embeddings.embed(embeddings, number).numpy()
        expected = alone.score(embedded[alone.queries], embedded[alone.pool])
        for name, values in expected.named.items():
            np.testing.assert_allclose(last.tasks["mask", number + 1.0][name], values, atol=1e-6)


@pytest.mark.parametrize("num_steps", [2, 5, 7])
def test_resumes_to_the_same_bits(
    sequence_prepared: Prepared, tmp_path: Path, num_steps: int
) -> None:
    """The trial is interrupted within its first data set, between both, and within the second."""
    expected = list(
        rungs(trial(), SequenceBench(sequence_prepared, EVALUATION), seed=3, num_rungs=2)
    )
    interrupted = SequenceTraining(trial(), SequenceBench(sequence_prepared, EVALUATION), 3, 2)
    last = None
    for _ in range(num_steps):
        interrupted.step()
        if interrupted.rung_is_full:
            last = interrupted.evaluate()
    interrupted.save(tmp_path, last)
    torch.manual_seed(99)
    fresh = SequenceBench(sequence_prepared, EVALUATION)
    resumed = list(rungs(trial(), fresh, seed=3, num_rungs=2, checkpoints=tmp_path))
    assert [rung.step for rung in resumed] == ([1, 2] if num_steps <= 5 else [2])
    for rung in resumed:
        check_equal(rung, expected[rung.step - 1])


def test_stored_weights_give_the_same_scores(bench: SequenceBench) -> None:
    *_, last = rungs(trial(), bench, seed=3, num_rungs=2)
    weights = bench.trained()
    fresh = SequenceBench(bench.prepared, EVALUATION)
    fresh.reset(weights)
    scores = fresh.measure(fresh.dev, list(last.points))
    for key, expected in last.points.items():
        np.testing.assert_array_equal(scores[key]["similarity"], expected["similarity"])
    with pytest.raises(ValueError, match=r"embeddings\.weight"):
        SubEmbeddings.from_weights(type(weights)({"embeddings.weight": torch.ones(2)}))


def test_sub_embeddings_are_the_outputs_of_the_masked_adapter(bench: SequenceBench) -> None:
    training = SequenceTraining(trial(), bench, 3, 2)
    inputs = torch.nn.functional.normalize(
        torch.randn(6, 64, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    adapter = SubEmbeddings.of(training.learner.model, 2)
    for task in (0, 1):
        expected = training.learner.predict(inputs, task).embeddings
        torch.testing.assert_close(adapter.embed(inputs, task), expected, rtol=0, atol=0)


def test_the_number_of_rungs_is_that_of_data_sets(sequence_prepared: Prepared) -> None:
    with pytest.raises(InputError, match="num_rungs is 3; allowed: 2"):
        run_trial(trial(), sequence_prepared, num_rungs=3)
