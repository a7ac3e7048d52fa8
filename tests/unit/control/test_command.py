"""Requests to a driver that answers, is missing, dies or does not answer in time; in a folder and in a bucket."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raysweep.control import command
from raysweep.control.command import parse_try, send
from raysweep.control.request import Answer, Request
from raysweep.control.request_queue import FOLDER, Inbox, RequestQueue, poll_in_background
from raysweep.errors import InputError
from raysweep.results.events import SweepSteered
from raysweep.results.ledger import NAME, GrowingLedger, Ledger, load_events
from raysweep.storage.folder import BucketFolder, Folder, LocalFolder, open_folder
from raysweep.storage.line_log import is_held
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, random_trials, write_ledger
from support.s3_server import S3Server

PAUSE = Request(action="pause")


@pytest.fixture(params=["folder", "bucket"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """Return a run with some events and without a driver."""
    (tmp_path / "run").mkdir()
    write_ledger(tmp_path / "run", random_trials(3), StoredSweep(finish=None))
    if request.param == "folder":
        return LocalFolder(tmp_path / "run")
    server: S3Server = request.getfixturevalue("server")
    bucket = open_folder(server.uri(tmp_path.name))
    ledger = Ledger(bucket)
    for event in load_events(tmp_path / "run"):
        ledger.append(event)
    ledger.close()
    return bucket


@contextmanager
def drive(run: Folder, serve: Callable[[RequestQueue, Ledger, Inbox], None]) -> Iterator[None]:
    """Drive the run in this context, with a thread that polls for requests and serves them."""
    own = run if isinstance(run, LocalFolder) else open_folder(run.location)
    ledger, queue, inbox = Ledger(own), RequestQueue(own), Inbox()
    ledger.open()
    stop = threading.Event()

    def serve_until_stopped() -> None:
        while not stop.wait(0.02):
            serve(queue, ledger, inbox)

    thread = threading.Thread(target=serve_until_stopped)
    with poll_in_background(queue, inbox, 0.05):
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            ledger.close()


def make_echo() -> Callable[[RequestQueue, Ledger, Inbox], None]:
    """Return a driver that answers each request once by repeating it; requests may be delivered twice."""
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
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BUCKET_SECONDS", 0.05)
    monkeypatch.setattr(command, "LOCAL_SECONDS", 0.05)


def test_a_driver_answers_and_the_queue_is_empty(run: Folder) -> None:
    with drive(run, make_echo()):
        assert is_held(run, NAME) is True
        answers = [
            send(run, request, 20) for request in (PAUSE, Request(action="workers", workers=2))
        ]
    assert answers == ['{"action":"pause"}', '{"action":"workers","workers":2}']
    assert run.names(FOLDER) == set()
    assert is_held(run, NAME) is False


def test_requests_without_a_driver_are_withdrawn(run: Folder) -> None:
    with pytest.raises(
        InputError, match=r"no driver is running: the sweep was killed; .*raysweep run --resume "
    ):
        send(run, PAUSE, 20)
    assert run.names(FOLDER) == set()


def test_unanswered_requests_stay_in_the_queue(run: Folder) -> None:
    message = f"^{run.location}: no answer within 0.3 s; the request stays in the queue$"
    with drive(run, do_nothing), pytest.raises(TimeoutError, match=message):
        send(run, PAUSE, 0.3)
    (queued,) = RequestQueue(run).pending()
    assert queued.content == b'{"action":"pause"}'


@pytest.mark.parametrize("acts", [True, False])
def test_the_ledger_answers_for_a_driver_that_ended(tmp_path: Path, acts: bool) -> None:
    write_ledger(tmp_path, random_trials(3), StoredSweep(finish=None))

    def die(queue: RequestQueue, ledger: Ledger, inbox: Inbox) -> None:
        for queued in inbox.take():
            if acts:
                ledger.append(SweepSteered(request=queued.identity, action="pause", at=1.0))
            ledger.close()

    run = LocalFolder(tmp_path)
    with drive(run, die):
        if acts:
            assert "driver has exited" in send(run, PAUSE, 20)
        else:
            with pytest.raises(InputError, match="no driver is running"):
                send(run, PAUSE, 20)
    assert run.names(FOLDER) == set()


def test_invalid_answers_are_rejected(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(3), StoredSweep(finish=None))

    def confuse(queue: RequestQueue, ledger: Ledger, inbox: Inbox) -> None:
        for queued in inbox.take():
            (tmp_path / FOLDER / f"{queued.identity}.answer.json").write_text("[" * 9999)

    with (
        drive(LocalFolder(tmp_path), confuse),
        pytest.raises(InputError, match="not a valid answer"),
    ):
        send(LocalFolder(tmp_path), PAUSE, 20)


def test_ctrl_c_withdraws_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ledger(tmp_path, random_trials(3), StoredSweep(finish=None))

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with drive(LocalFolder(tmp_path), do_nothing):
        monkeypatch.setattr(command.time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            send(LocalFolder(tmp_path), PAUSE, 20)
        monkeypatch.undo()
    assert LocalFolder(tmp_path).names(FOLDER) == set()


def test_a_growing_ledger_is_read_line_by_line(run: Folder) -> None:
    growing = GrowingLedger(run)
    assert growing.read() and not growing.read()
    ledger = Ledger(run)
    for number in range(3):
        ledger.append(SweepSteered(request=str(number), action="pause", at=float(number)))
        assert growing.read()
        assert growing.events == load_events(run)
    ledger.close()
    if isinstance(run, BucketFolder):
        last = max(run.names("ledger"))
        run.put(
            f"ledger/{int(last[:9]) + 1:09d}.jsonl",
            b'{"event": "resume", "trial": 0, "number": 1}\n',
        )
        with pytest.raises(InputError, match="lines were removed or moved"):
            growing.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["given: none", "--pause, --resume, --workers, --stop-trial, --try"]),
        (("--pause", "--resume"), ["given: --pause, --resume", "exactly one of"]),
        (
            ("--try", "triplet"),
            ["--try is 'triplet'; allowed: a mapping", "{loss: triplet, margin: 0.1}"],
        ),
        (("--try", "{loss: [a]}"), ["--try: loss is ['a']; allowed: "]),
        (("--try", "{margin: .nan}"), ["--try: margin is nan; allowed: ", "finite"]),
        (("--try", "{1: [2]}"), ["--try: 1 is [2]; allowed: "]),
        (("--try", "{a: !!python/object/apply:os.system [x]}"), ["--try", "YAML"]),
        (("--try", "{loss: 2026-01-01}"), ["--try: loss is ", "allowed: "]),
        (("--pause",), ["not a run folder"]),
    ],
)
def test_invalid_requests_are_one_line(
    tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    done = raysweep_here(tmp_path, "control", str(tmp_path), *arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert [word for word in words if word not in done.stderr] == []
    assert list(tmp_path.iterdir()) == []


def test_storage_failures_name_the_run(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(2), StoredSweep(finish=None))
    ledger = Ledger(tmp_path)
    ledger.open()
    (tmp_path / FOLDER).write_text("in the way")
    with pytest.raises(InputError, match=f"{tmp_path}: "):
        send(LocalFolder(tmp_path), parse_try("{margin: 0.1}"), seconds=5)
    ledger.close()


def test_try_reads_numbers_like_files() -> None:
    with pytest.raises(InputError, match=r"--try: .*loss: \["):
        parse_try("loss: [")
    assert parse_try("{loss: a, learning_rate: 1e-5, batch_size: 8}").config == {
        "loss": "a",
        "learning_rate": 1e-5,
        "batch_size": 8,
    }
