"""Replays of recorded sweeps: what they refuse."""

import pytest
from typer.testing import CliRunner

from raysweep.cli import commands
from support.paths import ROOT

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
