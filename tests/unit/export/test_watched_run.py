"""A run's trial on watched data: its changes are those of the exported model, by the command ``measure``."""

import json
from pathlib import Path

import pytest
import torch

from raysweep.config.sweep import EncoderConfig, Prompts
from raysweep.data import demo
from raysweep.encoders import encoder
from raysweep.export import model_card
from raysweep.export.export import export
from raysweep.training.trainable import Trainable
from support.command_line import raysweep_here
from support.encoders import trial
from support.minimal_run import write_minimal_run


@pytest.fixture
def run(tmp_path: Path, tiny_encoder: str) -> Path:
    config = EncoderConfig(name=tiny_encoder)
    trainable = Trainable(encoder.load(config))
    trainable.start(trial())
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trainable.parameters.values():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    write_minimal_run(tmp_path / "run", config, trainable.trained(), learning_rate=2e-5)
    return tmp_path / "run"


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    """Write labeled sentences and scored pairs."""
    rows = demo.generate()[0][:120]
    (tmp_path / "labeled.csv").write_text(
        "text,label\n" + "".join(f'"{row.text}",{row.label}\n' for row in rows)
    )
    pairs = [{"text1": rows[n].text, "text2": rows[n + 60].text, "score": n % 6} for n in range(60)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return [str(tmp_path / "labeled.csv"), str(tmp_path / "pairs.jsonl")]


def test_changes_are_those_of_the_exported_model(
    run: Path,
    sources: list[str],
    tiny_encoder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, watched = sources
    shown = raysweep_here(
        run.parent,
        "measure-run",
        str(run),
        "--target",
        target,
        "--watch",
        watched,
        "--format",
        "json",
    )
    assert shown.returncode == 0, shown.stderr
    stored = json.loads((run / "report" / "watch.json").read_text())
    assert json.loads(shown.stdout) == stored
    (of_trial,) = stored["trials"]
    assert (of_trial["trial"], of_trial["step"], of_trial["learning_rate"]) == (0, 1, 2e-5)
    monkeypatch.setattr(model_card, "write", lambda *arguments: None)  # draws figures
    export(run, "0:1", tmp_path / "model")
    model = str(tmp_path / "model")
    measured = raysweep_here(
        run.parent, "measure", model, "--base", tiny_encoder, "--data", *sources, "--format", "json"
    )
    expected = json.loads(measured.stdout)
    for found, of_model in zip([of_trial["target"], *of_trial["watched"]], expected, strict=True):
        assert found["pairs"] == of_model["pairs"]
        for row, expected_row in zip(found["measures"], of_model["measures"], strict=True):
            assert row["measure"] == expected_row["measure"]
            assert row["value"] == pytest.approx(expected_row["value"], abs=0.2)
            assert row["base"] == pytest.approx(expected_row["base"], abs=1e-9)
    assert (run / "report" / "watch.png").read_bytes().startswith(b"\x89PNG")


def test_queries_have_their_own_prompt(
    sources: list[str], tiny_encoder: str, tmp_path: Path
) -> None:
    """An untrained query encoder changes nothing, and its base is measured with both prompts."""
    config = EncoderConfig(
        name=tiny_encoder, prompt=Prompts(query="query: ", document="some longer passage: ")
    )
    trainable = Trainable(encoder.load(config))
    trainable.start(trial())
    write_minimal_run(tmp_path / "run", config, trainable.trained(), tower="query")
    shown = raysweep_here(
        tmp_path,
        "measure-run",
        "run",
        "--target",
        sources[0],
        "--watch",
        sources[1],
        "--format",
        "json",
    )
    assert shown.returncode == 0, shown.stderr
    (of_trial,) = json.loads(shown.stdout)["trials"]
    prompts = ("--query-prompt", "query: ", "--prompt", "some longer passage: ")
    measured = raysweep_here(
        tmp_path, "measure", tiny_encoder, "--data", *sources, *prompts, "--format", "json"
    )
    expected = json.loads(measured.stdout)
    for found, of_model in zip([of_trial["target"], *of_trial["watched"]], expected, strict=True):
        for row, expected_row in zip(found["measures"], of_model["measures"], strict=True):
            assert row["base"] == pytest.approx(expected_row["value"], abs=1e-9)
            assert row["value"] == pytest.approx(row["base"], abs=0.1)


def test_repeated_source_is_rejected(run: Path, sources: list[str]) -> None:
    rejected = raysweep_here(
        run.parent, "measure-run", str(run), "--target", sources[0], "--watch", *sources
    )
    assert rejected.returncode == 2
    assert "twice" in rejected.stderr and len(rejected.stderr.splitlines()) == 1


def test_table_names_the_range(run: Path, sources: list[str]) -> None:
    shown = raysweep_here(
        run.parent, "measure-run", str(run), "--target", sources[0], "--watch", sources[1]
    )
    assert shown.returncode == 0
    assert "the adiabatic range is " in shown.stdout
    assert "0:1" in shown.stdout


def test_run_without_weights_is_rejected(run: Path, sources: list[str]) -> None:
    for file in (run / "points").rglob("trained.safetensors"):
        file.unlink()
    rejected = raysweep_here(
        run.parent, "measure-run", str(run), "--target", sources[0], "--watch", sources[1]
    )
    assert rejected.returncode == 2
    assert "weights" in rejected.stderr
    assert len(rejected.stderr.splitlines()) == 1
