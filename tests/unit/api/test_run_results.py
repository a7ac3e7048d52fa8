"""A run's results as data frames and pictures, compared with the ledger."""

import json
import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import raysweep
from raysweep.results.reader import load
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, dev_front, random_trials, write_ledger
from support.query_scores import write_query_scores
from support.sweeps import make, play

SCORES = ("polarity", "similarity", "retention", "accuracy")


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
    expected = [
        (rung["trial"], rung["step"], point["polarity"])
        for rung in rungs
        for point in rung["points"]
    ]  # type: ignore[attr-defined]
    assert (
        list(run.points[["trial", "step", "polarity"]].itertuples(index=False, name=None))
        == expected
    )
    started = events(run, "trial")
    assert run.trials.config_learning_rate.tolist() == [
        event["config"]["learning_rate"] for event in started
    ]  # type: ignore[index]
    assert set(run.trials.status) <= {"completed", "stopped"}


def test_the_front_is_not_dominated(run: raysweep.RunResults) -> None:
    points = run.points[["polarity", "similarity"]].to_numpy().tolist()
    undominated = {
        (p, s)
        for p, s in points
        if not any(q >= p and t >= s and (q, t) != (p, s) for q, t in points)
    }
    front = run.front
    assert set(zip(front.dev_polarity, front.dev_similarity, strict=True)) == undominated
    assert front.dev_similarity.is_monotonic_decreasing
    assert front.is_knee.sum() == 1
    assert all(math.isnan(score) for score in front.test_polarity), "no member was scored on test"
    assert front.point[0] == f"{front.trial[0]}:{front.step[0]}"


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> raysweep.RunResults:
    """A run whose front is scored on test, with per-query scores."""
    folder = tmp_path_factory.mktemp("scored")
    trials = random_trials(12)
    write_ledger(folder, trials, StoredSweep(test_of=dev_front(trials)))
    write_query_scores(folder, load(folder))
    return raysweep.load_run(folder)


def as_shown(row: dict[Hashable, Any]) -> dict[str, Any]:
    """Return a row of a frame in the form of ``raysweep show --format json``, with missing values as None."""
    values = {str(name): None if pd.isna(value) else value for name, value in row.items()}
    config = {
        name.removeprefix("config_"): value
        for name, value in values.items()
        if name.startswith("config_")
    }
    plain = (
        "point",
        "trial",
        "step",
        "kind",
        "value",
        "width",
        "encoders",
        "objective",
        "is_feasible",
    )
    shown = {name: values[name] for name in plain}
    shown["marks"] = [mark for mark in ("knee", "best") if values[f"is_{mark}"]]
    for split in ("dev", "test"):
        scores = {name: values[f"{split}_{name}"] for name in SCORES}
        bounds = {
            name: [values[f"{split}_{name}_low"], values[f"{split}_{name}_high"]]
            for name in SCORES[:3]
        }
        scores["intervals"] = bounds if bounds["polarity"][0] else None
        shown[split] = scores if scores["polarity"] else None
    return {
        **shown,
        "config": {key: value for key, value in config.items() if value is not None},
        "export": values["is_on_front"],
    }


def without_texts(shown: dict[str, Any]) -> dict[str, Any]:
    """Return an object of ``raysweep show --format json`` in the form of :func:`as_shown`."""
    assert shown["guards"] == {}
    shown = {key: value for key, value in shown.items() if key != "guards"}
    for split in ("dev", "test"):
        if shown[split] is not None:
            scores = {name: shown[split][name] for name in SCORES}
            intervals = shown[split]["intervals"]
            bounds = None if intervals is None else {name: intervals[name] for name in SCORES[:3]}
            shown[split] = {**scores, "intervals": bounds}
    return {**shown, "export": shown["export"] is not None}


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, ()),
        ({"where": "P >= 70"}, ("--where", "P >= 70")),
        (
            {"where": ["P >= 70", "kind = plain"], "best": "S"},
            ("--where", "P >= 70", "--where", "kind = plain", "--best", "S"),
        ),
        ({"top": 3}, ("--top", "3")),
        ({"knee": True}, ("--knee",)),
        (
            {"everything": True, "best": "retention", "top": 20},
            ("--all", "--best", "retention", "--top", "20"),
        ),
        ({"where": "P > 99.9"}, ("--where", "P > 99.9")),
    ],
)
def test_choose_returns_the_points_that_show_prints(
    scored: raysweep.RunResults, arguments: dict[str, Any], options: tuple[str, ...]
) -> None:
    shown = json.loads(
        raysweep_here(scored.folder, "show", ".", *options, "--format", "json").stdout
    )
    rows = [as_shown(row) for row in scored.choose(**arguments).to_dict("records")]
    assert rows == [without_texts(each) for each in shown]
    assert bool(rows) == ("P > 99.9" not in options)


def test_the_front_has_the_columns_of_a_choice(scored: raysweep.RunResults) -> None:
    front, chosen = scored.front, scored.choose()
    assert chosen.columns[: len(front.columns)].tolist() == front.columns.tolist()
    pd.testing.assert_frame_equal(chosen[front.columns], front)
    (best,) = scored.choose(best="P").point
    assert best == front.point[front.dev_polarity.idxmax()]
    assert (
        (chosen.dev_polarity_low < chosen.dev_polarity)
        & (chosen.dev_polarity < chosen.dev_polarity_high)
    ).all()
    assert scored.choose(where="P > 99.9").columns[:6].tolist() == front.columns[:6].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": "speed > 1"}, "speed is unknown"),
        ({"best": "speed"}, "--best is 'speed'; allowed: objective, polarity"),
        ({"top": 0}, "--top is 0; allowed: "),
        ({"knee": True, "top": 2}, "--knee selects one point"),
    ],
)
def test_invalid_choices_are_rejected(
    scored: raysweep.RunResults, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(raysweep.InputError, match=message):
        scored.choose(**arguments)


def test_frames_are_copies(run: raysweep.RunResults) -> None:
    frame = run.front
    frame["dev_polarity"] = 0.0
    assert (run.front.dev_polarity > 0).all()


def test_pictures_are_displayed_by_notebooks_and_saved(
    run: raysweep.RunResults, tmp_path: Path
) -> None:
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
