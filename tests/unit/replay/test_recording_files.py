"""Recordings from files and runs: contents and rejected input."""

import datetime
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest

from raysweep.config.trial import trial_config
from raysweep.errors import InputError
from raysweep.replay import compare
from raysweep.replay.recording_files import from_frame, read, to_frame, write
from raysweep.results.reader import load
from raysweep.storage.folder import LocalFolder
from support.displays import ListDisplay
from support.ledgers import StoredSweep, StoredTrial, baseline, random_trials, write_ledger
from support.sweep_files import MINIMAL
from support.sweep_files import read as read_sweep

ROWS = [
    # trial, loss, margin, examples_seen, seconds, kind, polarity, similarity
    (0, "triplet", 0.5, 10, 1.5, "plain", 0.60, 0.45),
    (0, "triplet", 0.5, 10, 1.5, "concat", 0.58, 0.46),
    (0, "triplet", 0.5, 20, 3.5, "plain", 0.70, 0.40),
    (1, "softmax", None, 10, 2.0, "plain", 0.65, 0.44),
    (None, None, None, None, None, "reference", 0.55, 0.47),
]


def frame(**columns: Any) -> pd.DataFrame:
    names = [
        "trial",
        "loss",
        "margin",
        "examples_seen",
        "seconds",
        "kind",
        "polarity",
        "similarity",
    ]
    return pd.DataFrame(ROWS, columns=names).assign(**columns)


def test_trials_rungs_and_points_are_read() -> None:
    recording = from_frame(frame(), "t.csv")
    configurations = [dict(trial.values) for trial in recording.trials]
    assert configurations == [{"loss": "triplet", "margin": 0.5}, {"loss": "softmax"}]
    assert [
        [(rung.budget, rung.seconds, rung.points) for rung in trial.rungs]
        for trial in recording.trials
    ] == [
        [(10, 1.5, ((0.60, 0.45), (0.58, 0.46))), (20, 3.5, ((0.70, 0.40),))],
        [(10, 2.0, ((0.65, 0.44),))],
    ]
    assert (recording.reference, recording.reference_point) == ((0.55, 0.47), (0.55, 0.235))
    assert recording.area == pytest.approx(
        (0.70 - 0.65) * (0.40 - 0.235)
        + (0.65 - 0.60) * (0.44 - 0.235)
        + (0.60 - 0.58) * (0.45 - 0.235)
        + (0.58 - 0.55) * (0.46 - 0.235)
    )


@pytest.mark.parametrize("index", [[0] * 5, list("abcde"), list(range(5, 0, -1))])
def test_the_index_of_a_frame_is_ignored(index: list[Any]) -> None:
    assert from_frame(frame().set_axis(index), "t.parquet") == from_frame(frame(), "t.parquet")


@pytest.mark.parametrize("wanted", ["0.5", "0.50", "5e-1"])
def test_where_accepts_every_spelling_of_a_number(wanted: str) -> None:
    assert len(from_frame(frame(), "t.csv", {"margin": wanted}).trials) == 1
    integers = frame(margin=[1.0, 1.0, 1.0, 2.0, None])
    assert len(from_frame(integers, "t.csv", {"margin": "1.0"}).trials) == 1
    assert len(from_frame(integers, "t.csv", {"margin": "1"}).trials) == 1


@pytest.mark.parametrize("where", [{}, {"trial": "0"}, {"examples_seen": "10"}, {"margin": "0.5"}])
def test_nullable_columns_are_read_like_others(where: dict[str, str]) -> None:
    assert from_frame(frame().convert_dtypes(), "t.parquet", where) == from_frame(
        frame(), "t.csv", where
    )


def test_where_keeps_the_reference() -> None:
    assert from_frame(frame(), "t.csv", {"loss": "triplet"}).reference == (0.55, 0.47)
    assert from_frame(frame(), "t.csv", {"kind": "plain"}).reference == (0.55, 0.47)


def test_where_selects_the_reference_of_one_data_set() -> None:
    other = frame(polarity=0.9, similarity=0.9)
    both = pd.concat([other.assign(dataset="sst2"), frame(dataset="mr")], ignore_index=True)
    selected = from_frame(both, "t.csv", {"dataset": "mr"})
    assert selected.reference == (0.55, 0.47)
    assert len(selected.trials) == len(from_frame(frame(), "t.csv").trials)


def test_an_unnamed_index_column_is_no_parameter() -> None:
    assert from_frame(frame(**{"Unnamed: 0": range(5)}), "t.csv") == from_frame(frame(), "t.csv")


def change(**cells: Any) -> pd.DataFrame:
    """Return the frame with other cells in the first row."""
    changed = frame().astype(object)
    for column, value in cells.items():
        changed.at[0, column] = value
    return changed


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (frame().drop(columns="polarity"), "'polarity' is missing.*trial, loss"),
        (frame().drop(columns="examples_seen"), "'examples_seen' is missing"),
        (frame()[frame()["kind"] == "reference"], "every row.*'reference'"),
        (change(polarity=float("nan")), "row 1: polarity is nan; .*finite"),
        (change(similarity="high"), "row 1: similarity is high; .*finite"),
        (change(examples_seen=10.5), "row 1: examples_seen is 10.5; .*above 0"),
        (change(examples_seen=0), "row 1: examples_seen is 0.*; .*above 0"),
        (change(seconds=-1.0), "row 1: seconds is -1.0; .*nonnegative"),
        (change(polarity=-0.2), "row 1: polarity is -0.2; .*from 0 to 1"),
        (change(trial=None), "row 1: trial is None; "),
        (change(margin=float("inf")), "row 1: margin is inf; .*numbers"),
        (change(loss="softmax"), "row 2: trial 0 has a different configuration"),
        (frame(margin=[None, 0.5, 0.5, 0.5, 0.5]), "row 2: trial 0 has a different configuration"),
        (
            frame(trial=range(5), margin=[None, 0.5, 0.5, 0.5, 0.5]),
            "column 'margin' is empty in some rows",
        ),
        (change(loss=datetime.datetime(2026, 1, 1)), "row 1: loss is 2026.*; .*strings"),
        (change(loss=[1, 2]), r"row 1: loss is \[1, 2\]; .*strings"),
        (frame(polarity=frame()["polarity"] * 100), "row 1: polarity is 60.0; .*from 0 to 1"),
        (frame(polarity=0.5, similarity=0.2), "no point is above .*P 0.5, S 0.1"),
        (frame().drop(columns=["loss", "margin"]), "no parameter column; .*trial"),
        (frame(**{"lr.1": 0.5}), "'lr.1' .*; required: .*dot"),
    ],
)
def test_invalid_rows_are_rejected(rows: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=f"^t.csv: .*{message}"):
        from_frame(rows, "t.csv")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"model": "a"}, "'model' is missing; .*trial"),
        ({"loss": "margin"}, "loss is 'margin'; .*softmax, triplet"),
        ({"margin": "0.7"}, "margin is '0.7'; .*0.5"),
    ],
)
def test_unknown_columns_and_values_of_where_are_rejected(
    where: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=f"^t.csv: .*{message}"):
        from_frame(frame(), "t.csv", where)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_both_file_types_hold_the_same_recording(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix == ".parquet":
        frame().to_parquet(path)
    else:
        frame().to_csv(path, index=False)
    assert read(path) == from_frame(frame(), "t")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", b"{}", "json.*csv, .parquet"),
        ("t.csv", None, "no such file"),
        ("typo", None, "no such file"),
        ("t.csv", b"", "cannot be read"),
        ("t.parquet", b"PAR1 not", "cannot be read"),
    ],
)
def test_unreadable_files_are_rejected(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: .*{message}"):
        read(tmp_path / name)


NULLS = [
    ("dropout", "{choices: [null, 0.1]}"),
    ("dropout", "{choices: [null, 0.0, 0.1, 0.2]}"),
    ("warmup_steps", "{choices: [null, 10]}"),
    ("average_decay", "{choices: [null, 0.99]}"),
    ("idle_rungs", "{choices: [null, 2]}"),
    ("momentum", "{choices: [null, 0.0, 0.9]}"),
    ("optimizer", "{choices: {sgd: {momentum: {choices: [null, 0.9]}}, adamw: {}}}"),
    ("schedule", "{choices: {exponential: {decay: {low: 0.5, high: 0.9}}, linear: {}}}"),
    (
        "freezing",
        "{choices: {none: {dropout: {choices: [null, 0.1]}}, emb: {dropout: {low: 0.2, high: 0.5}}}}",
    ),
]
"""Parameters that are null in some trials, as a value or because another parameter's value excludes them."""


def stored_trials(folder: Path, num_trials: int, **space: str) -> list[StoredTrial]:
    """Return trials with random values of a space; every fourth failed and every fifth was stopped."""
    _, parsed = read_sweep(folder, MINIMAL, **space)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    trials = []
    for number in range(num_trials):
        config = trial_config(parsed.draw(study.ask())).flat
        scores = [
            (0.65 + 0.01 * number, 0.46),
            (0.7 + 0.01 * number, 0.42),
            (0.75 + 0.01 * number, 0.36),
        ]
        if number % 4 == 1:
            trials.append(StoredTrial(config, "failed", "lost", scores[: number % 2]))
        elif number % 5 == 2:
            trials.append(StoredTrial(config, "stopped", "idle", scores[:1]))
        else:
            trials.append(StoredTrial(config, "completed", "", scores))
    return trials


@pytest.mark.parametrize("num_trials", [1, 2, 3, 20])
@pytest.mark.parametrize(("name", "values"), NULLS)
def test_a_run_with_nulls_equals_its_recordings(
    tmp_path: Path, name: str, values: str, num_trials: int
) -> None:
    """The inferred space contains every recorded value, null included."""
    trials = stored_trials(tmp_path, num_trials, **{f"space__{name}": values})
    run = tmp_path / "run"
    run.mkdir()
    write_ledger(run, trials)
    recording = compare.read(LocalFolder(run), {})
    scored = [trial.config for trial in trials if trial.scores]
    names = {key for trial in recording.trials for key in trial.values}
    for recorded, config in zip(recording.trials, scored, strict=True):
        assert {key: recorded.values.get(key) for key in names} == {
            key: config.get(key) for key in names
        }
        recording.space.suggest_fixed(recorded.values)  # ValueError if it is outside the space
    for suffix in (".csv", ".parquet"):
        path = tmp_path / f"recording{suffix}"
        write(load(run), path)
        assert read(path) == recording
    settings = compare.CompareSettings(["tpe", "mfgp"], ["growth"], "area", 2, 1, 1)
    figures = compare.compare_searches(LocalFolder(run), {}, settings, ListDisplay()).figures
    assert [
        search["hypervolume_share_by_budget_fraction"]["100%"] for search in figures["searches"]
    ] == [1.0, 1.0]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("word", ["NA", "None", "null", "nan"])
def test_words_such_as_na_are_names(tmp_path: Path, word: str, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    renamed = frame().replace({"loss": "softmax"}, word)
    if suffix == ".parquet":
        renamed.to_parquet(path)
    else:
        renamed.to_csv(path, index=False)
    recording = read(path)
    assert [trial.values["loss"] for trial in recording.trials] == ["triplet", word]
    assert read(path, {"loss": word}).trials == recording.trials[1:]


def test_null_is_a_value_of_known_parameters_only() -> None:
    rows = pd.DataFrame(
        {"dropout": [None, 0.1] * 2, "examples_seen": 1, "seconds": 1, "kind": "plain"}
    )
    rows = rows.assign(
        trial=range(4), polarity=[0.6, 0.7, 0.8, 0.9], similarity=[0.3, 0.4, 0.4, 0.4]
    )
    assert from_frame(rows, "t").space.values("dropout") == [None, 0.1]
    with pytest.raises(InputError, match="column 'rate' is empty in some rows"):
        from_frame(rows.rename(columns={"dropout": "rate"}), "t")


def test_a_recording_omits_the_oracle_and_baselines(tmp_path: Path) -> None:
    baselines = [
        baseline("dev", "probe", 0.9, 0.46, value=0.3),
        baseline("dev", "setfit", 0.9, 0.46, label="tuned"),
        baseline("dev", "published", 0.9, 0.46, label="a paper"),
    ]
    write_ledger(tmp_path, random_trials(6), StoredSweep(baselines=baselines))
    assert set(to_frame(load(tmp_path))["kind"]) == {"plain", "reference"}
