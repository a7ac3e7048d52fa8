"""A sweep over retrieval data, whose points have no polarity and no similarity, from the search to the report."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysweep.config.trial import TrialConfig
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.metrics.scores import RELATION_GOALS
from raysweep.replay.recording_files import to_frame
from raysweep.report import write
from raysweep.report.summary import summary_of
from raysweep.results.events import PointsScored
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.query_scores import PackedScores, baselines_file, name_of_point, rung_file
from raysweep.results.reader import load
from raysweep.results.scores import Score
from raysweep.results.types import Point
from raysweep.storage.folder import LocalFolder
from support import sweeps
from support.ledgers import INFO, start_session

NAMES = {
    "polarity": "ranking",
    "polarity_std": "ranking_std",
    "similarity": "agreement",
    "similarity_std": "agreement_std",
}
GOALS = {
    "objective__polarity": "ranking",
    "objective__similarity": "agreement",
    "early_stopping__policy": "growth",
}


def rung(config: TrialConfig, step: int) -> dict[str, Any]:
    """Return the invented rung, whose scores are called ranking and agreement."""
    values = sweeps.rung(config, step)
    (point,) = values["points"]
    del point["retention"]
    values["points"] = [{NAMES.get(name, name): value for name, value in point.items()}]
    return values


def begin(folder: Path) -> Sweep:
    (folder / "points").mkdir(parents=True, exist_ok=True)
    config, space = sweeps.settings(folder, **GOALS)
    return sweeps.assemble(config, space, Ledger(folder))[0]


def keep_scores(folder: Path, file: str, points: list[Point]) -> None:
    spread = np.linspace(-0.05, 0.05, 9)
    scores = {
        name_of_point(point): {name: point[name] + spread for name in RELATION_GOALS}
        for point in points
    }
    LocalFolder(folder).put(file, PackedScores.pack_points(scores).content())


def play(sweep: Sweep, num_rungs: int) -> None:
    for _ in range(num_rungs):
        proposal = sweep.assign()
        assert proposal is not None
        number, config = proposal
        sweep.place(number)
        step = sweep.progress.steps_done(number) + 1
        sweep.record_rung(number, rung(config, step))
        sweep.release(number)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run that is killed and resumed."""
    sizes = {
        "num_queries": {"dev": 9},
        "num_pool": {"dev": 30},
        "label_names": (),
        "data_kind": "retrieval",
    }
    info = dataclasses.replace(INFO, polarity="ranking", similarity="agreement", **sizes)
    begun = begin(tmp_path)
    begun.ledger.append(start_session(tmp_path, info))
    scores = {"ranking": Score(0.6, 0.05), "agreement": Score(0.47, 0.05)}
    reference = Point(None, None, "reference", None, "dev", 8, scores)
    begun.ledger.append(PointsScored(points=(reference,)))
    keep_scores(tmp_path, baselines_file("dev"), [reference])
    play(begun, 5)
    begun.ledger.close()
    resumed = begin(tmp_path)
    resumed.ledger.open()
    resumed.replay(list(read_events(tmp_path / "ledger.jsonl")))
    assert resumed.front == begun.front
    play(resumed, 5)
    resumed.finish("completed", "")
    resumed.ledger.close()
    for point in load(tmp_path).points:
        if point.trial is not None and point.step is not None:
            keep_scores(tmp_path, rung_file("dev", point.trial, point.step), [point])
    return tmp_path


def test_fronts_and_reports_show_the_scores_of_rankings(run: Path) -> None:
    summary = summary_of(LocalFolder(run))
    assert summary.goals == RELATION_GOALS and summary.score_names == tuple(RELATION_GOALS)
    assert summary.areas["dev"].reference_point == pytest.approx((0.6, 0.47 / 2))
    pairs = {point.pair(RELATION_GOALS) for point in load(run).points if point.trial is not None}
    front = {
        (p, s)
        for p, s in pairs
        if not any(q >= p and r >= s and (q, r) != (p, s) for q, r in pairs)
    }
    assert {member.dev.pair(RELATION_GOALS) for member in summary.members} == front
    assert all(summary.intervals_of(member.dev) for member in summary.members)
    report = write.write(run).folder
    rows = json.loads((report / "front.json").read_text())
    assert {(row["ranking"], row["agreement"]) for row in rows} == {
        (round(100 * p, 4), round(100 * s, 4)) for p, s in front
    }
    markdown = (report / "front.md").read_text()
    assert "| kind of data | retrieval |" in markdown and "1 - PND" in markdown
    assert "dev P" not in markdown and "oracle front on dev is not stored" not in markdown
    page = (report / "report.html").read_text()
    _, _, rest = page.partition('id="data">')
    labels = {
        score["key"]: score["label"]
        for score in json.loads(rest.partition("</script>")[0])["scores"]
    }
    assert labels == {"p": "ranking", "s": "agreement"}


def test_recordings_need_polarity_and_similarity(run: Path) -> None:
    with pytest.raises(InputError, match="ranking and agreement; allowed: polarity and similarity"):
        to_frame(load(run))
