"""A command that is called wrongly says so in one line, with the option, its value and what is allowed."""

import pytest

from support.command_line import raysweep_here

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
