"""Comparison of models, against sentence-transformers, scikit-learn and SciPy, and the command transfer."""

import csv
import io
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sklearn.model_selection import cross_val_predict

from raysweep.data import demo
from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError
from raysweep.evaluation.tasks import figures
from raysweep.evaluation.tasks.classification import STRENGTHS
from raysweep.evaluation.tasks.compare import Comparison, Settings, compare
from raysweep.evaluation.tasks.tasks import Classification
from support.command_line import raysweep_here
from support.displays import ListDisplay
from support.encoders import PROMPTED, write_with_prompts
from support.kinds import write_router
from support.regression import searched, stratified

NUM_FOLDS = 3


@pytest.fixture(scope="module")
def other_encoder(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an encoder with its own prompt, other weights, long embeddings and similarity by inner product."""
    import torch

    model = SentenceTransformer(tiny_encoder, device="cpu")
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    del model[-1]  # which gives unit length
    model.similarity_fn_name = "dot"
    model.prompts = {"own": "review: "}
    model.default_prompt_name = "own"
    folder = tmp_path_factory.mktemp("other") / "other-encoder"
    model.save(str(folder), create_model_card=False)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three tasks, and data that shares sentences with them."""
    folder = tmp_path_factory.mktemp("tasks")
    train, test = demo.generate()
    rows = [row for row in train if row.topic in ("trains", "concerts", "phones")][:120]
    kinds = pd.DataFrame({"text": [row.text for row in rows], "label": [row.topic for row in rows]})
    kinds.to_csv(folder / "kinds.csv", index=False)
    for name, part in (("train", train[:200]), ("test", test[:80])):
        frame = pd.DataFrame(
            {"text": [row.text for row in part], "label": [row.label for row in part]}
        )
        frame.to_csv(folder / f"{name}.csv", index=False)
    rng = np.random.default_rng(0)
    scores = np.round(rng.uniform(0, 5, 30), 1)
    lines = [
        f"{s}\t{a.text}\t{b.text}" for s, a, b in zip(scores, test[:30], test[40:70], strict=True)
    ]
    (folder / "pairs.tsv").write_text("\n".join([*lines, "\tnot\tscored", ""]))
    seen = [
        *(f"  {row.text.upper()}!!" for row in rows[:25]),
        test[0].text,
        test[41].text,
        "of no task",
    ]
    pd.DataFrame({"text": seen}).to_csv(folder / "seen.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def compared(tiny_encoder: str, other_encoder: str, folder: Path) -> Comparison:
    spelled = [
        str(folder / "kinds.csv"),
        f"split={folder}/train.csv,{folder}/test.csv",
        str(folder / "pairs.tsv"),
    ]
    settings = Settings(num_folds=NUM_FOLDS, seed=4)
    return compare(
        [tiny_encoder, other_encoder], spelled, [str(folder / "seen.csv")], settings, ListDisplay()
    )


def outcomes(compared: Comparison, task: str) -> list[Any]:
    """Return each model's result on a task."""
    (results,) = [
        task_results for task_results in compared.results if task_results.task.name == task
    ]
    return list(results.outcomes.values())


def loaded(tiny_encoder: str, other_encoder: str) -> list[SentenceTransformer]:
    return [SentenceTransformer(path, device="cpu") for path in (tiny_encoder, other_encoder)]


def test_cross_validation_of_a_model_equals_scikit_learn(
    compared: Comparison, tiny_encoder: str, other_encoder: str, folder: Path
) -> None:
    frame = pd.read_csv(folder / "kinds.csv")
    assert frame["label"].nunique() == 3
    for model, outcome in zip(
        loaded(tiny_encoder, other_encoder), outcomes(compared, "kinds"), strict=True
    ):
        embeddings = model.encode(frame["text"].tolist())
        search = searched(STRENGTHS, stratified(5, 4))
        expected = (
            cross_val_predict(search, embeddings, frame["label"], cv=stratified(NUM_FOLDS, 4))
            == frame["label"]
        )
        assert (outcome.is_right != expected).sum() <= 2  # embeddings differ in their last digits


def test_split_of_a_model_equals_scikit_learn(
    compared: Comparison, tiny_encoder: str, other_encoder: str, folder: Path
) -> None:
    train, test = (pd.read_csv(folder / f"{name}.csv") for name in ("train", "test"))
    for model, outcome in zip(
        loaded(tiny_encoder, other_encoder), outcomes(compared, "split"), strict=True
    ):
        search = searched(STRENGTHS, stratified(5, 4)).fit(
            model.encode(train["text"].tolist()), train["label"]
        )
        share = (search.predict(model.encode(test["text"].tolist())) == test["label"]).mean()
        assert outcome.score().value == pytest.approx(share, abs=2.1 / len(test))


def test_correlation_uses_the_similarity_of_the_model(
    compared: Comparison, tiny_encoder: str, other_encoder: str, folder: Path
) -> None:
    frame = pd.read_csv(
        folder / "pairs.tsv", sep="\t", names=["score", "first", "second"], quoting=csv.QUOTE_NONE
    )
    frame = frame.dropna()
    for model, outcome in zip(
        loaded(tiny_encoder, other_encoder), outcomes(compared, "pairs"), strict=True
    ):
        first, second = (model.encode(frame[column].tolist()) for column in ("first", "second"))
        similarities = model.similarity_pairwise(first, second).numpy()
        assert outcome.score().value == pytest.approx(
            spearmanr(frame["score"], similarities).statistic, abs=5e-3
        )
    plain, own = (outcome.similarities for outcome in outcomes(compared, "pairs"))
    assert np.abs(plain).max() <= 1 + 1e-6 < np.abs(own).max()


def test_shared_sentences_are_counted_and_left_out(compared: Comparison, folder: Path) -> None:
    frame = pd.read_csv(folder / "kinds.csv")
    kinds, split, pairs = compared.results
    seen = {
        "".join(filter(str.isalnum, text.lower()))
        for text in pd.read_csv(folder / "seen.csv")["text"]
    }

    def is_seen(texts: list[str]) -> list[bool]:
        return ["".join(filter(str.isalnum, text.lower())) in seen for text in texts]

    assert kinds.overlaps[0].num_shared == {"all": sum(is_seen(frame["text"].tolist()))}
    assert kinds.overlaps[0].num_shared["all"] >= 25
    assert kinds.overlaps[0].is_unseen.tolist() == [
        not is_shared for is_shared in is_seen(frame["text"].tolist())
    ]
    assert split.overlaps[0].num_shared["test"] == sum(
        is_seen(pd.read_csv(folder / "test.csv")["text"].tolist())
    )
    assert pairs.overlaps[0].num_shared == {"all": 2}
    assert (~pairs.overlaps[0].is_unseen).nonzero()[0].tolist() == [0, 1]
    (outcome, _) = kinds.outcomes.values()
    unseen = outcome.score(kinds.overlaps[0].is_unseen)
    assert unseen.value == outcome.is_right[kinds.overlaps[0].is_unseen].mean()


def test_table_json_and_csv_have_the_same_scores(compared: Comparison, other_encoder: str) -> None:
    content = json.loads(json.dumps(figures.as_json(compared), allow_nan=False))
    assert (content["folds"], content["seed"], content["models"]) == (
        NUM_FOLDS,
        4,
        list(compared.models),
    )
    (kinds, split, pairs) = content["tasks"]
    assert [task["kind"] for task in (kinds, split, pairs)] == ["accuracy", "accuracy", "spearman"]
    assert [len(task["scores"][0]["strengths"] or []) for task in (kinds, split, pairs)] == [
        NUM_FOLDS,
        1,
        0,
    ]
    rows = list(csv.DictReader(io.StringIO(figures.as_csv(compared))))
    assert len(rows) == 3 * 2 * 2
    (csv_row,) = [
        row
        for row in rows
        if (row["task"], row["model"], row["rows"]) == ("kinds", other_encoder, "all")
    ]
    score = kinds["scores"][1]
    columns = ("score", "low", "high", "fold_std")
    assert [float(csv_row[column]) for column in columns] == [score[column] for column in columns]
    assert score["low"] < score["score"] < score["high"]
    table = figures.table(compared)
    (cells,) = [row for row in table.rows if row[0] == "kinds"]
    for score in kinds["scores"]:
        assert f"{score['score']:.2f} ±{(score['high'] - score['low']) / 2:.2f}" in cells
    assert f"{kinds['shared'][0]['all']} of 120" in cells
    assert {"encoder", "other-encoder", "in seen.csv"} <= set(table.columns)
    assert any(row[0].strip() == "not in seen.csv" for row in table.rows)


def test_prompt_precedes_every_sentence(
    tiny_encoder: str, other_encoder: str, folder: Path
) -> None:
    pairs = [str(folder / "pairs.tsv")]

    def similarities(model: str, prompt: str | None) -> Any:
        (outcome,) = outcomes(
            compare([model], pairs, [], Settings(prompt=prompt), ListDisplay()), "pairs"
        )
        return outcome.similarities

    own, none, same = (similarities(other_encoder, prompt) for prompt in (None, "", "review: "))
    np.testing.assert_allclose(own, same, rtol=1e-5)
    assert np.abs(own - none).max() > 1e-3
    np.testing.assert_allclose(
        similarities(tiny_encoder, None), similarities(tiny_encoder, ""), rtol=1e-5
    )


@pytest.mark.parametrize("kind", PROMPTED)
def test_own_prompt_is_used_as_by_encode(
    tiny_encoder: str, folder: Path, tmp_path: Path, kind: str
) -> None:
    model = write_with_prompts(tiny_encoder, tmp_path / "model", kind)
    (outcome,) = outcomes(
        compare([model], [str(folder / "pairs.tsv")], [], Settings(), ListDisplay()), "pairs"
    )
    library = SentenceTransformer(model, device="cpu")
    lines = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()]
    first, second = (
        library.encode([line[column] for line in lines if line[0]]) for column in (1, 2)
    )
    expected = library.similarity_pairwise(first, second).numpy()
    np.testing.assert_allclose(outcome.similarities, expected, atol=1e-5)


def test_router_embeds_the_first_sentence_as_a_query(
    demo_package: ModuleType, folder: Path, tmp_path: Path
) -> None:
    model = write_router(tmp_path / "model", Path(demo_package.get_model_path()))
    tasks = [str(folder / "pairs.tsv"), str(folder / "kinds.csv")]
    compared = compare([model], tasks, [], Settings(num_folds=NUM_FOLDS), ListDisplay())
    library = SentenceTransformer(model, device="cpu")
    lines = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()]
    pairs = [line for line in lines if line[0]]
    first = library.encode_query([line[1] for line in pairs])
    second = library.encode_document([line[2] for line in pairs])
    (outcome,) = outcomes(compared, "pairs")
    expected = library.similarity_pairwise(first, second).numpy()
    np.testing.assert_allclose(outcome.similarities, expected, atol=1e-5)
    assert outcomes(compared, "kinds")


def test_tuning_data_is_read_from_provenance(
    tiny_encoder: str, folder: Path, tmp_path: Path
) -> None:
    """Data that several models name is read once; missing data causes a warning."""
    tuned, other_model, lost = (
        shutil.copytree(tiny_encoder, tmp_path / name) for name in ("tuned", "other", "lost")
    )
    seen = str(folder / "seen.csv")
    Provenance("run", "0:1", "demo", (seen,)).write(tuned)
    Provenance("run", "0:1", "demo", ("demo",)).write(other_model)
    Provenance("run", "0:1", "demo", (str(tmp_path / "gone.csv"),)).write(lost)
    display = ListDisplay()
    models = [str(item) for item in (tuned, other_model, lost)]
    compared = compare(models, [str(folder / "pairs.tsv")], [seen], Settings(), display)
    assert [(item.name, item.models) for item in compared.data] == [
        (seen, (models[0],)),
        ("demo", (models[1],)),
    ]
    assert list(figures.notes(compared)) == [
        f"{models[0]} was tuned on {seen}",
        f"{models[1]} was tuned on demo",
    ]
    (warning,) = display.lines
    assert warning.startswith(f"warning: {models[2]}: tuned on {tmp_path / 'gone.csv'}")
    Provenance("run", "0:1", "demo", ("http://127.0.0.1:9/train.csv",)).write(lost)
    compare([str(lost)], [str(folder / "pairs.tsv")], [], Settings(), display)
    assert "not on this machine" in display.lines[-1] and "--tuned-on" in display.lines[-1]
    (lost / "raysweep.json").write_text('{"run": 1}')
    with pytest.raises(InputError, match=r"raysweep.json: damaged.*--tuned-on"):
        compare([str(lost)], [str(folder / "pairs.tsv")], [], Settings(), display)


def test_small_classes_cause_a_warning(tiny_encoder: str, tmp_path: Path) -> None:
    rows = [
        (f"text {number}", label)
        for label, count in {"a": 20, "b": 20, "c": 4}.items()
        for number in range(count)
    ]
    table = pd.DataFrame(rows, columns=["text", "label"])
    table.to_csv(tmp_path / "whole.csv", index=False)
    table[table["label"] != "c"].to_csv(tmp_path / "train.csv", index=False)
    display = ListDisplay()
    spelled = [
        str(tmp_path / "whole.csv"),
        f"split={tmp_path / 'train.csv'},{tmp_path / 'whole.csv'}",
    ]
    compared = compare([tiny_encoder], spelled, [], Settings(num_folds=5), display)
    assert display.lines == [
        "warning: whole: labels with fewer rows than folds: c",
        "warning: split: 4 of 44 rows in test have labels that are not in train, such as 'c'",
    ]
    assert not compared.results[1].outcomes[tiny_encoder].is_right[-4:].any()  # type: ignore[union-attr]


def test_merged_labels_of_a_task_are_reported(tiny_encoder: str, tmp_path: Path) -> None:
    for name, label in (("train", "caf\u00e9"), ("test", "cafe\u0301")):
        frame = pd.DataFrame(
            {"text": [f"{name} {i}" for i in range(40)], "label": [label, "bar"] * 20}
        )
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    display = ListDisplay()
    (result,) = compare(
        [tiny_encoder],
        [f"split={tmp_path / 'train.csv'},{tmp_path / 'test.csv'}"],
        [],
        Settings(),
        display,
    ).results
    (warning,) = display.lines
    assert warning.startswith("warning: split: labels: merged 2 spellings into 1 label")
    assert isinstance(result.task, Classification) and set(result.task.tested.labels) == {
        "caf\u00e9",
        "bar",
    }


def test_progress_counts_sentences_and_fits(tiny_encoder: str, folder: Path) -> None:
    display = ListDisplay()
    compare([tiny_encoder], [str(folder / "kinds.csv")], ["demo"], Settings(num_folds=3), display)
    names = [text.split(":")[1].strip() for text, _ in display.statuses]
    assert list(dict.fromkeys(names)) == ["demo", tiny_encoder, f"{tiny_encoder} on kinds"]
    assert display.statuses[-1][1] == 1


def test_command_takes_several_files_per_option(tiny_encoder: str, folder: Path) -> None:
    files = ["kinds.csv", "pairs.tsv"]
    done = raysweep_here(
        folder,
        "transfer",
        tiny_encoder,
        "--tasks",
        *files,
        "--folds",
        "3",
        "--tuned-on",
        "seen.csv",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "Accuracy (3-fold cross-validation or test split) and Spearman's correlation, x100"
    )
    done = raysweep_here(
        folder, "transfer", "--folds", "3", "--format", "json", tiny_encoder, "--tasks", *files
    )
    assert [task["task"] for task in json.loads(done.stdout)["tasks"]] == ["kinds", "pairs"]
    done = raysweep_here(
        folder, "transfer", tiny_encoder, "--tasks", "pairs.tsv", "--format", "csv"
    )
    assert done.stdout.splitlines()[0] == "task,kind,rows,model,num_rows,score,low,high,fold_std"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["./gone", "--tasks", "kinds.csv"], "model './gone': no such folder"),
        (["demo", "demo", "--tasks", "kinds.csv"], "MODEL: 'demo' is given 2 times"),
        (["demo", "--tasks", "gone.csv"], "gone.csv: no such file"),
        (
            ["demo", "--tasks", "kinds.csv", "--folds", "200"],
            "kinds: has 120 rows, fewer than the 200 folds",
        ),
        (
            ["demo", "--tasks", "kinds.csv", "--label-column", "stars"],
            "kinds.csv: has neither the columns of labeled",
        ),
        (["demo", "--tasks", "kinds.csv", "--tuned-on", "gone.csv"], "gone.csv: no such file"),
        (
            ["demo", "--tasks", "kinds.csv", "--format", "yaml"],
            "--format is 'yaml'; allowed: table, json, csv",
        ),
        (
            ["demo", "--tasks", "kinds.csv", "--pair-columns", "a"],
            "--pair-columns is 'a'; allowed: FIRST,SECOND",
        ),
        (["demo", "--tasks", ""], "--tasks is empty"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: list[str], message: str, folder: Path) -> None:
    done = raysweep_here(folder, "transfer", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1
