"""Replays of recorded sweeps: what they refuse."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from raysweep.cli import commands
from raysweep.replay.compare import CompareSettings, compare_searches
from support.displays import ListDisplay
from support.paths import ROOT

ROWS = "model,loss,epoch,polarity,similarity\na,triplet,1,0.6,0.3\na,softmax,1,0.7,0.4\nb,triplet,1,0.8,0.9\n"
TABLE = ROOT / "benchmarks" / "tables" / "trec.parquet"


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ("grid", "a recorded table has no grid"),
        ("best", "'best' is no sampler"),
    ],
)
def test_a_sampler_that_a_table_has_not_is_named_beside_those_it_has(sampler: str, said: str) -> None:
    refused = CliRunner().invoke(commands.app, ["replay", str(TABLE), "--sampler", sampler]).exception
    assert str(refused) == f"--sampler: {said}; allowed: mfgp, tpe, gp, nsga2, random, package:Class"


@pytest.mark.parametrize(("where", "is_warned"), [({}, True), ({"model": "a"}, False)])
def test_several_encoders_in_one_search_are_warned_of(tmp_path: Path, where: dict[str, str], is_warned: bool) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    display = ListDisplay()
    settings = CompareSettings(["random"], ["none"], "area", 2, num_workers=1, num_seeds=1)
    compare_searches(tmp_path / "t.csv", where, settings, display)
    warned = [text for text in display.lines if "model has 2 values" in text]
    assert bool(warned) is is_warned
