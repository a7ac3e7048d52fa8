"""Asking a driver for something: it answers, is not there, dies, or does not find the time; in a folder and in a bucket."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raysweep.control import command
from raysweep.control.command import ask, try_request
from raysweep.control.request import Answer, Request
from raysweep.control.request_queue import FOLDER, Inbox, RequestQueue, watched
from raysweep.errors import InputError
from raysweep.results.events import SweepSteered
from raysweep.results.ledger import NAME, GrowingLedger, Ledger, events_of
from raysweep.storage.folder import BucketFolder, Folder, LocalFolder, open_folder
from raysweep.storage.line_log import is_held
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, random_trials, write_ledger
from support.s3_server import S3Server

PAUSE = Request(action="pause")


@pytest.fixture(params=["folder", "bucket"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A run of some events, which nobody has open."""
    (tmp_path / "run").mkdir()
    write_ledger(tmp_path / "run", random_trials(3), StoredSweep(finish=None))
    if request.param == "folder":
        return LocalFolder(tmp_path / "run")
    server: S3Server = request.getfixturevalue("server")
    bucket = open_folder(server.uri(tmp_path.name))
    ledger = Ledger(bucket)
    for event in events_of(tmp_path / "run"):
        ledger.append(event)
    ledger.close()
    return bucket


@contextmanager
def driven(run: Folder, serve: Callable[[RequestQueue, Ledger, Inbox], None]) -> Iterator[None]:
    """Within, a driver has the run, and polls for requests in a thread of its own."""
    own = run if isinstance(run, LocalFolder) else open_folder(run.location)
    ledger, queue, inbox = Ledger(own), RequestQueue(own), Inbox()
    ledger.open()
    stop = threading.Event()

    def serve_until_stopped() -> None:
        while not stop.wait(0.02):
            serve(queue, ledger, inbox)

    thread = threading.Thread(target=serve_until_stopped)
    with watched(queue, inbox, 0.05):
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            ledger.close()


def answering() -> Callable[[RequestQueue, Ledger, Inbox], None]:
    """A driver that answers each request once, by repeating it; it may hear of one twice, as a sweep's request handler does."""
    answered = set()

    def answer(queue: RequestQueue, ledger: Ledger, inbox: Inbox) -> None:
        for queued in inbox.take():
            if queued.identity not in answered:
                answered.add(queued.identity)
                queue.answer(queued.identity, Answer(accepted=True, text=queued.content.decode()))

    return answer


def do_nothing(queue: RequestQueue, ledger: Ledger, inbox: Inbox) -> None:
    pass


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BUCKET_SECONDS", 0.05)
    monkeypatch.setattr(command, "LOCAL_SECONDS", 0.05)


def test_a_driver_answers_and_nothing_is_left(run: Folder) -> None:
    with driven(run, answering()):
        assert is_held(run, NAME) is True
        answers = [ask(run, request, 20) for request in (PAUSE, Request(action="workers", workers=2))]
    assert [each and each.text for each in answers] == ['{"action":"pause"}', '{"action":"workers","workers":2}']
    assert run.names(FOLDER) == set()
    assert is_held(run, NAME) is False


def test_without_a_driver_there_is_one_line_and_nothing_is_left(run: Folder) -> None:
    with pytest.raises(InputError, match=r"no driver is running: it was killed; to go on: raysweep run --resume "):
        ask(run, PAUSE, 20)
    assert run.names(FOLDER) == set()


def test_a_driver_that_does_not_find_the_time_finds_the_request_later(run: Folder) -> None:
    with driven(run, do_nothing):
        assert ask(run, PAUSE, 0.3) is None
    (queued,) = RequestQueue(run).pending()
    assert queued.content == b'{"action":"pause"}'


@pytest.mark.parametrize("acts", [True, False])
def test_of_a_driver_that_ends_before_it_answers_the_ledger_says_what_it_did(tmp_path: Path, acts: bool) -> None:
    write_ledger(tmp_path, random_trials(3), StoredSweep(finish=None))

    def die(queue: RequestQueue, ledger: Ledger, inbox: Inbox) -> None:
        for queued in inbox.take():
            if acts:
                ledger.append(SweepSteered(request=queued.identity, action="pause", at=1.0))
            ledger.close()

    run = LocalFolder(tmp_path)
    with driven(run, die):
        if acts:
            found = ask(run, PAUSE, 20)
            assert found is not None and found.accepted and "its driver has ended" in found.text
        else:
            with pytest.raises(InputError, match="no driver is running"):
                ask(run, PAUSE, 20)
    assert run.names(FOLDER) == set()


def test_an_answer_that_is_none_is_refused(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(3), StoredSweep(finish=None))

    def confuse(queue: RequestQueue, ledger: Ledger, inbox: Inbox) -> None:
        for queued in inbox.take():
            (tmp_path / FOLDER / f"{queued.identity}.answer.json").write_text("[" * 9999)

    with driven(LocalFolder(tmp_path), confuse), pytest.raises(InputError, match="is no answer"):
        ask(LocalFolder(tmp_path), PAUSE, 20)


def test_ctrl_c_takes_the_request_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ledger(tmp_path, random_trials(3), StoredSweep(finish=None))

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with driven(LocalFolder(tmp_path), do_nothing):
        monkeypatch.setattr(command.time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(LocalFolder(tmp_path), PAUSE, 20)
        monkeypatch.undo()
    assert LocalFolder(tmp_path).names(FOLDER) == set()


def test_a_ledger_that_grows_is_read_line_by_line(run: Folder) -> None:
    growing = GrowingLedger(run)
    assert growing.read() and not growing.read()
    ledger = Ledger(run)
    for number in range(3):
        ledger.append(SweepSteered(request=str(number), action="pause", at=float(number)))
        assert growing.read()
        assert growing.events == list(events_of(run))
    ledger.close()
    if isinstance(run, BucketFolder):
        last = max(run.names("ledger"))
        run.put(f"ledger/{int(last[:9]) + 1:09d}.jsonl", b'{"event": "resume", "trial": 0, "number": 1, "after": ""}\n')
        with pytest.raises(InputError, match="lines were removed or moved"):
            growing.read()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give one of --pause, --resume, --workers, --stop-trial, --try; given: none"),
        (("--pause", "--resume"), "given: --pause, --resume"),
        (("--try", "triplet"), "--try is 'triplet'; it is a mapping such as '{loss: triplet, margin: 0.1}'"),
        (("--try", "{loss: [a]}"), "--try: loss: must be one plain value, not ['a']"),
        (("--try", "{margin: .nan}"), "--try: margin: must be a finite number, not nan"),
        (("--try", "{1: [2]}"), "--try: 1: must be one plain value"),
        (("--try", "{a: !!python/object/apply:os.system [x]}"), "is not a YAML value"),
        (("--try", "{loss: 2026-01-01}"), "must be one plain value"),
        (("--pause",), "not a run folder (no ledger in it)"),
    ],
)
def test_misuse_is_one_line(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    done = raysweep_here(tmp_path, "control", str(tmp_path), *arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert problem in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_request_queue_is_named(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(2), StoredSweep(finish=None))
    ledger = Ledger(tmp_path)
    ledger.open()
    (tmp_path / FOLDER).write_text("in the way")
    with pytest.raises(InputError, match=f"{tmp_path}: cannot be asked: "):
        ask(LocalFolder(tmp_path), try_request("{margin: 0.1}"), seconds=5)
    ledger.close()


def test_numbers_of_a_configuration_are_read_as_a_file_has_them() -> None:
    with pytest.raises(InputError, match=r"--try: 'loss: \[' is not a YAML value"):
        try_request("loss: [")
    assert try_request("{loss: a, learning_rate: 1e-5, batch_size: 8}").config == {
        "loss": "a",
        "learning_rate": 1e-5,
        "batch_size": 8,
    }
