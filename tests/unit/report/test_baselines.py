"""Baselines in a report: compared with the front, and never part of it."""

import dataclasses
import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from scipy import stats

from raysweep.metrics.pareto import hypervolume
from raysweep.report import write
from raysweep.report.comparison import probe_sentences
from raysweep.report.summary import Summary, summarize
from raysweep.report.summary import summary_of as summary_with_intervals
from raysweep.report.tables import baseline_table
from raysweep.results.reader import load
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage.folder import LocalFolder
from support.consoles import narrow, printed
from support.ledgers import (
    INFO,
    REFERENCE,
    StoredSweep,
    StoredTrial,
    baseline,
    dev_front,
    random_trials,
    write_ledger,
)
from support.points import with_spreads
from support.query_scores import scores_of, write_query_scores

BOTH: tuple[ScoredSplit, ...] = ("dev", "test")
PROBES = {0.1: (0.68, 0.455), 0.3: (0.72, 0.45), 1.0: (0.76, 0.40), 3.0: (0.95, 0.40)}


def example_baselines() -> list[Point]:
    """Return a probe and a SetFit model on both splits, and published scores on test."""
    points = []
    for split in BOTH:
        points += [
            baseline(split, "probe", *scores, value=value)
            for value, scores in reversed(PROBES.items())
        ]
        points.append(baseline(split, "setfit", 0.70, 0.30, label="tuned", width=384))
    published = baseline("test", "published", 0.99, 0.20, label="a paper, triplet 0.1", width=384)
    points.append(with_spreads(published, 0.0, 0.0))
    return points


def summary_of(folder: Path, baselines: list[Point], **info: object) -> Summary:
    trials = random_trials(14)
    folder.mkdir(exist_ok=True)
    changed = dataclasses.replace(INFO, **info)  # type: ignore[arg-type]
    sweep = StoredSweep(info=changed, test_of=dev_front(trials), baselines=baselines)
    write_ledger(folder, trials, sweep)
    return summarize(load(folder))


def scores(point: Point) -> tuple[float, float]:
    return point["polarity"], point["similarity"]


def cells(summary: Summary) -> dict[str, dict[str, str]]:
    """Return the cells of the table of baselines by name and column."""
    table = baseline_table(summary)
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_baselines_do_not_change_the_front(tmp_path: Path) -> None:
    """Baselines stay off the front even if they dominate its members."""
    without = summary_of(tmp_path / "without", [])
    summary = summary_of(tmp_path / "with", example_baselines())
    assert summary.members == without.members
    assert summary.areas == without.areas
    assert summary.trials == without.trials
    written = [write.write(tmp_path / name).folder / "front.json" for name in ("without", "with")]
    assert written[0].read_bytes() == written[1].read_bytes()
    assert without.baselines == () and not without.probes


def test_table_counts_dominating_members_by_split(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, example_baselines())
    rows = cells(summary)
    assert list(rows) == [
        *("probe(0.1)", "probe(0.3)", "probe(1)", "probe(3)"),
        *("setfit (tuned)", "published (a paper, triplet 0.1)"),
    ]
    seen = set()
    for baseline_ in summary.baselines:
        for split in BOTH:
            cell = rows[baseline_.name][f"{split} dominated by"]
            if split not in baseline_.points:
                assert cell == "–"  # noqa: RUF001
                continue
            p, s = scores(baseline_.points[split])
            others = [scores(member.on(split)) for member in summary.members]  # type: ignore[arg-type]
            count = sum(q >= p and t >= s and (q, t) != (p, s) for q, t in others)
            assert cell == (f"{count} of {len(others)}" if count else "none")
            seen.add(bool(count))
    assert seen == {True, False}


def test_baselines_without_query_scores_have_no_interval(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, example_baselines())
    assert cells(summary)["probe(1)"]["test P"] == "76.0"
    write_query_scores(tmp_path, summary.results)
    rows = cells(summary_with_intervals(LocalFolder(tmp_path)))
    assert rows["published (a paper, triplet 0.1)"]["test P"] == "99.0"
    assert rows["setfit (tuned)"]["test P"] == "70.0" and rows["setfit (tuned)"]["width"] == "384"
    probe = next(
        point for point in example_baselines() if (point.split, point.value) == ("test", 1.0)
    )
    polarity, _ = scores_of(probe, INFO.num_queries["test"])
    bounds = stats.t.interval(0.9, len(polarity) - 1, polarity.mean(), stats.sem(polarity))
    assert rows["probe(1)"]["test P"] == f"76.0 [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_probe_is_chosen_on_dev_and_compared_on_each_split(
    tmp_path: Path, weight: float, seed: int
) -> None:
    rng = random.Random(seed)
    points = [
        baseline(split, "probe", rng.uniform(0.6, 0.9), rng.uniform(0.3, 0.48), value=value)
        for value in (0.1, 0.5, 2.0)
        for split in BOTH
    ]
    summary = summary_of(tmp_path, points, polarity_weight=weight)

    def objective(point: Point) -> float:
        return weight * point["polarity"] + (1 - weight) * point["similarity"]

    chosen = max((point for point in points if point.split == "dev"), key=objective)
    assert set(summary.probes) == set(BOTH)
    for split, probes in summary.probes.items():
        of_split = [point for point in points if point.split == split]
        front = [point for member in summary.members if (point := member.on(split)) is not None]
        assert probes.best == next(point for point in of_split if point.value == chosen.value)
        above = [
            point
            for point in front
            if point["polarity"] >= probes.best["polarity"]
            and point["similarity"] >= probes.best["similarity"]
            and scores(point) != scores(probes.best)
        ]
        if not above:
            assert probes.dominating is None
        else:
            assert probes.dominating in above
            assert objective(probes.dominating) == max(map(objective, above))
        corner = REFERENCE[split][0], REFERENCE[split][1] / 2
        assert probes.area == pytest.approx(
            hypervolume([scores(point) for point in of_split], corner)
        )
        assert (probes.num_points, probes.num_dominated <= 3) == (3, True)


def test_an_infeasible_probe_is_not_the_best_and_has_no_area(tmp_path: Path) -> None:
    summary = summary_of(
        tmp_path, example_baselines(), constraints={"similarity": 0.42}, polarity_weight=1.0
    )
    assert summary.probes["dev"].best.value == 0.3
    corner = REFERENCE["dev"][0], REFERENCE["dev"][1] / 2
    assert summary.probes["dev"].area == pytest.approx(
        hypervolume([PROBES[0.1], PROBES[0.3]], corner)
    )


def test_report_states_whether_the_front_dominates_the_best_probe(tmp_path: Path) -> None:
    trials = [StoredTrial({"loss": "triplet"}, "completed", "", [(0.8, 0.44)])]
    points = [
        baseline("dev", "probe", 0.7, 0.44, value=0.3),
        baseline("dev", "probe", 0.9, 0.30, value=3.0),
        baseline("test", "probe", 0.79, 0.43, value=0.3),
        baseline("test", "probe", 0.9, 0.30, value=3.0),
    ]
    info = dataclasses.replace(INFO, polarity_weight=0.1)
    write_ledger(
        tmp_path, trials, StoredSweep(info=info, test_of=dev_front(trials), baselines=points)
    )
    summary = write.write(tmp_path).summary
    dev, test = probe_sentences(summary)
    assert dev.startswith(
        "On dev, the front dominates 1 of 2 probe points, and its hypervolume is "
    )
    assert dev.endswith(
        "is probe(0.3) with P 70.0, S 44.0; plain of trial 0 at rung 1 dominates it with P 80.0, S 44.0."
    )
    assert test.startswith("On test, the front dominates 0 of 2 probe points")
    assert test.endswith("is probe(0.3) with P 79.0, S 43.0; no front member dominates it.")
    for name in ("front.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert dev in text.replace("\\", "") and test in text.replace("\\", "")
        assert text.index("probe(3)") > text.index("Front")
    # which the table is narrower than
    lines = " ".join(printed(narrow(summary), width=100).split())
    assert "probe(0.3) on dev: P 70.0, S 44.0, dominated by the front" in lines
    assert "probe(0.3) on test: P 79.0, S 43.0, not dominated by the front" in lines


def test_terminal_lists_setfit_and_published_scores(tmp_path: Path) -> None:
    lines = " ".join(printed(narrow(summary_of(tmp_path, example_baselines())), width=100).split())
    assert "setfit (tuned) on test: P 70.0, S 30.0, dominated by the front" in lines
    assert "published on test: 0 of 1 dominated by the front" in lines
    assert "published on dev" not in lines


def test_without_a_front_baselines_are_listed_and_not_compared(tmp_path: Path) -> None:
    points = [baseline("dev", "probe", 0.7, 0.44, value=0.3)]
    write_ledger(tmp_path, [StoredTrial({}, "failed", "", [])], StoredSweep(baselines=points))
    summary = write.write(tmp_path).summary
    assert not summary.probes and probe_sentences(summary) == []
    assert cells(summary)["probe(0.3)"]["dev dominated by"] == "–"  # noqa: RUF001
    assert "probe(0.3)" in (tmp_path / "report" / "front.md").read_text()


def test_labels_are_escaped_and_stored(tmp_path: Path) -> None:
    hostile = '<script>alert("x")</script>|'
    points = [baseline("dev", "setfit", 0.7, 0.44, label=hostile)]
    write_ledger(tmp_path, random_trials(3), StoredSweep(baselines=points))
    write.write(tmp_path)
    assert "<script>alert" not in (tmp_path / "report" / "report.html").read_text()
    assert "<script" not in (tmp_path / "report" / "front.md").read_text().replace("\\<script", "")
    rows = pq.read_table(tmp_path / "report" / "points.parquet").to_pylist()
    assert [row["label"] for row in rows if row["kind"] == "setfit"] == [hostile]
    assert {row["label"] for row in rows if row["kind"] != "setfit"} == {None}
    assert json.loads((tmp_path / "report" / "points.json").read_text()) == rows
