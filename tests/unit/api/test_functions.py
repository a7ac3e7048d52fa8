"""The public API: its names, and the errors for invalid input."""

import subprocess
import sys
from pathlib import Path

import pytest

import raysweep


def test_public_names_exist_and_are_documented() -> None:
    for name in raysweep.__all__:
        value = getattr(raysweep, name)
        assert name in dir(raysweep)
        assert name == "__version__" or value.__doc__, name


def test_unknown_names_raise_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'raysweep' has no attribute 'sweep_load'"):
        raysweep.sweep_load  # noqa: B018


def test_import_is_light() -> None:
    code = "import sys; import raysweep; print([m for m in ('numpy', 'pandas', 'pydantic', 'optuna', 'torch', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_shipped_spaces_load_by_name_with_overrides() -> None:
    overrides = {
        "budget.trials": 7,
        "objective.polarity_weight": 0.25,
        "space.freezing": "emb",
        "data.train": Path("a.csv"),
    }
    sweep = raysweep.load_sweep("smoke", overrides)
    assert (sweep.config.budget.trials, sweep.config.objective.polarity_weight) == (7, 0.25)
    assert sweep.space.values("freezing") == ["emb"]
    assert sweep.config.data.train == str(Path("a.csv").absolute())


def test_overrides_may_be_yaml_text_or_values() -> None:
    as_text = raysweep.load_sweep("smoke", {"space.learning_rate": "{low: 1e-6, high: 1e-4, log: true}"})
    as_value = raysweep.load_sweep("smoke", [("space.learning_rate", {"low": 1e-6, "high": 1e-4, "log": True})])
    assert as_text.space == as_value.space


@pytest.mark.parametrize("name", ["/data/x #1.csv", "/data/a: b.csv", "/data/2024", "/data/\U0001f600.csv"])
def test_paths_are_used_verbatim(name: str) -> None:
    assert raysweep.load_sweep("smoke", {"data.train": Path(name)}).config.data.train == name
    assert raysweep.load_sweep("smoke", {"data.train": [name, "/data/y.csv"]}).config.data.train == [
        name,
        "/data/y.csv",
    ]


def test_preparing_in_process_reports_warnings(tmp_path: Path, tiny_encoder: str) -> None:
    rows = [f"sentence {number},{number % 2}" for number in range(40)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows, "torn,0", "torn,1"]))
    overrides = {
        "data.train": tmp_path / "train.csv",
        "model": tiny_encoder,
        "storage.runs": tmp_path,
        "evaluation.k": 2,
    }
    sweep = raysweep.load_sweep("smoke", overrides | {"space.freezing": "none"})
    messages: list[raysweep.Progress] = []
    raysweep.prepare_sweep(sweep, in_process=True, on_progress=messages.append)
    warnings = [progress.text for progress in messages if progress.kind == "warning"]
    assert any("1 text occurs with different labels" in text and "dropped 2 rows" in text for text in warnings)


@pytest.mark.parametrize(
    ("space", "overrides", "message"),
    [
        ("smok", {}, r"smok: no such file or shipped space \(did you mean smoke\?\); shipped: .*smoke"),
        ("smoke", {"budget.trails": 4}, r"--budget.trails: unknown key \(did you mean trials\?\)"),
        ("smoke", {"budget.trials": -1}, r"--budget.trials is -1; allowed: "),
        (
            "smoke",
            {"budget.trials": object()},
            r"budget.trials is .* of type object; allowed: a value that YAML can represent",
        ),
        ("smoke", {"sampler": "nowhere:Sampler"}, r"--sampler: 'nowhere:Sampler' cannot be imported"),
    ],
)
def test_invalid_sweeps_are_rejected(space: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(raysweep.InputError, match=message):
        raysweep.load_sweep(space, overrides)


def test_trial_configurations_have_the_defaults_of_their_loss() -> None:
    assert raysweep.trial_config(loss="multiple_negatives", learning_rate=1e-5).loss_parameters["scale"] == 20
    with pytest.raises(raysweep.InputError, match=r"margn: unknown key \(did you mean margin"):
        raysweep.trial_config(loss="triplet", learning_rate=1e-5, margn=0.1)


def test_missing_runs_and_prepared_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(raysweep.InputError, match="not a run folder"):
        raysweep.load_run(tmp_path)
    with pytest.raises(raysweep.InputError, match="not a run folder"):
        raysweep.export_point(tmp_path, tmp_path / "model")
    with pytest.raises(raysweep.InputError, match="not a file that raysweep prepare wrote"):
        raysweep.open_prepared(tmp_path / "missing.json")
    for place in ("", "ftp://host/prepared.json", "s3://ID:sEcret@bucket/prepared.json"):
        with pytest.raises(raysweep.InputError) as caught:
            raysweep.open_prepared(place)
        assert "sEcret" not in str(caught.value)
    with pytest.raises(raysweep.InputError, match="cannot be resumed"):
        raysweep.resume_run(tmp_path)
