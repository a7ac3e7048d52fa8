"""A front that is partly scored on test has no statistics on test, as if test had not been scored."""

import dataclasses
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.console import Console

from raysweep import load_run
from raysweep.metrics.pareto import hypervolume
from raysweep.paper.sources import read_run
from raysweep.report import write
from raysweep.report.figures import front_figure
from raysweep.report.notes import notes
from raysweep.report.side_by_side import Side, compare_runs
from raysweep.report.summary import Summary, summarize, summary_of
from raysweep.report.tables import area_table, baseline_table, front_table
from raysweep.report.watch.command import watch_once
from raysweep.results.reader import load
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage.folder import LocalFolder
from raysweep.trackers.tracker import Tracker
from raysweep.trackers.tracking import SweepEvents
from support.consoles import narrow, printed
from support.ledgers import REFERENCE, StoredSweep, baseline, dev_front, random_trials, write_ledger
from support.query_scores import write_query_scores

TRIALS = random_trials(14)
FRONT = dev_front(TRIALS)
BOTH: tuple[ScoredSplit, ...] = ("dev", "test")
BASELINES = [
    baseline(
        split,
        kind,
        0.70,
        0.30,
        value=0.1 if kind == "probe" else None,
        label=None if kind == "probe" else "x",
    )
    for split in BOTH
    for kind in ("probe", "setfit", "published")
]


@dataclass(frozen=True)
class Run:
    folder: Path
    summary: Summary


def run_with(folder: Path, tested: Sequence[Point], status: str = "interrupted") -> Run:
    """Return a run of TRIALS with per-query scores; the members ``tested`` of its front are scored on test."""
    folder.mkdir()
    sweep = StoredSweep(test_of=tested, baselines=BASELINES, finish=(status, "Ctrl-C"))
    write_ledger(folder, TRIALS, sweep)
    write_query_scores(folder, load(folder))
    return Run(folder, summary_of(LocalFolder(folder)))


@pytest.fixture
def partial(tmp_path: Path) -> Run:
    return run_with(tmp_path / "partial", FRONT[1:2])


@pytest.fixture
def unscored(tmp_path: Path) -> Run:
    """Return a run with the baselines' scores on test, but none of the front."""
    return run_with(tmp_path / "unscored", [])


def test_a_partly_scored_front_has_no_statistics_on_test(partial: Run, unscored: Run) -> None:
    summary, expected = partial.summary, unscored.summary
    assert [member.test is not None for member in summary.members] == [
        number == 1 for number in range(len(FRONT))
    ]
    assert set(summary.areas) == set(summary.probes) == set(summary.uncertainty) == {"dev"}
    assert (summary.areas, summary.probes) == (expected.areas, expected.probes)
    assert summary.certainty.compared_on == "dev"
    assert not summary.certainty.drops
    assert summary.certainty.from_knee == expected.certainty.from_knee


def test_tables_show_the_scored_members(partial: Run) -> None:
    front = front_table(partial.summary)
    column = front.columns.index("test P")
    cells = [row[column] for row in front.rows]
    assert cells == [
        f"{100 * FRONT[1]['polarity'] - 2:.1f}" if number == 1 else "–"  # noqa: RUF001
        for number in range(len(FRONT))
    ]
    by_split = {row[0]: row[4:] for row in area_table(partial.summary).rows}
    assert set(by_split["test"]) == {"–"}  # noqa: RUF001
    baselines = baseline_table(partial.summary)
    column = baselines.columns.index("test dominated by")
    assert {row[column] for row in baselines.rows} == {"–"}  # noqa: RUF001


def test_report_states_the_number_of_scored_members(partial: Run) -> None:
    folder = write.write(partial.folder).folder
    sentence = (
        f"Only 1 of {len(FRONT)} front members is scored on test, so the front has no hypervolume"
    )
    shown = printed(narrow(partial.summary))
    on_page = f"{partial.folder.parent.name}/{partial.folder.name}"
    for name, run in (("front.md", partial.folder), ("report.html", on_page)):
        text = (folder / name).read_text()
        assert sentence in text
        assert f"raysweep run --resume {run} scores the missing members" in text
    for text in ((folder / "front.md").read_text(), (folder / "report.html").read_text(), shown):
        for figure in ("hypervolume on test", "On test, the front", "floor (probe) on test"):
            assert figure not in text
        assert "of the oracle's hypervolume, test" not in text
    rows = json.loads((folder / "front.json").read_text())
    assert [row["trial"] for row in rows if row["split"] == "test"] == [FRONT[1].trial]


def test_figure_has_no_test_panel(partial: Run, unscored: Run) -> None:
    assert front_figure(partial.summary) == front_figure(unscored.summary)


def test_compare_omits_test(partial: Run, tmp_path: Path) -> None:
    complete = run_with(tmp_path / "complete", FRONT, "completed")
    for pair in ((partial, complete), (complete, partial)):
        comparison = compare_runs([Side(run.folder.name, run.summary) for run in pair])
        assert comparison.splits == ("dev",)
        reason = f"only 1 of {len(FRONT)} front members is scored on test in partial"
        assert f"Not compared on test: {reason}." in comparison.notes


def test_recordings_omit_test(partial: Run, tmp_path: Path) -> None:
    def splits(run: Run) -> set[str]:
        recording = read_run(LocalFolder(run.folder))
        return {
            split
            for trial in recording.configurations
            for scores in trial.rungs.values()
            for split in scores
        }

    assert splits(partial) == {"dev"}
    assert splits(run_with(tmp_path / "complete", FRONT)) == {"dev", "test"}


def test_trackers_get_dev_statistics_only(partial: Run, unscored: Run) -> None:
    metrics = []
    for run in (partial, unscored):
        tracker = Mock(spec=Tracker)
        SweepEvents(tracker, LocalFolder(run.folder)).finish()
        metrics.append(tracker.log_front.call_args.args[0].metrics)
    assert metrics[0] == metrics[1]
    assert {name.partition("/")[0] for name in metrics[0]} == {"members", "dev"}


def test_watch_and_api_show_only_scores_on_test(partial: Run, unscored: Run) -> None:
    texts = []
    for run in (partial, unscored):
        out = io.StringIO()
        watch_once(LocalFolder(run.folder), Console(file=out, width=120))
        texts.append(out.getvalue().replace(run.folder.name, "RUN"))
    assert texts[0] == texts[1]
    front = load_run(partial.folder).front
    assert front.test_polarity.notna().tolist() == [number == 1 for number in range(len(FRONT))]


def test_a_running_sweep_has_no_hint_to_resume(tmp_path: Path) -> None:
    write_ledger(tmp_path, TRIALS, StoredSweep(test_of=FRONT[:2], finish=None))
    results = dataclasses.replace(load(tmp_path), has_driver=True)
    (note,) = [note for note in notes(summarize(results)) if "scored on test" in note]
    assert note.startswith(f"Only 2 of {len(FRONT)} front members are scored on test")
    assert "--resume" not in note


def test_a_completely_scored_front_has_all_statistics(tmp_path: Path) -> None:
    missing_one = run_with(tmp_path / "missing", FRONT[1:]).summary
    complete = run_with(tmp_path / "complete", FRONT).summary
    assert set(missing_one.areas) == {"dev"}
    assert (
        set(complete.areas) == set(complete.probes) == set(complete.uncertainty) == {"dev", "test"}
    )
    polarity, similarity = REFERENCE["test"]
    on_test = [(point["polarity"] - 0.02, point["similarity"] - 0.01) for point in FRONT]
    assert complete.areas["test"].front == pytest.approx(
        hypervolume(on_test, (polarity, similarity / 2))
    )
