"""Warm starts from older runs."""

import json
from pathlib import Path

import pytest

from raysweep.config.trial import TrialConfig
from raysweep.controller import warm_start
from raysweep.errors import InputError
from raysweep.metrics.scores import GOALS
from raysweep.results.events import PointsScored
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import Point
from raysweep.storage.folder import LocalFolder
from support.points import make_scores
from support.sweeps import REFERENCE, make, play, settings


def store_reference_scores(run: Path) -> None:
    ledger = Ledger(run)
    polarity, similarity = REFERENCE
    scores = Point(None, None, "reference", None, "dev", 384, make_scores(polarity, similarity))
    ledger.append(PointsScored(points=(scores,)))
    ledger.close()


@pytest.fixture
def lesson(tmp_path: Path) -> warm_start.WarmStart:
    play(make(tmp_path / "run", early_stopping__policy="none")[0])
    store_reference_scores(tmp_path / "run")
    return warm_start.gather([load(tmp_path / "run")], settings(tmp_path)[1], REFERENCE, GOALS)


def test_warm_start_round_trips(lesson: warm_start.WarmStart, tmp_path: Path) -> None:
    assert len(lesson.observations) == 12 and len(lesson.first) == warm_start.NUM_FIRST
    assert warm_start.read(LocalFolder(tmp_path)) is None
    warm_start.write(LocalFolder(tmp_path), lesson)
    assert warm_start.read(LocalFolder(tmp_path)) == lesson


def test_scores_are_rescaled_to_the_new_reference(
    lesson: warm_start.WarmStart, tmp_path: Path
) -> None:
    better = warm_start.gather([load(tmp_path / "run")], settings(tmp_path)[1], (0.8, 0.94), GOALS)
    for before, after in zip(lesson.observations, better.observations, strict=True):
        for seen, front in before.fronts.items():
            expected = [(0.8 + (p - 0.6) * 0.5, 2 * s) for p, s in front]
            assert after.fronts[seen] == tuple(pytest.approx(pair) for pair in expected)


def test_trials_that_differ_in_a_default_are_skipped(tmp_path: Path) -> None:
    play(
        make(
            tmp_path / "run",
            early_stopping__policy="none",
            space__weight_decay="{choices: [0.01, 0.3]}",
        )[0]
    )
    store_reference_scores(tmp_path / "run")
    run = load(tmp_path / "run")
    gathered = warm_start.gather([run], settings(tmp_path)[1], REFERENCE, GOALS)
    alike = [trial for trial in run.trials if trial.config["weight_decay"] == 0.01]
    assert TrialConfig.model_fields["weight_decay"].default == 0.01 and 0 < len(alike) < 12
    assert [dict(observation.values) for observation in gathered.observations] == [
        dict(trial.config) for trial in alike
    ]
    assert gathered.num_left_out == 12 - len(alike)


def test_trials_without_a_tower_are_those_of_both(tmp_path: Path) -> None:
    """An older run of one tower informs a sweep over all, and not one of separate encoders only."""
    play(make(tmp_path / "run", early_stopping__policy="none", space__loss="triplet")[0])
    store_reference_scores(tmp_path / "run")
    runs = [load(tmp_path / "run")]
    assert all("tower" not in trial.config for trial in runs[0].trials)
    towers = {"{choices: [both, query, separate]}": 12, "separate": 0}
    for tower, expected in towers.items():
        _, space = settings(tmp_path, space__loss="triplet", space__tower=tower)
        gathered = warm_start.gather(runs, space, REFERENCE, GOALS)
        assert (len(gathered.observations), gathered.num_left_out) == (expected, 12 - expected)


def test_damaged_file_is_named(lesson: warm_start.WarmStart, tmp_path: Path) -> None:
    warm_start.write(LocalFolder(tmp_path), lesson)
    path = tmp_path / warm_start.FILE
    values = json.loads(path.read_text())
    values["observations"][1]["status"] = "great"
    path.write_text(json.dumps(values))
    with pytest.raises(
        InputError, match=r"warm_start\.json: observations\.1\.status: input should be 'running'"
    ):
        warm_start.read(LocalFolder(tmp_path))
