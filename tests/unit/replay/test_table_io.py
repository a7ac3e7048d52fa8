"""Recorded sweeps from tables: what they hold, and what is refused with which words."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest

from raysweep.config.trial import trial_config
from raysweep.errors import InputError
from raysweep.replay import compare
from raysweep.replay.table_io import frame_of, from_frame, read, write
from raysweep.results.reader import load
from raysweep.storage.folder import LocalFolder
from support.displays import ListDisplay
from support.ledgers import StoredSweep, StoredTrial, baseline, random_trials, write_ledger
from support.sweep_files import MINIMAL
from support.sweep_files import read as read_sweep

ROWS = [
    # trial, loss, margin, examples_seen, kind, split, polarity, similarity
    (0, "triplet", 0.5, 10, "plain", "dev", 0.60, 0.45),
    (0, "triplet", 0.5, 10, "concat", "dev", 0.58, 0.46),
    (0, "triplet", 0.5, 20, "plain", "dev", 0.70, 0.40),
    (0, "triplet", 0.5, 20, "plain", "test", 0.99, 0.99),
    (1, "softmax", None, 10, "plain", "dev", 0.65, 0.44),
    (None, None, None, None, "reference", "test", 0.70, 0.30),
    (None, None, None, None, "reference", "dev", 0.55, 0.47),
    (None, None, None, None, "oracle", "dev", 1.00, 0.47),
]


def frame(**columns: Any) -> pd.DataFrame:
    made = pd.DataFrame(
        ROWS, columns=["trial", "loss", "margin", "examples_seen", "kind", "split", "polarity", "similarity"]
    )
    return made.assign(**columns)


def test_trials_rungs_and_points_are_those_of_dev() -> None:
    table = from_frame(frame(), "t.csv")
    assert [dict(trial.values) for trial in table.trials] == [{"loss": "triplet", "margin": 0.5}, {"loss": "softmax"}]
    assert [[(rung.budget, rung.points) for rung in trial.rungs] for trial in table.trials] == [
        [(10, ((0.60, 0.45), (0.58, 0.46))), (20, ((0.70, 0.40),))],
        [(10, ((0.65, 0.44),))],
    ]
    assert (table.reference, table.reference_point) == ((0.55, 0.47), (0.55, 0.235)), (
        "R's scores on dev, wherever they stand"
    )
    assert table.area == pytest.approx(
        (0.70 - 0.65) * (0.40 - 0.235)
        + (0.65 - 0.60) * (0.44 - 0.235)
        + (0.60 - 0.58) * (0.45 - 0.235)
        + (0.58 - 0.55) * (0.46 - 0.235)
    )


def test_scores_times_100_are_the_same_scores() -> None:
    hundredfold = frame(polarity=frame()["polarity"] * 100, similarity=frame()["similarity"] * 100)
    one, other = from_frame(frame(), "t.csv"), from_frame(hundredfold, "t.csv")
    assert other.reference_point == pytest.approx(one.reference_point) and other.area == pytest.approx(one.area)


@pytest.mark.parametrize("index", [[0] * 8, list("abcdefgh"), list(range(8, 0, -1))])
def test_the_index_of_a_frame_means_nothing(index: list[Any]) -> None:
    assert from_frame(frame().set_axis(index), "t.parquet") == from_frame(frame(), "t.parquet")


@pytest.mark.parametrize("wanted", ["0.5", "0.50", "5e-1"])
def test_a_part_is_chosen_by_number_however_it_is_written(wanted: str) -> None:
    assert len(from_frame(frame(), "t.csv", {"margin": wanted}).trials) == 1
    whole = frame(margin=[1.0, 1.0, 1.0, 1.0, 2.0, None, None, None])
    assert len(from_frame(whole, "t.csv", {"margin": "1.0"}).trials) == 1
    assert len(from_frame(whole, "t.csv", {"margin": "1"}).trials) == 1


@pytest.mark.parametrize("where", [{}, {"trial": "0"}, {"examples_seen": "10"}, {"margin": "0.5"}])
def test_a_frame_of_nullable_columns_is_the_same_table(where: dict[str, str]) -> None:
    assert from_frame(frame().convert_dtypes(), "t.parquet", where) == from_frame(frame(), "t.csv", where)


def test_a_part_keeps_the_reference_unless_it_is_of_another() -> None:
    assert from_frame(frame(), "t.csv", {"loss": "triplet"}).reference == (0.55, 0.47)
    assert from_frame(frame(), "t.csv", {"kind": "plain"}).reference == (0.55, 0.47)
    named = frame(model=["a"] * 4 + ["b"] * 4)
    assert from_frame(named, "t.csv", {"model": "a"}).reference is None
    assert from_frame(named, "t.csv", {"model": "b"}).reference == (0.55, 0.47)


def but(**changes: Any) -> pd.DataFrame:
    """The frame with the first row's cells changed."""
    made = frame().astype(object)
    for column, value in changes.items():
        made.at[0, column] = value
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (frame().drop(columns="polarity"), "no column 'polarity'; the columns are trial, loss"),
        (
            frame().drop(columns="examples_seen"),
            "no column of the training budget; allowed: examples_seen, epoch, step",
        ),
        (frame()[frame()["split"] == "test"], "no row has split 'dev'"),
        (frame()[frame()["kind"] == "reference"], "no rows"),
        (but(polarity=float("nan")), "row 1: polarity is nan, not a finite number"),
        (but(similarity="high"), "row 1: similarity is high, not a finite number"),
        (but(examples_seen=10.5), "row 1: examples_seen is 10.5, not a whole number above 0"),
        (but(examples_seen=0), "row 1: examples_seen is 0, not a whole number above 0"),
        (but(polarity=-0.2), "row 1: polarity is -0.2, below 0"),
        (but(trial=None), "row 1: trial is empty"),
        (but(margin=float("inf")), "row 1: margin is inf; allowed: numbers"),
        (but(loss="softmax"), "row 2: trial 0 has another configuration than in rows above"),
        (frame(margin=[None, 0.5, 0.5, 0.5, 0.5, 1, 1, 1]), "row 2: trial 0 has another configuration"),
        (frame(trial=range(8), margin=[None, 0.5, 0.5, 0.5, 0.5, 1, 1, 1]), "column 'margin' is empty in some rows"),
        (but(loss=datetime.datetime(2026, 1, 1)), "row 1: loss is datetime"),
        (but(loss=[1, 2]), r"row 1: loss is \[1, 2\]; allowed: numbers, words"),
        (but(loss=np.array([1.0])), r"row 1: loss is array.*; allowed: numbers, words"),
        (frame().rename(columns={"loss": "opt.loss"}), "column 'opt.loss': a parameter's name has no dot"),
        (
            frame(polarity=frame()["polarity"] * 100),
            "polarity is at most 70 and similarity at most 0.47; allowed: both in",
        ),
        (
            frame(polarity=[60.0, 58.0, 0.7, 99.0, 65.0, 70.0, 55.0, 100.0], similarity=frame()["similarity"] * 100),
            "row 3: polarity is 0.7, where other rows have it x100; allowed: all in",
        ),
        (
            frame(polarity=frame()["polarity"] * [1, 1, 1, 1, 1, 1, float("nan"), 1]),
            "row 7: polarity is nan, not a finite number",
        ),
        (frame(similarity=0.2), "no point lies above P 0.55 and S 0.1"),
        (frame().drop(columns=["trial", "loss", "margin"]), "no column of the configuration beside"),
    ],
)
def test_what_is_refused(made: pd.DataFrame, message: str) -> None:
    if "no point" in message:
        made = made.assign(polarity=0.5).assign(polarity=lambda f: f["polarity"].where(f["kind"] != "reference", 0.55))
    with pytest.raises(InputError, match=f"^t.csv: {message}"):
        from_frame(made, "t.csv")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"model": "a"}, "no column 'model'; the columns are trial"),
        ({"loss": "margin"}, "no row has loss 'margin'; there are softmax, triplet"),
        ({"margin": "0.7"}, "no row has margin '0.7'; there are 0.5"),
    ],
)
def test_a_part_that_is_not_there(where: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=f"^t.csv: {message}"):
        from_frame(frame(), "t.csv", where)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_files_hold_the_same_table(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix == ".parquet":
        frame().to_parquet(path)
    else:
        frame().to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    assert read(path) == from_frame(frame(), "t")
    if suffix == ".csv":
        frame().to_csv(path)
        assert read(path) == from_frame(frame(), "t"), "with its index"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", b"{}", r"unsupported suffix \(\.json\)"),
        ("t.csv", None, "no such file"),
        ("typo", None, "no such file"),
        ("t.csv", b"", "cannot be read"),
        ("t.parquet", b"PAR1 not", "cannot be read"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: {message}"):
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
    ("freezing", "{choices: {none: {dropout: {choices: [null, 0.1]}}, emb: {dropout: {low: 0.2, high: 0.5}}}}"),
]
"""Parameters that are null in some trials: a value of theirs, or for want of one under another parameter's value."""


def stored_trials(folder: Path, num_trials: int, **space: str) -> list[StoredTrial]:
    """Return trials with random values of a space, of which each fourth failed and each fifth was stopped."""
    _, parsed = read_sweep(folder, MINIMAL, **space)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    trials = []
    for number in range(num_trials):
        config = trial_config(parsed.draw(study.ask())).model_dump(mode="json")
        scores = [(0.65 + 0.01 * number, 0.46), (0.7 + 0.01 * number, 0.42), (0.75 + 0.01 * number, 0.36)]
        if number % 4 == 1:
            trials.append(StoredTrial(config, "failed", "lost", scores[: number % 2]))
        elif number % 5 == 2:
            trials.append(StoredTrial(config, "stopped", "idle", scores[:1]))
        else:
            trials.append(StoredTrial(config, "completed", "", scores))
    return trials


@pytest.mark.parametrize("num_trials", [1, 2, 3, 20])
@pytest.mark.parametrize(("name", "values"), NULLS)
def test_a_run_with_nulls_is_replayed_as_its_tables_are(
    tmp_path: Path, name: str, values: str, num_trials: int
) -> None:
    """Null is a value of a parameter, in a run and in its tables; the space found has every value that was recorded."""
    trials = stored_trials(tmp_path, num_trials, **{f"space__{name}": values})
    run = tmp_path / "run"
    run.mkdir()
    write_ledger(run, trials)
    table = compare.read(LocalFolder(run), {})
    scored = [trial.config for trial in trials if trial.scores]
    searched = {key for trial in table.trials for key in trial.values}
    for recorded, config in zip(table.trials, scored, strict=True):
        assert {key: recorded.values.get(key) for key in searched} == {key: config[key] for key in searched}
        table.space.suggest_fixed(recorded.values)  # ValueError where it does not lie there
    for suffix in (".csv", ".parquet"):
        path = tmp_path / f"table{suffix}"
        write(load(run), path)
        assert read(path) == table
    settings = compare.CompareSettings(["tpe", "mfgp"], ["growth"], "area", 2, 1, 1)
    figures = compare.compare_searches(LocalFolder(run), {}, settings, ListDisplay()).figures
    assert [search["hypervolume_share_by_budget_fraction"]["100%"] for search in figures["searches"]] == [1.0, 1.0]


def test_null_is_a_value_of_parameters_of_trials_alone(tmp_path: Path) -> None:
    """An empty cell of a foreign column is missing, and so is one of a table that a description says is foreign."""
    rows = pd.DataFrame({"dropout": [None, 0.1] * 2, "step": 1, "polarity": [0.6, 0.7, 0.8, 0.9], "similarity": 0.4})
    rows.loc[0, "similarity"] = 0.3
    assert from_frame(rows, "t").space.values("dropout") == [None, 0.1]
    with pytest.raises(InputError, match="column 'rate' is empty in some rows"):
        from_frame(rows.rename(columns={"dropout": "rate"}), "t")
    rows.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.table.yaml").write_text(
        "polarity: {column: polarity, direction: maximize, range: [0, 1]}\n"
        "similarity: {column: similarity, direction: maximize, range: [0, 1]}\n"
        "parameters: [dropout]\n"
    )
    with pytest.raises(InputError, match="column 'dropout' is empty in some rows"):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize("word", ["NA", "None", "null", "nan", "N/A", "NULL", "<NA>"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_words_for_nothing_are_names_among_names(tmp_path: Path, word: str, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    named = frame().replace({"loss": "softmax"}, word)
    if suffix == ".parquet":
        named.to_parquet(path)
    else:
        named.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    table = read(path)
    assert [trial.values["loss"] for trial in table.trials] == ["triplet", word]
    assert read(path, {"loss": word}).trials == table.trials[1:]


@pytest.mark.parametrize("word", ["NA", "None", "null", "nan"])
def test_words_for_nothing_are_empty_cells_among_numbers_and_truth_values(tmp_path: Path, word: str) -> None:
    texts = []
    for missing in ("", word):
        made = frame(flag=[True, True, True, True, missing, *[""] * 3], margin=[0.5] * 4 + [missing] + [""] * 3)
        made.to_csv(tmp_path / "t.csv", index=False)
        texts.append((tmp_path / "t.csv").read_text())
        assert [dict(trial.values) for trial in read(tmp_path / "t.csv").trials] == [
            {"loss": "triplet", "margin": 0.5, "flag": True},
            {"loss": "softmax"},
        ]
    assert texts[0] != texts[1]


def test_a_name_for_nothing_may_be_the_only_one(tmp_path: Path) -> None:
    frame(loss=["NA"] * 4 + ["None"] + [""] * 3).to_csv(tmp_path / "t.csv", index=False)
    assert [trial.values["loss"] for trial in read(tmp_path / "t.csv").trials] == ["NA", "None"]


@pytest.mark.parametrize("again", ["same", "byte order mark", "other order"])
def test_a_repeated_header_is_rejected_with_its_row(tmp_path: Path, again: str) -> None:
    """Also where a filter, such as that of split, would leave it out: it makes words of all numbers."""
    header, *lines = frame().to_csv(index=False).splitlines()
    names = {"same": header, "byte order mark": "\ufeff" + header, "other order": ",".join(header.split(",")[::-1])}
    (tmp_path / "t.csv").write_text("\n".join([header, *lines[:4], names[again], *lines[4:]]))
    with pytest.raises(InputError, match="t.csv: row 5: repeats the header"):
        read(tmp_path / "t.csv")


def test_what_no_trial_made_is_in_no_table_but_the_reference(tmp_path: Path) -> None:
    """Neither the oracle nor baselines, which a search would take for configurations of its own."""
    baselines = [
        baseline("dev", "probe", 0.9, 0.46, value=0.3),
        baseline("dev", "setfit", 0.9, 0.46, label="tuned"),
        baseline("dev", "published", 0.9, 0.46, label="a paper"),
    ]
    write_ledger(tmp_path, random_trials(6), StoredSweep(baselines=baselines))
    assert set(frame_of(load(tmp_path))["kind"]) == {"plain", "reference"}
    with_probe = pd.concat([frame(), frame().tail(1).assign(kind="probe", polarity=0.99)])
    assert from_frame(with_probe, "t.csv") == from_frame(frame(), "t.csv")
