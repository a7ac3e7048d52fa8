"""A sweep's file: accepted files, and errors that name the file, line, key, value and allowed values."""

from pathlib import Path

import pytest

from raysweep.config.load import load
from raysweep.errors import InputError
from support.paths import ROOT
from support.sweep_files import MINIMAL, read


def test_minimal_file_gets_the_documented_defaults(tmp_path: Path) -> None:
    config, space = read(tmp_path, MINIMAL)
    assert (config.examples.target, config.examples.k, config.evaluation.k) == (250_000, 16, 16)
    assert (config.baselines.setfit, config.baselines.published) == (None, None)
    assert config.baselines.probe
    assert config.reference_encoder == config.mining_encoder == config.model
    assert space.values("learning_rate") == [1e-6, 1e-4], (
        "1e-6 without a dot is a number, as in YAML 1.2"
    )


def test_k_is_at_most_the_pool_size(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(MINIMAL)
    load(file, [("evaluation.num_pool", "8"), ("evaluation.k", "8")])
    with pytest.raises(InputError, match=r"--evaluation\.k is 16; allowed: .*8"):
        load(file, [("evaluation.num_pool", "8"), ("evaluation.k", "16")])


def test_the_file_in_the_guide_is_valid(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "custom-space.md").read_text(encoding="utf-8")
    config, space = read(tmp_path, guide.split("```yaml\n")[1].split("```")[0])
    assert config.model.prompt == "query: "
    assert space.values("loss") == ["triplet", "multiple_negatives"]


INVALID = [
    (
        "model: demo",
        "modle: demo",
        r"line 3: modle: unknown key \(did you mean model\?\); allowed: .*budget, data",
    ),
    (
        "  train: train.csv",
        "  trian: x.csv",
        r"line 2: data\.trian: unknown key .*allowed: .*train",
    ),
    ("low: 1e-6", "low: 0", r"line 10: space\.learning_rate\.low is 0; allowed: above 0"),
    ("low: 1e-6", "low: 1", r"space\.learning_rate is a range from 1 to 0\.0001; allowed: "),
    ("high: 1e-4", "high: 5.0", r"space\.learning_rate\.high is 5\.0; allowed: .*1"),
    (
        "cosine_similarity: {}",
        "cosine_similarity: {margin: 0.1}",
        r"line 9: .*the loss cosine_similarity has no margin",
    ),
    (
        "contrastive: {margin: 0.5}",
        "contrastive: {margin: 3.0}",
        r"margin is 3; allowed: above 0, at most 2",
    ),
    (
        "model: demo",
        "model: demo\nbudget: {prices: 3}",
        r"line 4: budget\.prices is 3; allowed: .*mapping",
    ),
    (
        "      contrastive",
        "      contrastiv",
        r"space\.loss.* is 'contrastiv'; allowed: .*contrastive",
    ),
    ("emb+B0]", "embb]", r"line 11: space\.freezing\.choices\[1\]: .*embb"),
    (
        "  learning_rate: {low: 1e-6, high: 1e-4, log: true}\n",
        "",
        r"space: learning_rate is missing",
    ),
    (
        "  examples_per_rung: 2048",
        "  examples_per_rung: 3000\nearly_stopping: {policy: asha}",
        r"early_stopping\.first_examples is 2048; allowed: .*3000",
    ),
    (
        "  examples_per_rung: 2048",
        "  examples_per_run: 2048",
        r"unknown key \(did you mean examples_per_rung\?\)",
    ),
    (
        "model: demo",
        "model: demo\nevaluation: {k: 0}",
        r"line 4: evaluation\.k is 0; allowed: .*1",
    ),
    (
        "model: demo",
        "model: demo\nmodel: demo",
        r"line 4: model is a duplicate key \(first on line 3\)",
    ),
    ("model: demo", "model: [", r"line \d+:"),
    (
        "model: demo",
        "model: demo\nname: artifacts",
        r"name is 'artifacts'.*required: ",
    ),
    (
        "model: demo",
        f"model: demo\nname: {'x' * 201}",
        r"name is 'x+'; allowed: at most 200 characters",
    ),
    (
        "  train: train.csv",
        "  train: [a.csv, b.csv, ./a.csv]",
        r"data\.train: .*a\.csv' more than once",
    ),
    ("model: demo", "model: &a [*a]", r"an alias contains itself"),
    (
        "  examples_per_rung: 2048",
        "  examples_per_rung: {low: 512, high: 2048}",
        r"examples_per_rung is a range; allowed: ",
    ),
    ("contrastive: {margin: 0.5}", "contrastive: {margin: null}", r"margin is null; allowed: "),
    (
        "  learning_rate: {low: 1e-6, high: 1e-4, log: true}\n",
        "",
        r"space: learning_rate is missing",
    ),
    (
        "model: demo",
        "model: demo\nevaluation: {k: 8}\nbaselines: {published: sst2}",
        r"line 5: baselines\.published is sst2, .*k 16.*k 8.*allowed: null",
    ),
    (
        "model: demo",
        "model: demo\nbaselines: {published: mr}",
        r"line 4: baselines\.published is 'mr'; allowed: 'sst2'",
    ),
    (
        "model: demo",
        "model: demo\nbaselines: {probe: [0]}",
        r"baselines\.probe\[0\] is 0; allowed: greater than 0",
    ),
    (
        "{choices: [none, emb+B0]}",
        "[none, emb+B0]",
        r"space\.freezing is a list; allowed: .*\{choices:",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), INVALID, ids=[new[:40] or "missing" for _, new, _ in INVALID]
)
def test_errors_name_the_place_the_value_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in MINIMAL
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, MINIMAL.replace(old, new, 1))
    assert str(caught.value).startswith(str(tmp_path / "sweep.yaml"))


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have their own working folders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").mkdir()
    config, _ = read(
        tmp_path, MINIMAL, model="encoder", data__dev="s3://bucket/dev.csv", data__test="demo"
    )
    assert config.model.name == str(tmp_path / "encoder")
    config, _ = read(tmp_path, MINIMAL, baselines__setfit="encoder")
    assert config.baselines.setfit is not None and config.baselines.setfit.name == str(
        tmp_path / "encoder"
    )
    config, _ = read(
        tmp_path, MINIMAL, model="encoder", data__dev="s3://bucket/dev.csv", data__test="demo"
    )
    assert (config.data.train, config.data.dev, config.data.test) == (
        str(tmp_path / "train.csv"),
        "s3://bucket/dev.csv",
        "demo",
    )


def test_runs_and_artifacts_may_be_in_an_object_store(tmp_path: Path) -> None:
    config, _ = read(tmp_path, MINIMAL, storage__runs="s3://bucket/sweeps/")
    assert (config.storage.runs, config.storage.artifacts_location) == (
        "s3://bucket/sweeps",
        "s3://bucket/sweeps/artifacts",
    )
    with pytest.raises(InputError, match=r"--storage\.runs: .*key.*environment") as caught:
        read(tmp_path, MINIMAL, storage__runs="s3://name:sEcret@bucket/runs")
    assert "sEcret" not in str(caught.value)


def test_limits_of_a_search_are_listed(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL)[0].limits == []
    given = {"budget__minutes": "30", "budget__money": "2.5", "budget__prices__default": "1"}
    given |= {"early_stopping__plateau__trials": "10", "objective__constraints__retention": "0.95"}
    limits = read(tmp_path, MINIMAL, **given)[0].limits
    assert limits == ["minutes 30", "money 2.5", "plateau trials 10", "retention at least 0.95"]


def test_the_default_folder_of_runs_is_resolved_when_a_sweep_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the module is imported, since a notebook may change its folder."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        config, _ = read(tmp_path, MINIMAL)
        assert config.storage.runs == str(tmp_path / name / "raysweep-runs")
