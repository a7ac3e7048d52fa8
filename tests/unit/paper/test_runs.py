"""Scores of runs: points, means over replicates, and settings."""

import dataclasses
from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.paper.model_scores import Counts, ModelScores, Scores
from raysweep.paper.sources import read_run
from raysweep.results.events import (
    PointsScored,
    ReplicatesAveraged,
    RungFinished,
    TrialEnded,
    TrialStarted,
)
from raysweep.results.ledger import Ledger
from raysweep.results.scores import Score
from raysweep.results.types import Cost, Mean, Rung, TrialStatus
from raysweep.storage.folder import LocalFolder
from support.ledgers import REFERENCE, dev_front, point
from support.points import with_spreads
from support.tables import grid, trial, write_run

ON_DEV = Counts(900, 16)


def scores_of(folder: Path) -> ModelScores:
    return read_run(LocalFolder(folder))


def test_a_run_has_its_plain_points_and_its_reference(tmp_path: Path) -> None:
    scores = scores_of(
        write_run(tmp_path / "run", grid(), model="sentence-transformers/all-MiniLM-L6-v2")
    )
    assert (scores.model, scores.origin, scores.dataset) == (
        "all-MiniLM-L6-v2",
        "run",
        "reviews.csv",
    )
    assert scores.retrieval == "k = 16, uniform rank weights"
    assert list(scores.baselines) == ["reference"], "not the oracle"
    assert scores.baselines["reference"]["dev"] == Scores(*REFERENCE["dev"], 0.25, 0.08, ON_DEV)
    first, *_ = scores.configurations
    assert first.values == {"loss": "triplet", "margin": 0.1, "examples_per_rung": 2048}, (
        "nothing that is None"
    )
    assert first.rungs == {
        1: {"dev": Scores(0.70, 0.44, 0.25, 0.08, ON_DEV)},
        2: {"dev": Scores(0.81, 0.36, 0.25, 0.08, ON_DEV)},
    }
    assert len(scores.configurations) == 4


def test_test_scores_are_kept_next_to_dev_scores(tmp_path: Path) -> None:
    scores = scores_of(write_run(tmp_path / "run", grid(), test_of=dev_front(grid())))
    assert scores.configurations[0].rungs[2]["test"] == Scores(
        0.81 - 0.02, 0.36 - 0.01, 0.25, 0.08, Counts(400, 16)
    )
    assert set(scores.configurations[2].rungs[2]) == {"dev"}, "not on the front"
    assert set(scores.baselines["reference"]) == {"dev", "test"}


def test_a_configuration_with_replicates_has_their_means(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", grid())
    ledger = Ledger(folder)
    config = grid()[0].config
    ledger.append(TrialStarted(trial=4, config=config, num_rungs=2, replicate_of=0, run=2))
    for step, (polarity, similarity) in enumerate([(0.90, 0.40), (0.91, 0.30)], 1):
        rung = dataclasses.asdict(Rung(4, step, 1024 * 2**step, 10.0 * step, 0.1))
        ledger.append(
            RungFinished(
                **rung, stop=None, points=(point(4, step, polarity, similarity),), cost=Cost()
            )
        )
    means = (
        Mean(
            0, 1, "plain", None, 2, {"polarity": Score(0.80, 0.1), "similarity": Score(0.42, 0.02)}
        ),
        Mean(
            0, 2, "plain", None, 2, {"polarity": Score(0.86, 0.05), "similarity": Score(0.33, 0.03)}
        ),
    )
    ledger.append(ReplicatesAveraged(trial=0, runs=2, points=means))
    ledger.append(TrialEnded(trial=4, status=TrialStatus.COMPLETED, reason="", cost=Cost()))
    ledger.close()
    scores = scores_of(folder)
    assert len(scores.configurations) == 4
    assert [scores["dev"].polarity for scores in scores.configurations[0].rungs.values()] == [
        0.80,
        0.86,
    ]


def test_trials_of_one_configuration_are_averaged(tmp_path: Path) -> None:
    trials = [
        trial("triplet", 0.1, [(0.7, 0.4), (0.8, 0.3)]),
        trial("triplet", 0.1, [(0.6, 0.5)], "stopped"),
    ]
    (one,) = scores_of(write_run(tmp_path / "run", trials)).configurations
    assert one.rungs[1]["dev"].polarity == pytest.approx(0.65)
    assert one.rungs[1]["dev"].similarity_std == pytest.approx(0.08)
    assert one.rungs[2]["dev"].polarity == pytest.approx(0.8)


def test_baselines_have_names_and_known_deviations(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", grid())
    ledger = Ledger(folder)
    plain = point(0, 1, 0.779, 0.271)
    baselines_of_run = [
        ("setfit", None, "MiniLM", 0.29),
        ("published", None, "triplet 1.0", 0.0),
        ("probe", 0.3, None, 0.2),
    ]
    for kind, value, label, deviation in baselines_of_run:
        baseline = dataclasses.replace(plain, trial=None, step=None, kind=kind, value=value)
        baseline = dataclasses.replace(with_spreads(baseline, deviation, deviation), label=label)
        ledger.append(PointsScored(points=(baseline,)))
    ledger.close()
    baselines = scores_of(folder).baselines
    assert list(baselines) == ["reference", "probe=0.3", "setfit MiniLM", "published triplet 1.0"]
    assert baselines["setfit MiniLM"]["dev"] == Scores(0.779, 0.271, 0.29, 0.29, ON_DEV)
    assert baselines["published triplet 1.0"]["dev"] == Scores(0.779, 0.271, counts=ON_DEV)


def test_a_run_without_a_finished_rung_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run: no rung"):
        scores_of(write_run(tmp_path / "run", [trial("triplet", 0.1, [], "running")]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: "):
        scores_of(tmp_path / "empty")


def test_the_setting_includes_mining(tmp_path: Path) -> None:
    nearest = "examples: {neighbors: pooled, k: 16}\nname: a\n"
    by_class = "examples: {neighbors: per_class, k: 16}\nname: a\n"
    one, same, other, unknown = (
        scores_of(write_run(tmp_path / name, grid(), config=config)).setting
        for name, config in [
            ("a", nearest),
            ("b", nearest.replace("name: a", "name: b")),
            ("c", by_class),
            ("d", ""),
        ]
    )
    assert one == same
    assert len({one, other, unknown}) == 3
    assert scores_of(write_run(tmp_path / "e", grid(), config=nearest, k=8)).setting != one
