"""Ledgers that were truncated, changed or could not be written."""

import gc
import json
import os
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.results.events import TrialContinued, TrialStarted
from raysweep.results.ledger import Ledger, load_events, read_events
from support.ledgers import random_trials, write_ledger

BYTES_APART = 20


@pytest.fixture
def complete_run(tmp_path: Path) -> Path:
    folder = tmp_path / "complete"
    folder.mkdir()
    write_ledger(folder, random_trials(6))
    return folder


def read_lines(folder: Path) -> list[bytes]:
    return (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def write(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "ledger.jsonl").write_bytes(content)
    return folder


def open_and_close(folder: Path) -> Ledger:
    ledger = Ledger(folder)
    ledger.open()
    ledger.close()
    return ledger


def test_truncated_ledger_keeps_its_complete_lines(complete_run: Path, tmp_path: Path) -> None:
    """The next event follows the last complete line, and the incomplete line is set aside."""
    lines = read_lines(complete_run)
    content = b"".join(lines)
    events = list(read_events(complete_run / "ledger.jsonl"))
    near_ends = {end + offset for end in accumulate(map(len, lines)) for offset in (-2, -1, 0, 1)}
    for size in sorted({*near_ends, *range(0, len(content), BYTES_APART)}):
        folder = write(tmp_path / "truncated", content[:size])
        num_complete = content[:size].count(b"\n")
        assert list(read_events(folder / "ledger.jsonl")) == events[:num_complete]
        ledger = Ledger(folder)
        assert ledger.open() == events[:num_complete]
        incomplete = content[len(b"".join(lines[:num_complete])) : size]
        assert ledger.unfinished == incomplete
        assert ledger.path.read_bytes() == content[:size], "opening must not change the file"
        ledger.append(TrialContinued(trial=0))
        ledger.close()
        assert (folder / "ledger.unfinished").exists() == bool(incomplete)
        if incomplete:
            assert (folder / "ledger.unfinished").read_bytes() == incomplete + b"\n"
            (folder / "ledger.unfinished").unlink()
        assert list(read_events(folder / "ledger.jsonl")) == [
            *events[:num_complete],
            TrialContinued(trial=0),
        ]


def remove_line(lines: list[bytes], index: int) -> list[bytes]:
    return [*lines[:index], *lines[index + 1 :]]


def swap_lines(lines: list[bytes], index: int) -> list[bytes]:
    return [*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]]


def repeat_line(lines: list[bytes], index: int) -> list[bytes]:
    return [*lines[: index + 1], *lines[index:]]


@pytest.mark.parametrize(
    ("change", "line", "number"),
    [(remove_line, 1, 2), (swap_lines, 1, 2), (repeat_line, 2, 1)],
)
def test_line_out_of_place_is_rejected(
    complete_run: Path,
    tmp_path: Path,
    change: Callable[[list[bytes], int], list[bytes]],
    line: int,
    number: int,
) -> None:
    """``line`` and ``number`` are the reported line and the number in it, relative to the changed line."""
    lines = read_lines(complete_run)
    for index in range(len(lines) - 1):
        content = b"".join(change(lines, index))
        folder = write(tmp_path / "changed", content)
        problem = f"{folder / 'ledger.jsonl'}: line {index + line}: number is {index + number}, expected {index + line}"
        for use in (
            lambda folder: list(read_events(folder / "ledger.jsonl")),
            load_events,
            open_and_close,
        ):
            with pytest.raises(InputError) as caught:
                use(folder)
            assert str(caught.value).startswith(problem)
        assert (folder / "ledger.jsonl").read_bytes() == content


def test_line_without_number_is_rejected(complete_run: Path) -> None:
    lines = read_lines(complete_run)
    values = json.loads(lines[-1])
    del values["number"]
    write(complete_run, b"".join([*lines[:-1], json.dumps(values).encode() + b"\n"]))
    with pytest.raises(InputError, match=rf"line {len(lines)}: number is missing"):
        load_events(complete_run)


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Limit writes to the number of bytes in the list; a longer write is truncated, and the next one fails."""
    room = [10**9]
    pwrite = os.pwrite

    def limited(descriptor: int, content: bytes, offset: int) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = pwrite(descriptor, content[: room[0]], offset)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", limited)
    yield room
    monkeypatch.undo()


@pytest.mark.parametrize("room", [0, 1, 40])
def test_event_on_full_disk_is_not_stored(tmp_path: Path, disk_full: list[int], room: int) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(TrialContinued(trial=0))
    disk_full[0] = room
    for trial in (1, 2):
        with pytest.raises(InputError, match=r"No space left on device.*--resume"):
            ledger.append(TrialContinued(trial=trial))
        disk_full[0] = 10**9  # space is free again, but it is unknown whether the event was stored
    ledger.close()
    assert list(read_events(ledger.path)) == [TrialContinued(trial=0)]
    again = Ledger(tmp_path)
    again.append(TrialContinued(trial=3))
    again.close()
    assert list(read_events(ledger.path)) == [TrialContinued(trial=0), TrialContinued(trial=3)]


def test_ctrl_c_during_write_leaves_complete_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives after the event is on disk; the next event is shorter."""
    ledger = Ledger(tmp_path)
    ledger.append(TrialContinued(trial=0))
    fsync = os.fsync

    def interrupt(descriptor: int) -> None:
        fsync(descriptor)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ledger.append(TrialStarted(trial=1, config={"loss": "triplet"}, num_rungs=4))
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    assert list(read_events(ledger.path)) == [TrialContinued(trial=0)] * 2


def test_collected_ledger_is_unlocked(tmp_path: Path) -> None:
    """For example after an error in a notebook, whose process continues."""
    Ledger(tmp_path).open()
    gc.collect()
    open_and_close(tmp_path)


def test_ledger_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(InputError, match=r"ledger.jsonl: .*Is a directory"):
        Ledger(tmp_path).open()


def test_event_is_not_written_again_after_failed_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync, a second one may succeed although the data is not on disk."""
    ledger = Ledger(tmp_path)
    ledger.append(TrialContinued(trial=0))

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="Input/output error"):
        ledger.append(TrialContinued(trial=1))
    monkeypatch.undo()
    with pytest.raises(InputError, match="Input/output error"):
        ledger.append(TrialContinued(trial=1))
    ledger.close()
    assert list(read_events(ledger.path)) == [TrialContinued(trial=0)]
