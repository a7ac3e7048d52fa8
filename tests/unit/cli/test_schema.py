"""The command ``schema``, which prints what raysweep.config.schema says."""

import json

from typer.testing import CliRunner

from raysweep.cli import commands
from raysweep.config.schema import sweep_schema


def test_the_schema_is_printed_as_json() -> None:
    done = CliRunner().invoke(commands.app, ["schema"])
    assert done.exit_code == 0
    assert json.loads(done.output) == sweep_schema()
