"""A sweep over a sequence of data sets that is killed between two of them."""

import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.results.reader import load
from raysweep.training.trial import run_trial, trial_seed
from support.command_line import ALONE, ENVIRONMENT, command, num_rungs, raysweep
from support.sequences import write_sweep

pytestmark = pytest.mark.recovery


def test_killed_between_data_sets_resumes_to_the_same_bits(
    tmp_path: Path, tiny_encoder: str
) -> None:
    options = (str(write_sweep(tmp_path, tiny_encoder)), *ALONE)
    process = subprocess.Popen(
        command("run", *options), cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 400
    # of the second trial
    while not any(num_rungs(run) >= 3 for run in (tmp_path / "runs").glob("sequence-*")):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (run,) = (tmp_path / "runs").glob("sequence-*")
    done = raysweep(tmp_path, "run", "--resume", str(run))
    assert done.returncode == 0, done.stdout + done.stderr

    results = load(run)
    assert [(rung.trial, rung.step) for rung in results.rungs] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    stored = {
        (point.trial, point.step, *point.key, point.split): point
        for point in (*results.points, *results.tasks)
    }
    prepared = Prepared.read(run / "prepared.json")
    for trial in results.trials:
        config = trial_config(trial.config)
        for rung in run_trial(
            config,
            prepared,
            seed=trial_seed(0, config),
            evaluation=EvaluationConfig(k=4),
            device="cpu",
        ):
            for key, scores in {**rung.points, **rung.tasks}.items():
                point = stored[trial.trial, rung.step, *key, "dev"]
                assert (point["polarity"], point["similarity"]) == (
                    scores.mean("polarity"),
                    scores.mean("similarity"),
                )
    assert {point.step for point in results.points if point.trial is not None} == {2}
    assert any(key[2] == "mask" and key[4] == "test" for key in stored)

    rows = json.loads((run / "report" / "data_sets.json").read_text())
    assert [(row["trial"], row["data_set"]) for row in rows] == [
        (trial, name) for trial in (0, 1) for name in ("sentiment", "length")
    ]
    assert "| sentiment |" in (run / "report" / "front.md").read_text()
    done = raysweep(tmp_path, "export", str(run), "exported", "--data-set", "length")
    assert done.returncode == 0, done.stdout + done.stderr
    lengths = np.linalg.norm(
        SentenceTransformer(str(tmp_path / "exported"), device="cpu").encode(["a room"]), axis=1
    )
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
