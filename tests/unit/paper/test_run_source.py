"""Recordings of runs: which points they hold, means over replicates, and what they are joined by."""

import dataclasses
from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.paper.recording import Counts, Recording, Scores
from raysweep.paper.run_source import recording_of_run
from raysweep.results.events import PointsScored, ReplicatesAveraged, RungFinished, TrialEnded, TrialStarted
from raysweep.results.ledger import Ledger
from raysweep.results.types import Cost, Mean, Point, Rung, TrialStatus
from raysweep.storage.folder import LocalFolder
from support.ledgers import REFERENCE, dev_front, point
from support.tables import grid, trial, write_run

ON_DEV = Counts(900, 16)


def recording(folder: Path) -> Recording:
    return recording_of_run(LocalFolder(folder))


def test_a_run_is_its_trials_plain_points_and_its_reference(tmp_path: Path) -> None:
    found = recording(write_run(tmp_path / "run", grid(), model="sentence-transformers/all-MiniLM-L6-v2"))
    assert (found.model, found.origin, found.dataset) == ("all-MiniLM-L6-v2", "run", "reviews.csv")
    assert found.retrieval == "k = 16, uniform rank weights"
    assert list(found.baselines) == ["reference"], "not the oracle"
    assert found.baselines["reference"]["dev"] == Scores(*REFERENCE["dev"], 0.25, 0.08, ON_DEV)
    first, *_ = found.configurations
    assert first.values == {"loss": "triplet", "margin": 0.1, "examples_per_rung": 2048}, "nothing that is None"
    assert first.rungs == {
        1: {"dev": Scores(0.70, 0.44, 0.25, 0.08, ON_DEV)},
        2: {"dev": Scores(0.81, 0.36, 0.25, 0.08, ON_DEV)},
    }
    assert len(found.configurations) == 4


def test_test_scores_stand_beside_those_on_dev(tmp_path: Path) -> None:
    found = recording(write_run(tmp_path / "run", grid(), test_of=dev_front(grid())))
    assert found.configurations[0].last_scores["test"] == Scores(0.81 - 0.02, 0.36 - 0.01, 0.25, 0.08, Counts(400, 16))
    assert set(found.configurations[2].last_scores) == {"dev"}, "not on the front"
    assert set(found.baselines["reference"]) == {"dev", "test"}


def test_a_configuration_with_replicates_has_their_means(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", grid())
    ledger = Ledger(folder)
    config = grid()[0].config
    ledger.append(TrialStarted(trial=4, config=config, num_rungs=2, replicate_of=0, run=2))
    for step, (polarity, similarity) in enumerate([(0.90, 0.40), (0.91, 0.30)], 1):
        rung = dataclasses.asdict(Rung(4, step, 1024 * 2**step, 10.0 * step, 0.1))
        ledger.append(RungFinished(**rung, stop=None, points=(point(4, step, polarity, similarity),), cost=Cost()))
    means = (Mean(0, 1, "plain", None, 2, 0.80, 0.1, 0.42, 0.02), Mean(0, 2, "plain", None, 2, 0.86, 0.05, 0.33, 0.03))
    ledger.append(ReplicatesAveraged(trial=0, runs=2, points=means))
    ledger.append(TrialEnded(trial=4, status=TrialStatus.COMPLETED, reason="", cost=Cost()))
    ledger.close()
    found = recording(folder)
    assert len(found.configurations) == 4
    assert [scores["dev"].polarity for scores in found.configurations[0].rungs.values()] == [0.80, 0.86]


def test_two_trials_of_one_configuration_are_their_mean(tmp_path: Path) -> None:
    trials = [trial("triplet", 0.1, [(0.7, 0.4), (0.8, 0.3)]), trial("triplet", 0.1, [(0.6, 0.5)], "stopped")]
    (one,) = recording(write_run(tmp_path / "run", trials)).configurations
    assert one.rungs[1]["dev"].polarity == pytest.approx(0.65)
    assert one.rungs[1]["dev"].similarity_std == pytest.approx(0.08)
    assert one.rungs[2]["dev"].polarity == pytest.approx(0.8)


def test_baselines_have_names_and_no_deviation_where_only_means_are_known(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", grid())
    ledger = Ledger(folder)
    plain = point(0, 1, 0.779, 0.271)
    made = [("setfit", None, "MiniLM", 0.29), ("published", None, "triplet 1.0", 0.0), ("probe", 0.3, None, 0.2)]
    for kind, value, label, deviation in made:
        given = Point(**{**dataclasses.asdict(plain), "trial": None, "step": None, "kind": kind, "value": value})
        given = dataclasses.replace(given, label=label, polarity_std=deviation, similarity_std=deviation)
        ledger.append(PointsScored(points=(given,)))
    ledger.close()
    baselines = recording(folder).baselines
    assert list(baselines) == ["reference", "probe=0.3", "setfit MiniLM", "published triplet 1.0"]
    assert baselines["setfit MiniLM"]["dev"] == Scores(0.779, 0.271, 0.29, 0.29, ON_DEV)
    assert baselines["published triplet 1.0"]["dev"] == Scores(0.779, 0.271, counts=ON_DEV)


def test_a_run_without_a_rung_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run: no rung is done, so there is nothing to show"):
        recording(write_run(tmp_path / "run", [trial("triplet", 0.1, [], "running")]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: not a run folder"):
        recording(tmp_path / "empty")


def test_the_setting_has_how_examples_were_mined(tmp_path: Path) -> None:
    nearest = "examples: {neighbors: pooled, k: 16}\nname: a\n"
    by_class = "examples: {neighbors: per_class, k: 16}\nname: a\n"
    one, same, other, unknown = (
        recording(write_run(tmp_path / name, grid(), config=config)).setting
        for name, config in [("a", nearest), ("b", nearest.replace("name: a", "name: b")), ("c", by_class), ("d", "")]
    )
    assert one == same
    assert len({one, other, unknown}) == 3
    assert recording(write_run(tmp_path / "e", grid(), config=nearest, k=8)).setting != one
