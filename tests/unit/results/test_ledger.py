"""Ledgers that were cut, changed or could not be written: nothing is lost, repeated or believed in silence."""

import gc
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.results.events import TrialContinued, TrialStarted
from raysweep.results.ledger import Ledger, check_dependences, events_of, read_events, read_positions, write_dependence
from raysweep.storage.folder import LocalFolder
from support.ledgers import random_trials, write_ledger

LAST_BYTES = 2000


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "whole"
    folder.mkdir()
    write_ledger(folder, random_trials(6))
    return folder


def lines_of(folder: Path) -> list[bytes]:
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


def test_cut_anywhere_in_its_last_bytes_a_ledger_keeps_its_whole_lines(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on after them; what stood after the last line's end is set aside."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # of which 2,000 take a disk its time
    lines = lines_of(whole)
    content = b"".join(lines)
    events, positions = list(read_events(whole / "ledger.jsonl")), read_positions(whole / "ledger.jsonl")
    for size in range(len(content) - LAST_BYTES, len(content)):
        folder = write(tmp_path / "cut", content[:size])
        num_whole = content[:size].count(b"\n")
        assert list(read_events(folder / "ledger.jsonl")) == events[:num_whole]
        ledger = Ledger(folder)
        ledger.open()
        rest = content[len(b"".join(lines[:num_whole])) : size]
        assert (ledger.position, ledger.unfinished) == (positions[num_whole - 1], rest)
        assert ledger.path.read_bytes() == content[:size], "a resume that is refused changes nothing"
        ledger.append(TrialContinued(trial=0))
        ledger.close()
        assert (folder / "ledger.unfinished").exists() == bool(rest)
        if rest:
            assert (folder / "ledger.unfinished").read_bytes() == rest + b"\n"
            (folder / "ledger.unfinished").unlink()
        assert list(read_events(folder / "ledger.jsonl")) == [*events[:num_whole], TrialContinued(trial=0)]


def without(lines: list[bytes], number: int) -> list[bytes]:
    return [*lines[:number], *lines[number + 1 :]]


def swapped(lines: list[bytes], number: int) -> list[bytes]:
    return [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]


def repeated(lines: list[bytes], number: int) -> list[bytes]:
    return [*lines[: number + 1], *lines[number:]]


def edited(lines: list[bytes], number: int) -> list[bytes]:
    """The line says the same in other words."""
    values = json.loads(lines[number])
    return [*lines[:number], json.dumps(values, separators=(",", ":")).encode() + b"\n", *lines[number + 1 :]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without, "line {n1}: it is event {n2}, where event {n1} belongs; lines were removed or moved"),
        (swapped, "line {n1}: it is event {n2}, where event {n1} belongs; lines were removed or moved"),
        (repeated, "line {n2}: it is event {n1}, where event {n2} belongs; lines were removed or moved"),
        (edited, "line {n2}: line {n1} was changed after it was written"),
    ],
)
def test_a_line_that_was_touched_is_named(
    whole: Path, tmp_path: Path, change: Callable[[list[bytes], int], list[bytes]], said: str
) -> None:
    """The last two are left out: of the last one nothing in the file tells; what notes its position does, see below."""
    lines = lines_of(whole)
    for number in range(len(lines) - 2):
        content = b"".join(change(lines, number))
        folder = write(tmp_path / "changed", content)
        message = f"{folder / 'ledger.jsonl'}: " + said.format(n1=number + 1, n2=number + 2)
        for use in (lambda folder: list(read_events(folder / "ledger.jsonl")), open_and_close):
            with pytest.raises(InputError) as caught:
                use(folder)
            assert str(caught.value).startswith(message)
        assert (folder / "ledger.jsonl").read_bytes() == content


@pytest.mark.parametrize("change", [without, swapped, repeated, edited])
def test_the_last_lines_are_vouched_for_by_what_depends_on_them(
    whole: Path, change: Callable[[list[bytes], int], list[bytes]]
) -> None:
    """Only where nothing notes the last event can it be changed or removed unnoticed."""
    lines, position = lines_of(whole), read_positions(whole / "ledger.jsonl")[-1]
    (whole / "checkpoints" / "trial-0004").mkdir(parents=True)
    write_dependence(LocalFolder(whole), "checkpoints/trial-0004", position)
    assert len(list(events_of(whole))) == len(lines)
    last = len(lines) - 1
    for number in (last - 1,) if change is swapped else (last - 1, last):
        write(whole, b"".join(change(lines, number)))
        with pytest.raises(InputError, match=r"ledger.jsonl: (line|ends after|is not the ledger)"):
            list(events_of(whole))


@pytest.mark.parametrize("change", [without, edited])
def test_a_last_line_that_nothing_depends_on_may_change_unnoticed(
    whole: Path, change: Callable[[list[bytes], int], list[bytes]]
) -> None:
    lines = lines_of(whole)
    write(whole, b"".join(change(lines, len(lines) - 1)))
    list(events_of(whole))


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Room for as many bytes as the list's one number says; a write beyond it is cut there, the next one fails."""
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
def test_a_full_disk_gives_an_event_once_or_not_at_all(tmp_path: Path, disk_full: list[int], room: int) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(TrialContinued(trial=0))
    disk_full[0] = room
    for trial in (1, 2):
        with pytest.raises(
            InputError, match=r"cannot be written: No space left on device; the sweep stops here.*--resume"
        ):
            ledger.append(TrialContinued(trial=trial))
        disk_full[0] = 10**9  # there is room again, but what became of the event is not known
    ledger.close()
    assert list(read_events(ledger.path)) == [TrialContinued(trial=0)]
    again = Ledger(tmp_path)
    again.append(TrialContinued(trial=3))
    again.close()
    assert list(read_events(ledger.path)) == [TrialContinued(trial=0), TrialContinued(trial=3)]


def test_an_interruption_within_a_write_leaves_a_whole_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when the event is on disk and before the ledger knows; what ends the session is a shorter one."""
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


def test_a_ledger_that_nobody_holds_any_more_is_free(tmp_path: Path) -> None:
    """As after an error in a notebook, which ends no process."""
    Ledger(tmp_path).open()
    gc.collect()
    open_and_close(tmp_path)


def test_a_ledger_that_may_not_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(InputError, match=r"ledger.jsonl: cannot be opened: Is a directory"):
        Ledger(tmp_path).open()


def test_an_event_that_may_not_have_reached_the_disk_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed fsync says nothing about what is on disk, and a second one may well succeed without having written it."""
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


def test_a_ledger_that_lost_lines_which_something_depends_on_is_refused(whole: Path) -> None:
    lines, positions = lines_of(whole), read_positions(whole / "ledger.jsonl")
    last = positions[-3]
    checkpoint, scores = "checkpoints/trial-0004", "points/trial-0001-step-002"
    run = LocalFolder(whole)
    for name in (checkpoint, scores):
        (whole / name).mkdir(parents=True)
    write_dependence(run, checkpoint, positions[4])
    write_dependence(run, scores, positions[5])
    write_dependence(run, scores, last)  # scored on test, later
    check(whole)
    write(whole, b"".join(lines[: last.number]))
    check(whole)
    for kept in range(last.number):
        write(whole, b"".join(lines[:kept]))
        with pytest.raises(
            InputError, match=rf"ledger.jsonl: ends after event {kept}, but .* was written after event \d+"
        ):
            check(whole)
    for note in ("", "[]", '{"number": 0, "digest": ""}', '{"number": "1", "digest": ""}'):
        (whole / scores / "after.json").write_text(note)
        with pytest.raises(InputError, match=rf"{scores}/after.json: is damaged, .*; remove it to do without that"):
            check(whole)


def check(folder: Path) -> None:
    """As a resume does, and as whoever reads the run does."""
    try:
        check_dependences(LocalFolder(folder), read_positions(folder / "ledger.jsonl"))
    except InputError as error:
        with pytest.raises(InputError, match=re.escape(str(error))):
            events_of(folder)
        raise
    events_of(folder)


def test_a_note_that_goes_while_a_run_is_read_is_done_without(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "checkpoints/trial-0004"
    (whole / name).mkdir(parents=True)
    write_dependence(LocalFolder(whole), name, read_positions(whole / "ledger.jsonl")[-1])
    list_files = LocalFolder.sizes

    def remove_what_is_listed(folder: LocalFolder, kind: str = "") -> dict[str, int]:
        found = list_files(folder, kind)
        (whole / name / "after.json").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(LocalFolder, "sizes", remove_what_is_listed)
    assert list(events_of(whole)) == list(read_events(whole / "ledger.jsonl"))


def test_a_ledger_of_another_run_is_told_apart(whole: Path) -> None:
    (whole / "points" / "trial-0000-step-001").mkdir(parents=True)
    position = read_positions(whole / "ledger.jsonl")[6]
    write_dependence(LocalFolder(whole), "points/trial-0000-step-001", position)
    (whole / "ledger.jsonl").unlink()
    write_ledger(whole, random_trials(6, seed=1))
    with pytest.raises(
        InputError, match=r"is not the ledger that .*trial-0000-step-001 was written with, from event 7 on"
    ):
        check(whole)
