"""Watched data from rungs through the ledger to the report, and the score ``watched`` as S."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from raysweep.config.trial import TrialConfig
from raysweep.controller.front_scores import FrontScores, UnwatchedRung
from raysweep.controller.sweep import Sweep
from raysweep.metrics.measured_value import MeasuredValue
from raysweep.report import write
from raysweep.report.summary import summary_of
from raysweep.results.events import PointsScored
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.reader import load
from raysweep.results.scores import Score
from raysweep.results.types import Point
from raysweep.results.watched import TensorChange, Watched, WatchedSet
from raysweep.storage.folder import LocalFolder
from support import sweeps
from support.ledgers import INFO, start_session
from support.points import make_scores

BASE = 0.2


def made_set(name: str, share: float) -> WatchedSet:
    """Return a set whose PND changes from BASE to ``share``, significantly if by more than 0.05."""
    low, high = sorted((share - BASE - 0.05, share - BASE + 0.05))
    values = tuple(
        MeasuredValue("PND, by query", geometry, share, BASE, low, high)
        for geometry in ("cosine", "distance")
    )
    return WatchedSet(name, "retrieval", 10, 0, 0, 100, values, values)


def made_watched(config: TrialConfig, step: int) -> Watched:
    """Return values that improve the target at each rung, and worsen the watched set at high learning rates."""
    worse = 0.02 * step + 1e3 * config.learning_rate
    tensors = (TensorChange("0.weight", 0.5, 0.1), TensorChange("0.bias", 0.7))
    return Watched(
        (made_set("other", BASE + worse),),
        made_set("dev", BASE - 0.1),
        config.peak_learning_rate,
        tensors,
    )


def rung(config: TrialConfig, step: int) -> dict[str, Any]:
    values = sweeps.rung(config, step)
    watched = made_watched(config, step)
    values["points"][0]["watched"] = watched.score
    return {**values, "watched": watched.to_json()}


def begin(folder: Path, **settings: str) -> Sweep:
    (folder / "points").mkdir(parents=True, exist_ok=True)
    watch = "{sources: [other.jsonl], at: rung}"
    config, space = sweeps.settings(
        folder,
        **{
            "objective__similarity": "watched",
            "early_stopping__policy": "none",
            "watch": watch,
            **settings,
        },
    )
    return sweeps.assemble(config, space, Ledger(folder))[0]


def play(sweep: Sweep, num_trials: int, num_rungs: int = 4) -> None:
    for _ in range(num_trials):
        proposal = sweep.assign()
        assert proposal is not None
        number, config = proposal
        sweep.place(number)
        for step in range(sweep.progress.steps_done(number) + 1, num_rungs + 1):
            sweep.record_rung(number, rung(config, step))
        sweep.release(number)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a run that is killed after half of its trials and resumed."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    info = dataclasses.replace(
        INFO, similarity="watched", num_queries={"dev": 9}, num_pool={"dev": 9}
    )
    begun = begin(folder)
    begun.ledger.append(start_session(folder, info))
    reference = {**make_scores(0.6, 0.47), "watched": Score(1 - BASE)}
    begun.ledger.append(
        PointsScored(points=(Point(None, None, "reference", None, "dev", 8, reference),))
    )
    play(begun, 6)
    begun.ledger.close()
    resumed = begin(folder)
    resumed.ledger.open()
    resumed.replay(list(read_events(folder / "ledger.jsonl")))
    assert resumed.front == begun.front
    assert resumed.progress.watched == dict.fromkeys(range(6), 4)
    play(resumed, 6)
    resumed.finish("completed", "")
    resumed.ledger.close()
    return folder


def test_front_is_that_of_polarity_and_watched(run: Path) -> None:
    summary = summary_of(LocalFolder(run))
    points = [point for point in summary.results.points if point.trial is not None]
    pairs = {(point["polarity"], point["watched"]) for point in points}
    front = {
        (p, s)
        for p, s in pairs
        if not any(q >= p and r >= s and (q, r) != (p, s) for q, r in pairs)
    }
    assert 1 < len(front) < len(points)
    assert {member.dev.pair(summary.goals) for member in summary.members} == front
    assert summary.areas["dev"].reference_point == pytest.approx((0.6, (1 - BASE) / 2))
    assert all(summary.intervals_of(member.dev) is None for member in summary.members)


def test_rungs_are_read_back_as_they_were_measured(run: Path) -> None:
    results = load(run)
    assert len(results.watched) == 12 * 4
    from raysweep.config.trial import trial_config

    configs = {trial.trial: trial_config(dict(trial.config)) for trial in results.trials}
    assert all(
        found.watched == made_watched(configs[found.trial], found.step) for found in results.watched
    )


def test_report_has_the_last_rungs_and_the_range(run: Path) -> None:
    report = write.write(run).folder
    stored = json.loads((report / "watch.json").read_text())
    rates = [trial["learning_rate"] for trial in stored["trials"]]
    assert rates == sorted(rates) and len(rates) == 12
    assert {trial["step"] for trial in stored["trials"]} == {4}
    adiabatic = stored["adiabatic_range"]["cosine"]
    worse = [trial["watched"][0]["whole"][0]["value"] / 100 - BASE for trial in stored["trials"]]
    assert adiabatic["learning_rates"] == [
        rate for rate, rise in zip(rates, worse, strict=True) if rise <= 0.05
    ]
    first = stored["trials"][0]
    assert first["target"]["whole"][0]["verdict"] == "improved"
    assert [tensor["name"] for tensor in first["tensors"]] == ["0.weight", "0.bias"]
    rows = pyarrow.parquet.read_table(report / "watched.parquet").to_pylist()
    assert len(rows) == 12 * 4 * 2 * 2
    assert {row["role"] for row in rows} == {"target", "watched"}
    assert (report / "watch.png").read_bytes().startswith(b"\x89PNG")
    assert 'id="watched"' in (report / "report.html").read_text()
    assert "adiabatic range" in (report / "front.md").read_text()


def test_unmeasured_trials_follow_after_the_search(tmp_path: Path) -> None:
    """Paused trials are measured once, at their last rungs, and a resumed sweep does not measure them again."""
    sweep = begin(tmp_path, objective__similarity="similarity", watch="[other.jsonl]")
    number, config = sweep.assign() or pytest.fail("no trial")
    sweep.place(number)
    unmeasured = {key: value for key, value in rung(config, 1).items() if key != "watched"}
    sweep.steering.paused_at = 0.0
    assert sweep.record_rung(number, unmeasured)
    sweep.release(number)
    sweep.steering.paused_at = None
    scores = FrontScores(sweep, has_test=False)
    waiting = scores.next()
    assert isinstance(waiting, UnwatchedRung)
    assert (waiting.trial, waiting.step, waiting.config) == (number, 1, config)
    scores.take_watched(waiting, made_watched(config, 1))
    assert scores.next() is None
    assert FrontScores(sweep, has_test=False).next() is None
    sweep.ledger.close()
    (stored,) = [
        event for event in read_events(tmp_path / "ledger.jsonl") if event.kind == "watched"
    ]
    assert stored.watched == made_watched(config, 1)  # type: ignore[attr-defined]
