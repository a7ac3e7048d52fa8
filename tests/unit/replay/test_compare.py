"""Comparisons of searches on a recording: rejected samplers and warnings."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from raysweep.cli import commands
from raysweep.errors import InputError
from raysweep.replay.compare import CompareSettings, compare_searches
from support.displays import ListDisplay
from support.paths import ROOT

RECORDING = ROOT / "benchmarks" / "recordings" / "trec.parquet"


@pytest.mark.parametrize("sampler", ["grid", "best"])
def test_unknown_samplers_are_rejected_with_the_allowed_ones(sampler: str) -> None:
    error = (
        CliRunner().invoke(commands.app, ["replay", str(RECORDING), "--sampler", sampler]).exception
    )
    assert isinstance(error, InputError)
    assert f"--sampler is '{sampler}'" in str(error)
    assert "mfgp, tpe, gp, nsga2, random, package:Class" in str(error)


def test_recordings_with_one_rung_are_warned_about(tmp_path: Path) -> None:
    header = "trial,loss,examples_seen,seconds,kind,polarity,similarity"
    rows = "0,triplet,1,1,plain,0.6,0.3\n1,softmax,1,1,plain,0.7,0.4\n"
    (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
    display = ListDisplay()
    settings = CompareSettings(["random"], ["none"], "area", 2, num_workers=1, num_seeds=1)
    compare_searches(tmp_path / "t.csv", {}, settings, display)
    assert [line for line in display.lines if "one rung" in line]
