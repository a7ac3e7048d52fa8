"""Points that use the labels of the pool are separate from the front."""

import dataclasses
import json
from pathlib import Path

from raysweep.report import write
from raysweep.report.summary import Summary, summarize
from raysweep.results.events import PointsScored, RungFinished, TrialStarted
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import Point
from support.consoles import narrow, printed
from support.ledgers import REFERENCE, baseline, point, start_session
from support.points import with_means

SCORES = [(0.80, 0.46), (0.90, 0.45), (0.85, 0.44)]  # the last is dominated by the second
AREA = 0.1 * (0.45 - 0.235) + 0.17 * (0.46 - 0.235)  # of the first two, above P 0.63 and S 0.235


def labeled_point(scores: tuple[float, float], value: float) -> Point:
    return dataclasses.replace(point(0, 1, *scores), kind="labeled", value=value, width=386)


def summary_of(folder: Path, *, has_labels: bool) -> Summary:
    """Return the summary of a trial with a plain point and, with ``has_labels``, labeled points that dominate it."""
    ledger = Ledger(folder)
    ledger.append(start_session(folder))
    limits = [
        baseline("dev", "reference", *REFERENCE["dev"]),
        baseline("dev", "oracle", 1.0, 0.46, value=2.0),
    ]
    ledger.append(PointsScored(points=tuple(limits)))
    ledger.append(TrialStarted(trial=0, config={"loss": "softmax"}, num_rungs=1))
    labeled = tuple(labeled_point(scores, value) for value, scores in enumerate(SCORES, 1))
    rung = {"trial": 0, "step": 1, "examples_seen": 64, "seconds": 1.0, "loss": 0.3}
    points = (point(0, 1, 0.7, 0.4),)
    ledger.append(
        RungFinished(**rung, stop=None, points=points, labeled=labeled if has_labels else None)
    )
    on_test = dataclasses.replace(with_means(labeled[1], polarity=0.87), split="test")
    ledger.append(PointsScored(points=(), labeled=(on_test,) if has_labels else None))
    ledger.close()
    return summarize(load(folder))


def test_labeled_points_do_not_change_the_front(tmp_path: Path) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    summary, without = (
        summary_of(tmp_path / name, has_labels=name == "with") for name in ("with", "without")
    )
    assert summary.members == without.members
    assert summary.areas == without.areas
    assert summary.results.points == without.results.points
    assert summary.trials == without.trials
    assert without.labeled == ()
    assert [member.dev.value for member in summary.labeled] == [1.0, 2.0]


def test_labeled_points_have_a_separate_front_and_area(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, has_labels=True)
    (area,) = summary.labeled_areas.values()
    assert abs(area.front - AREA) < 1e-9
    write.write(tmp_path)
    report = tmp_path / "report"
    text = (report / "front.md").read_text()
    front, known = text.split("## Known labels")
    assert "labeled(" not in front
    assert "| 0 | 1 | labeled(2) | 90.0 | 45.0 | 95.7 | 87.0 | 45.0 | 95.7 |" in known
    assert "labeled(3)" not in known
    share = 100 * AREA / ((1 - 0.63) * (0.46 - 0.235))
    line = f"the hypervolume on dev is {1e4 * AREA:.1f}, {share:.1f}% of the oracle's"
    assert f"With known pool labels, {line}." in known
    shown = " ".join(printed(narrow(summary), width=100).split())
    assert f"with known pool labels, {line}" in shown
    assert (
        "with known pool labels, there is no hypervolume on test: only 1 of 2 front members is scored on test"
        in shown
    )
    assert "labeled(2)" in (report / "report.html").read_text()
    assert [row["kind"] for row in json.loads((report / "points.json").read_text())] == [
        "reference",
        "oracle",
        "plain",
    ]
    rows = json.loads((report / "labeled.json").read_text())
    assert [(row["value"], row["split"], row["polarity"]) for row in rows] == [
        *((1.0, "dev", 80.0), (2.0, "dev", 90.0), (3.0, "dev", 85.0), (2.0, "test", 87.0))
    ]
