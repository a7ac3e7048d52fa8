"""The command ``schema``, which prints the file that the shipped spaces name."""

from typer.testing import CliRunner

from raysweep.cli import commands
from support.paths import SPACES


def test_what_is_printed_is_the_committed_file() -> None:
    done = CliRunner().invoke(commands.app, ["schema"])
    assert done.exit_code == 0
    assert done.output == (SPACES / "sweep.schema.json").read_text(encoding="utf-8")
