"""A command that is called wrongly says so in one line, with the option, its value and what is allowed."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from raysweep.cli import usage
from support.command_line import command, raysweep_here

WHOLE = "a whole number, "


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("control", "RUN", "--workers", "abc"), f"--workers is 'abc'; allowed: {WHOLE}1 or more"),
        (("control", "RUN", "--workers", "0"), "--workers is '0'; allowed: 1 or more"),
        (("control", "RUN", "--stop-trial", "-1"), "--stop-trial is '-1'; allowed: 0 or more"),
        (("show", "RUN", "--top", "0"), "--top is '0'; allowed: 1 or more"),
        (("show", "RUN", "--top", "abc"), f"--top is 'abc'; allowed: {WHOLE}1 or more"),
        (("watch", "RUN", "--every", "0"), "--every is '0'; allowed: 0.2 to 86400"),
        (("watch", "RUN", "--every", "soon"), "--every is 'soon'; allowed: a number, 0.2 to 86400"),
        (("transfer", "M", "--tasks", "T", "--seed", "4294967296"), "--seed is '4294967296'; allowed: 0 to 4294967295"),
        (("compare",), "RUN is missing"),
        (("evaluate", "--model", "demo"), "--train is missing"),
    ],
)
def test_a_misuse_names_what_is_wrong_and_what_is_allowed(tmp_path, arguments, expected):
    done = raysweep_here(tmp_path, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {expected}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("watch", "A", "B"), ("(B)", "usage: ", " watch [OPTIONS]")),
        (("show", "RUN", "--tops", "3"), ("--tops", "--top)", "usage: ", " show [OPTIONS]")),
        (("show", "RUN", "--top"), ("--top",)),
        (("frob",), ("'frob'", "usage: ", " [OPTIONS] COMMAND")),
    ],
)
def test_other_misuses_name_the_word_and_the_usage(tmp_path, arguments, words):
    done = raysweep_here(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("--help",), 0), (("watch", "--help"), 0)])
def test_help_is_shown_as_it_was(tmp_path, arguments, code):
    done = raysweep_here(tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (code, "")
    assert "Usage: " in done.stdout and "error" not in done.stdout


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EACCES, "error: /runs/one/checkpoints: Permission denied\n"),
        (errno.ENOSPC, "error: /runs/one/checkpoints: No space left on device\n"),
    ],
)
def test_a_file_that_is_forbidden_or_finds_no_room_is_named(tmp_path, monkeypatch, code, said):
    monkeypatch.setattr(usage, "run", refuse(code))
    done = raysweep_here(tmp_path, "report", "RUN")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_file_that_raysweep_itself_has_lost_is_no_misuse(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "run", refuse(errno.ENOENT))
    with pytest.raises(FileNotFoundError):
        raysweep_here(tmp_path, "report", "RUN")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_ends_a_command_with_one_line(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("schema"), cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False
        )
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


def refuse(code):
    def run(app):
        raise OSError(code, os.strerror(code), "/runs/one/checkpoints")

    return run
