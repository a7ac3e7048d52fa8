"""A run's results as data frames and pictures, compared with the ledger."""

import json
import math
from pathlib import Path

import pytest

import raysweep
from raysweep.results.reader import load
from support.ledgers import StoredSweep, dev_front, random_trials, write_ledger
from support.query_scores import write_query_scores
from support.sweeps import make, play


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> raysweep.RunResults:
    folder = tmp_path_factory.mktemp("run")
    sweep, _ = make(folder)
    play(sweep)
    return raysweep.load_run(folder)


def events(run: raysweep.RunResults, kind: str) -> list[dict[str, object]]:
    lines = (run.folder / "ledger.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_points_trials_and_rungs_match_the_ledger(run: raysweep.RunResults) -> None:
    rungs = events(run, "rung")
    assert run.status == "completed"
    assert run.rungs[["trial", "step", "examples_seen"]].to_dict("records") == [
        {name: rung[name] for name in ("trial", "step", "examples_seen")} for rung in rungs
    ]
    expected = [(rung["trial"], rung["step"], point["polarity"]) for rung in rungs for point in rung["points"]]  # type: ignore[attr-defined]
    assert list(run.points[["trial", "step", "polarity"]].itertuples(index=False, name=None)) == expected
    started = events(run, "trial")
    assert run.trials.config_learning_rate.tolist() == [event["config"]["learning_rate"] for event in started]  # type: ignore[index]
    assert set(run.trials.status) <= {"completed", "stopped"}


def test_the_front_is_not_dominated(run: raysweep.RunResults) -> None:
    points = run.points[["polarity", "similarity"]].to_numpy().tolist()
    undominated = {(p, s) for p, s in points if not any(q >= p and t >= s and (q, t) != (p, s) for q, t in points)}
    front = run.front
    assert set(zip(front.dev_polarity, front.dev_similarity, strict=True)) == undominated
    assert front.dev_similarity.is_monotonic_decreasing
    assert front.is_knee.sum() == 1
    assert all(math.isnan(score) for score in front.test_polarity), "no member was scored on test"
    assert front.point[0] == f"{front.trial[0]}:{front.step[0]}"


def test_frames_are_copies(run: raysweep.RunResults) -> None:
    frame = run.front
    frame["dev_polarity"] = 0.0
    assert (run.front.dev_polarity > 0).all()


def test_pictures_are_displayed_by_notebooks_and_saved(run: raysweep.RunResults, tmp_path: Path) -> None:
    for name, picture in (("front", run.front_figure()), ("progress", run.progress_figure())):
        picture.save(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes() == picture._repr_png_() == picture.png
        assert picture.png.startswith(b"\x89PNG")


def test_the_picture_equals_that_of_the_report(tmp_path: Path) -> None:
    trials = random_trials(6)
    write_ledger(tmp_path, trials, StoredSweep(test_of=dev_front(trials)))
    without = raysweep.load_run(tmp_path).front_figure().png
    write_query_scores(tmp_path, load(tmp_path))
    run = raysweep.load_run(tmp_path)
    run.write_report()
    assert run.front_figure().png == (tmp_path / "report" / "front.png").read_bytes() != without


def test_the_repr_of_a_picture_is_one_line(run: raysweep.RunResults) -> None:
    picture = run.front_figure()
    assert repr(picture) == f"Picture of {len(picture.png):,} bytes; save(PATH) writes it"


def test_a_run_without_a_rung_has_empty_frames(tmp_path: Path) -> None:
    make(tmp_path)
    run = raysweep.load_run(tmp_path)
    assert (len(run.front), len(run.points), len(run.trials), run.status) == (0, 0, 0, "running")


def test_the_report_is_written_next_to_the_ledger(run: raysweep.RunResults) -> None:
    page = Path(run.write_report())
    assert page == run.folder / "report" / "report.html"
    assert page.is_file()
