"""Views of stored results."""

import pytest

from raysweep.results.scores import Score
from raysweep.results.types import Mean, Results, Trial, TrialStatus
from raysweep.results.views import averaged, varied_parameters
from support.ledgers import INFO, point
from support.points import with_means


def test_accuracy_is_averaged_over_the_same_runs_as_the_scores() -> None:
    statuses = [TrialStatus.PAUSED, TrialStatus.COMPLETED, TrialStatus.FAILED, TrialStatus.RUNNING]
    trials = [
        Trial(number, {}, status, replicate_of=0 if number else None)
        for number, status in enumerate(statuses)
    ]
    accuracies = [0.7, 0.8, 0.1, 0.2]
    points = [
        with_means(point(number, 1, 0.6, 0.4), accuracy=accuracy)
        for number, accuracy in enumerate(accuracies)
    ]
    mean = Mean(
        trial=0,
        step=1,
        kind="plain",
        value=None,
        runs=2,
        scores={"polarity": Score(0.65, 0.1), "similarity": Score(0.4, 0.0)},
    )
    results = Results(
        "run", INFO, tuple(trials), (), tuple(points), "completed", "", 1.0, means=(mean,)
    )
    (mean,) = averaged(results)
    assert mean["polarity"] == 0.65
    assert mean["accuracy"] == pytest.approx(0.75)


def test_searched_parameters_are_shown_before_they_differ() -> None:
    """Otherwise, labels of trials would change early in a run."""
    config = {
        "weight_decay": 0.01,
        "loss": "triplet",
        "margin": 0.1,
        "learning_rate": 3e-5,
        "batch_size": 64,
    }
    trials = [Trial(number, config, TrialStatus.COMPLETED) for number in range(2)]
    searched = ("loss", "weight_decay", "learning_rate", "freezing")
    assert varied_parameters(trials, searched) == ("loss", "learning_rate", "weight_decay")
    assert varied_parameters(trials[:1], searched) == ("loss", "learning_rate", "weight_decay")
