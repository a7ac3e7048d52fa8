"""Reports of ledgers that were edited by hand: errors are reported, or harmless."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from raysweep.controller.resume import Resumed
from raysweep.errors import InputError
from raysweep.report import write
from raysweep.results.reader import load
from support.ledgers import read_lines, write_lines


@pytest.mark.parametrize(
    ("event", "key", "value", "problem"),
    [
        ("rung", "points.0.polarity", "abc", "polarity is 'abc'"),
        ("rung", "points.0.polarity", math.nan, "polarity is nan"),
        ("rung", "points.0.polarity", 7, "P is 7"),
        ("rung", "points", None, "points is missing"),
        ("rung", "trial", 99, "trial 99 has not begun"),
        ("rung", "event", "holdd", "event is 'holdd'"),
        ("run", "k", "x", "k is 'x'"),
        ("end", "trial", 99, "trial 99 has not begun"),
    ],
)
def test_an_inconsistent_ledger_is_rejected_with_its_line(run, event, key, value, problem):
    folder = run.folder
    path = folder / "ledger.jsonl"
    lines = read_lines(folder)
    number = next(i for i, line in enumerate(lines) if line["event"] == event)
    *way, last = key.split(".")
    holder = lines[number]
    for step in way:
        holder = holder[int(step) if step.isdigit() else step]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    write_lines(folder, lines)
    with pytest.raises(
        InputError, match=re.escape(f"{path}: line {number + 1}: ") + ".*" + re.escape(problem)
    ):
        load(folder)


def written_front(folder: Path) -> Any:
    write.write(folder)
    return json.loads((folder / "report" / "front.json").read_text())


@pytest.mark.parametrize("value", [None, "x", -7, [], {}, math.inf], ids=repr)
def test_wrong_ledger_values_are_rejected_or_harmless(run: Any, value: Any) -> None:
    """Replace each key of the last event of each kind by a wrong value, one at a time.

    A value is harmless if the front does not change or, if the event loses its points, is that of a ledger without it.
    """
    lines = read_lines(run.folder)
    original_front = written_front(run.folder)
    last = {line["event"]: number for number, line in enumerate(lines)}
    assert set(last) == {"run", "points", "trial", "rung", "end", "finish"}
    rejections = []
    for number in last.values():
        before, line, after = lines[:number], lines[number], lines[number + 1 :]
        for key in line:
            write_lines(run.folder, [*before, {**line, key: value}, *after])
            try:
                front = written_front(run.folder)
            except InputError as error:
                rejections.append(str(error))
                continue
            expected = original_front
            if key == "points":
                write_lines(run.folder, [*before, *after])
                expected = written_front(run.folder)
            assert front == expected, f"{line['event']}: {key} is {value!r}"
    ledger, settings = (
        re.escape(f"{run.folder / 'ledger.jsonl'}: "),
        re.escape(f"{run.folder / 'config.yaml'}: "),
    )
    place = rf"{ledger}(line \d+: |written with schema)|{settings}"
    assert rejections
    assert all(re.match(place, message) for message in rejections)


def test_a_run_with_an_invalid_configuration_is_not_resumed(run):
    folder = run.folder
    path = folder / "ledger.jsonl"
    lines = read_lines(folder)
    for line in lines:
        if line["event"] == "trial":
            line["config"]["learning_rate"] = "abc"
    write_lines(folder, lines)
    (folder / "prepared.json").touch()
    with pytest.raises(InputError, match=re.escape(f"{path}: trial 0: learning_rate is ")):
        Resumed(folder)
