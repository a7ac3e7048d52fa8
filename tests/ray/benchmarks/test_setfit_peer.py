"""The setfit package beside its first phase as a trial, on a few sentences of the demo. Needs the extra ``setfit``."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from support.command_line import ENVIRONMENT
from support.paths import ROOT

BENCHMARK = [sys.executable, "-m", "benchmarks.setfit_peer"]
IS_INSTALLED = importlib.util.find_spec("setfit") is not None


def run(tmp_path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*BENCHMARK, *options],
        cwd=ROOT,
        env={**ENVIRONMENT, "RAYSWEEP_DATA_DIR": str(tmp_path)},  # where there is no SST-2
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.skipif(not IS_INSTALLED, reason="the package setfit is not installed")
def test_both_train_on_the_same_sentences_and_the_model_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "setfit"
    done = run(tmp_path, "--json", "--per-class", "3", "--iterations", "2", "--keep", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    rows = found["rows"]
    assert found["sentences"] == 6
    assert found["pairs"] == 6 * 2 * 2
    assert found["peers"]["setfit"]["turns"][0]["amount"] == found["pairs"]
    untrained, *trained = (row["polarity"]["mean"] for row in rows.values())
    assert len(trained) == 3
    assert any(polarity != untrained for polarity in trained)
    assert all(row["polarity"]["low"] <= row["polarity"]["mean"] <= row["polarity"]["high"] for row in rows.values())
    assert "published" not in done.stdout, "these are not the published queries"
    assert encoder.load(EncoderConfig(name=str(folder))).get_embedding_dimension() == 384


@pytest.mark.skipif(IS_INSTALLED, reason="the package setfit is installed")
def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    refused = run(tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == "error: the package setfit is not installed: pip install 'raysweep[setfit]'\n"


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path) -> None:
    refused = run(tmp_path, "--keep", str(tmp_path))
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
