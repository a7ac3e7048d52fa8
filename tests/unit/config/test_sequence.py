"""The key ``data.sequence`` of a sweep's file."""

from pathlib import Path

import pytest

from raysweep.config.trial import trial_config
from raysweep.errors import InputError
from support.sequences import SWEEP, trial
from support.sweep_files import MINIMAL, read


def test_a_rung_is_a_data_set(tmp_path: Path) -> None:
    config, _ = read(tmp_path, SWEEP)
    assert (config.budget.rungs, config.early_stopping.policy) == (2, "none")
    assert list(config.data.tasks) == ["sentiment", "length"]
    length = config.data.tasks["length"]
    assert length.train == str(Path("length.parquet").absolute())
    assert (length.label_column, length.text_column, length.max_dev, length.sequence) == (
        "size",
        "text",
        12,
        [],
    )


def test_the_file_of_a_run_is_read_to_the_same_settings(tmp_path: Path) -> None:
    import yaml

    config, _ = read(tmp_path, SWEEP)
    again, _ = read(tmp_path, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    assert again == config


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("budget__rungs", "3", "--budget.rungs is 3; allowed with data.sequence: 2"),
        (
            "early_stopping__policy",
            "growth",
            "--early_stopping.policy is growth; allowed with data.sequence: none",
        ),
        (
            "space",
            "{loss: softmax, learning_rate: 1.0e-3}",
            "--space.loss is softmax; allowed with data.sequence",
        ),
        (
            "space__freezing",
            "emb",
            "space.freezing is given; allowed with data.sequence: only loss, beta, lambda",
        ),
        ("reference", "demo", "--reference is given; allowed with data.sequence: null"),
        (
            "evaluation__points__truncate",
            "[8]",
            "--evaluation.points.truncate is [8]; allowed with data.sequence: []",
        ),
        ("space__p", "101", "p is 101; allowed: at least 0, at most 100"),
        ("data__train", "other.csv", "train is 'other.csv'; allowed with sequence: none"),
        (
            "data__sequence",
            "[{name: a, train: a.csv}, {name: a, train: b.csv}]",
            "'a' more than once",
        ),
        (
            "data__sequence",
            "[{name: a, train: a.csv}, {name: b, train: b.csv, test: t.csv}]",
            "test is missing for a",
        ),
        ("data__sequence", "[{name: a, train: true}]", "data.sequence[0].train is True"),
        ("data__sequence", "[{name: a, train: {b: c}}]", "data.sequence[0].train is {'b': 'c'}"),
        ("data__sequence", "[{name: a, train: [1]}]", "data.sequence[0].train is 1"),
    ],
)
def test_unsuitable_settings_are_rejected(
    tmp_path: Path, key: str, value: str, problem: str
) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, SWEEP, **{key: value})
    assert problem in str(raised.value)


def test_hypermask_needs_a_sequence(tmp_path: Path) -> None:
    text = MINIMAL.replace("freezing: {choices: [none, emb+B0]}\n  ", "")
    with pytest.raises(
        InputError, match="space.loss is hypermask; allowed without data.sequence: other losses"
    ):
        read(tmp_path, text, space__loss="hypermask")


def test_a_trial_records_what_it_uses() -> None:
    recorded = trial(beta=0.5).recorded
    assert {"beta": 0.5, "heads": "shared", "batch_size": 8}.items() <= recorded.items()
    assert not {"optimizer", "freezing", "schedule"} & recorded.keys()
    assert trial_config(recorded) == trial(beta=0.5)
    assert "heads" not in trial().identity
