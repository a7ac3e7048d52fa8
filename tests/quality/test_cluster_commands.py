"""Sweep commands in cluster files and pages are valid and need only packages that these files install."""

import re
import shlex
import string
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from raysweep.api.functions import load_sweep
from raysweep.cli.commands import app
from raysweep.cli.options import with_trials
from raysweep.config import packages
from raysweep.config.load import parse_overrides
from raysweep.config.sweep import SweepConfig
from support.paths import ROOT

NUM_COMMANDS = {
    "cluster.yaml": 0,
    "clusters/Dockerfile": 0,
    "clusters/gcp.yaml": 0,
    "clusters/grafana.json": 0,
    "clusters/raycluster.yaml": 0,
    "clusters/rayjob.yaml": 1,
    "clusters/skypilot.yaml": 1,
    "docs/guides/cloud.md": 3,
    "docs/guides/object-storage.md": 2,
}
RETRIED = ("clusters/rayjob.yaml", "clusters/skypilot.yaml")  # on a new cluster
# a command without arguments is only mentioned
COMMAND = re.compile(r"raysweep\s+(?:run|prepare)[\s\\]+[^\s`]")
SEPARATORS = set(";&|()")
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*")


class Command(NamedTuple):
    """A call of ``raysweep run`` or ``raysweep prepare`` in a file."""

    file: str
    name: str
    arguments: list[str]


def texts(file: str, text: str) -> Iterator[str]:
    """Yield the parts of a file that may contain commands: shell blocks, code spans, YAML strings, comments."""
    if file.endswith(".md"):
        fence = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
        yield from fence.findall(text)
        yield from re.findall(r"`([^`\n]+)`", fence.sub("", text))
        return
    comments = re.findall(r"(?<!\S)#[ \t]?(.*)$", text, re.MULTILINE)
    yield "\n".join(comments).replace("`", "\n")
    if file.endswith(".yaml"):
        yield from strings(yaml.safe_load(text))
    else:
        yield re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def calls(text: str) -> Iterator[list[str]]:
    """Yield the words of each call in a shell text, including quoted commands."""
    for line in text.replace("\\\n", " ").splitlines():
        if not COMMAND.search(line):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="".join(SEPARATORS))
        lexer.whitespace_split = True
        words = list(lexer)
        for start, word in enumerate(words):
            if COMMAND.search(word):
                yield from calls(word)
            elif word == "raysweep" and words[start + 1 : start + 2] in (["run"], ["prepare"]):
                end = next(
                    (i for i in range(start, len(words)) if set(words[i]) <= SEPARATORS), len(words)
                )
                yield words[start + 1 : end]


def commands(file: str) -> list[Command]:
    text = (ROOT / file).read_text(encoding="utf-8")
    variables = dict(re.findall(r"^\s*([A-Z_]+)[:=]\s*(\S+)$", text, re.MULTILINE))
    expanded = string.Template(text).safe_substitute(variables)
    return [
        Command(file, name, words) for part in texts(file, expanded) for name, *words in calls(part)
    ]


COMMANDS = [command for file in NUM_COMMANDS for command in commands(file)]


def test_all_commands_in_cluster_files_are_checked() -> None:
    shipped = {f"clusters/{path.name}" for path in (ROOT / "clusters").iterdir()}
    assert shipped == {file for file in NUM_COMMANDS if file.startswith("clusters/")}
    for file, num_commands in NUM_COMMANDS.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        num_parsed = sum(command.file == file for command in COMMANDS)
        num_matches = len(COMMAND.findall(text))
        assert (num_parsed, num_matches) == (num_commands, num_commands), file


def test_commands_are_found_in_all_forms() -> None:
    pages = {
        "a.md": "`raysweep run` is\n```sh\nray job submit --no-wait -- \\\n  raysweep run a \\\n  --b c  # d\n```\nor `raysweep prepare e`.\n",
        "b.yaml": "# so: `raysweep run a --b c`\n#\n# raysweep prepare d \\\n#     --e f\nk:\n  - >-\n    raysweep run g\n    --h '{i: j}'\n  - |\n    x=1\n    raysweep run l; m\n",
        "Dockerfile": "# raysweep run a\nRUN ray exec b 'raysweep prepare c --d e' && f\n",
    }
    expected = {
        "a.md": ["run a --b c", "prepare e"],
        "b.yaml": ["run a --b c", "prepare d --e f", "run g --h {i: j}", "run l"],
        "Dockerfile": ["run a", "prepare c --d e"],
    }
    for file, text in pages.items():
        assert [" ".join(words) for part in texts(file, text) for words in calls(part)] == expected[
            file
        ]
        assert len(COMMAND.findall(text)) == len(expected[file])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.file} {command.name}")
def test_commands_are_valid_without_the_demo_package(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, packages.DEMO_PACKAGE, None)
    group: Any = typer.main.get_command(app)
    context = group.commands[command.name].make_context(command.name, list(command.arguments))
    overrides = parse_overrides(with_trials(context.args, context.params.get("trials")))
    assert {key.partition(".")[0] for key, _ in overrides} <= SweepConfig.model_fields.keys()
    words = {*command.arguments, *(value for _, value in overrides)}
    if "--resume" in command.arguments or any(PLACEHOLDER.fullmatch(word) for word in words):
        return
    sweep = load_sweep(context.params["space"], overrides)
    packages.check(packages.needs_of_sweep(sweep.config, sweep.space))


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if command.file in RETRIED],
    ids=lambda command: command.file,
)
def test_retries_resume_the_first_attempt(command: Command) -> None:
    arguments = command.arguments
    assert {"--name", "--resume-or-start"} <= set(arguments)
    assert arguments[arguments.index("--storage.runs") + 1].startswith("s3://"), (
        "a new cluster has none of the old disks"
    )
