"""A third score, added as one entry of the table, from a retrieval to the report: as a goal, and as another column."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from raysweep.config.trial import TrialConfig
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.measures import Retrieved
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import SCORES, Goals, Pair, ScoreSpec
from raysweep.report import write
from raysweep.report.area_difference import CountedFront, difference
from raysweep.report.summary import summary_of
from raysweep.results.events import PointsScored
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.query_scores import (
    PackedScores,
    baselines_file,
    load_query_scores,
    name_of_point,
    rung_file,
)
from raysweep.results.reader import load
from raysweep.results.scores import Score
from raysweep.results.types import Point
from raysweep.storage.folder import LocalFolder
from raysweep.uncertainty.interval import LEVEL
from support import sweeps
from support.ledgers import INFO, start_session
from support.points import make_scores

NUM_QUERIES = 9


def recall(retrieved: Retrieved) -> Float64Array:
    """Return the share of the pool's sentences with the query's label that are retrieved."""
    num_relevant = (retrieved.pool_labels == retrieved.query_labels[:, None]).sum(axis=1)
    return retrieved.has_query_label.sum(axis=1) / num_relevant


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, "recall", ScoreSpec("recall", recall))


def test_retrievals_are_scored_with_it() -> None:
    positions = np.array([[0, 1], [2, 3]])
    labels = np.array([0, 1]), np.array([0, 1, 1, 0, 1])
    scores = retrieval.score(positions, np.ones((2, 2)), *labels, np.array([0.5, 0.5]))
    assert scores["recall"].tolist() == [1 / 2, 1 / 3]


def rung(config: TrialConfig, step: int) -> dict[str, Any]:
    """Return the invented rung with a recall that falls, rises and falls with the polarity."""
    values = sweeps.rung(config, step)
    (point,) = values["points"]
    point |= {"recall": 0.3 + 0.1 * np.cos(25 * point["polarity"]), "recall_std": 0.05}
    return values


def begin(folder: Path, similarity: str) -> Sweep:
    (folder / "points").mkdir(parents=True, exist_ok=True)
    config, space = sweeps.settings(
        folder, objective__similarity=similarity, early_stopping__policy="none"
    )
    return sweeps.assemble(config, space, Ledger(folder))[0]


def play(sweep: Sweep, num_trials: int) -> None:
    for _ in range(num_trials):
        proposal = sweep.assign()
        assert proposal is not None
        number, config = proposal
        sweep.place(number)
        for step in range(1, 5):
            write_scores(
                sweep.run,
                rung_file("dev", number, step),
                [((number, step, "plain", None), rung(config, step))],
            )
            sweep.record_rung(number, rung(config, step))
        sweep.release(number)


def write_scores(run: Any, file: str, named_rungs: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    """Store per-query scores with the means of the rungs' points."""
    spread = np.linspace(-0.05, 0.05, NUM_QUERIES)
    scores = {}
    for name, values in named_rungs:
        (point,) = values["points"]
        scores[name] = {
            score: point[score] + spread for score in ("polarity", "similarity", "recall")
        }
    run.put(file, PackedScores.pack_points(scores).content())


def run_of(folder: Path, similarity: str) -> list[Point]:
    """Write a run that is killed after half of its trials and resumed, and return its points on dev."""
    info = dataclasses.replace(
        INFO, similarity=similarity, num_queries={"dev": NUM_QUERIES}, num_pool={"dev": 9}
    )
    begun = begin(folder, similarity)
    begun.ledger.append(start_session(folder, info))
    reference = {**make_scores(0.6, 0.47), "recall": Score(0.25, 0.05)}
    point = Point(None, None, "reference", None, "dev", 8, reference)
    begun.ledger.append(PointsScored(points=(point,)))
    values = {"points": [{"polarity": 0.6, "similarity": 0.47, "recall": 0.25}]}
    write_scores(begun.run, baselines_file("dev"), [(name_of_point(point), values)])
    play(begun, 6)
    begun.ledger.close()
    resumed = begin(folder, similarity)
    resumed.ledger.open()
    resumed.replay(list(read_events(folder / "ledger.jsonl")))
    assert resumed.front == begun.front
    play(resumed, 6)
    resumed.finish("completed", "")
    resumed.ledger.close()
    return [point for point in load(folder).points if point.trial is not None]


def test_the_interval_of_a_difference_uses_its_reference_point(tmp_path: Path) -> None:
    """All points and the reference have the same noise, so every resample has the same difference."""
    run_of(tmp_path, "recall")
    summary = summary_of(LocalFolder(tmp_path))
    start = summary.areas["dev"].reference_point
    fronts = []
    for points in (summary.front.on("dev"), summary.front.on("dev")[:1]):
        area = hypervolume([point.pair(summary.goals) for point in points], start)
        fronts.append(CountedFront("run", summary, "dev", points, area))
    counted = difference(*fronts, LEVEL)
    assert counted.interval is not None and counted.estimate > 0
    assert (counted.interval.low, counted.interval.high) == pytest.approx(
        (counted.estimate, counted.estimate)
    )


def expected_front(points: Sequence[Point], goals: Goals) -> set[Pair]:
    pairs = {point.pair(goals) for point in points}
    return {
        (p, s)
        for p, s in pairs
        if not any(q >= p and r >= s and (q, r) != (p, s) for q, r in pairs)
    }


@pytest.mark.parametrize("similarity", ["recall", "similarity"])
def test_it_is_in_all_files_and_on_the_front_if_it_is_a_goal(
    tmp_path: Path, similarity: str
) -> None:
    points = run_of(tmp_path, similarity)
    goals = Goals("polarity", similarity)
    summary = summary_of(LocalFolder(tmp_path))
    front = expected_front(points, goals)
    assert len(front) > 1 and (len(front) < len(points) or similarity == "similarity")
    assert {member.dev.pair(goals) for member in summary.members} == front
    stored = load_query_scores(LocalFolder(tmp_path), summary.results)["dev"]
    for member in summary.members:
        means = stored.scores[stored.index(name_of_point(member.dev))].mean(axis=-1)
        assert means == pytest.approx(member.dev.pair(goals), abs=1e-4)
        intervals = summary.intervals_of(member.dev)
        assert intervals is not None
        assert intervals[similarity].low < member.dev[similarity] < intervals[similarity].high
    area = summary.areas["dev"]
    assert area.reference_point == pytest.approx(
        (0.6, 0.25 if similarity == "recall" else 0.47 / 2)
    )
    report = write.write(tmp_path).folder
    rows = json.loads((report / "front.json").read_text())
    assert {(row["polarity"], row[similarity]) for row in rows} == {
        (round(100 * p, 4), round(100 * s, 4)) for p, s in front
    }
    assert all({"polarity", "similarity", "retention", "recall"} <= row.keys() for row in rows)
    table = pyarrow.parquet.read_table(report / "points.parquet").to_pydict()
    recalls = [
        value for value, kind in zip(table["recall"], table["kind"], strict=True) if kind == "plain"
    ]
    assert recalls == [round(100 * point["recall"], 4) for point in points]
    markdown = (report / "front.md").read_text()
    assert "dev recall" in markdown
    assert ("half of its S" if similarity == "similarity" else "R's P and its recall") in markdown
    page = (report / "report.html").read_text()
    assert '<th scope="col" class="n" data-key=' in page and ">recall</th>" in page
    labels = {score["key"]: score["label"] for score in page_data(page)["scores"]}
    assert labels["p"] == "polarity P"
    assert labels["s"] == ("recall" if similarity == "recall" else "similarity S")
    assert labels.get("recall") == (None if similarity == "recall" else "recall")


def page_data(page: str) -> Any:
    _, _, rest = page.partition('id="data">')
    return json.loads(rest.partition("</script>")[0])


def test_wrong_goals_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"objective\.similarity is 'recal'; allowed: .*recall"):
        sweeps.settings(tmp_path, objective__similarity="recal")
    with pytest.raises(
        InputError,
        match=r"objective\.polarity is 'retention'; allowed: polarity, similarity, accuracy",
    ):
        sweeps.settings(tmp_path, objective__polarity="retention")
    with pytest.raises(
        InputError,
        match=r"objective\.similarity is 'polarity'; allowed: similarity, retention, accuracy",
    ):
        sweeps.settings(tmp_path, objective__similarity="polarity")


def test_a_trial_that_does_not_report_a_goal_fails(tmp_path: Path) -> None:
    sweep = begin(tmp_path, "recall")
    sweep.ledger.append(start_session(tmp_path, dataclasses.replace(INFO, similarity="recall")))
    proposal = sweep.assign()
    assert proposal is not None
    number, config = proposal
    sweep.place(number)
    assert sweep.record_rung(number, sweeps.rung(config, 1))
    sweep.release(number)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("failed", "rung 1: recall is missing")
