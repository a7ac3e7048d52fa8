"""Ledgers in buckets: lost and moved lines are rejected, and two drivers never write the same run."""

import json
import threading
import time
from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.results.events import Event, TrialContinued
from raysweep.results.ledger import Ledger, ledger_line, load_events
from raysweep.storage import lease
from raysweep.storage.folder import BucketFolder, open_folder, uploaded
from raysweep.storage.line_log import LineObjects
from support.cut_off import CutOff
from support.ledgers import random_trials, write_ledger
from support.s3_server import S3Server


@pytest.fixture
def run(server: S3Server, tmp_path: Path) -> BucketFolder:
    """A run with some events in a bucket, which no process has open."""
    (tmp_path / "local").mkdir()
    write_ledger(tmp_path / "local", random_trials(3, seed=0))
    folder = open_folder(server.uri(tmp_path.name))
    assert isinstance(folder, BucketFolder)
    ledger = Ledger(folder)
    for event in load_events(tmp_path / "local"):
        ledger.append(event)
    ledger.close()
    assert load_events(folder) == load_events(tmp_path / "local")
    return folder


def segment(number: int) -> str:
    return f"ledger/{number:09d}.jsonl"


def read(run: BucketFolder, name: str) -> bytes:
    return run.bucket.read(name)


def check_rejected(run: BucketFolder, message: str) -> None:
    """Check that the run can be neither read nor resumed."""
    with pytest.raises(InputError, match=message):
        load_events(run)
    with pytest.raises(InputError, match=message):
        Ledger(run).open()


def open_and_close(run: BucketFolder) -> None:
    """Close the ledger too, because an open one renews its lease until the process ends."""
    ledger = Ledger(run)
    ledger.open()
    ledger.close()


def test_copy_in_folder_is_read_and_continued(run: BucketFolder, tmp_path: Path) -> None:
    """A downloaded run, and the same run uploaded again."""
    events = load_events(run)
    copy = tmp_path / "copy"
    for name, content in ((name, read(run, name)) for name in run.sizes()):
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert load_events(copy) == events
    ledger = Ledger(copy)
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    assert load_events(copy) == [*events, TrialContinued(trial=0)]
    run.bucket.write("ledger.jsonl", (copy / "ledger.jsonl").read_bytes())
    again = Ledger(run)
    again.append(TrialContinued(trial=1))
    again.close()
    assert load_events(run) == [*events, TrialContinued(trial=0), TrialContinued(trial=1)]
    assert segment(len(events) + 2) in run.sizes()


def test_removed_and_replaced_lines_are_rejected(run: BucketFolder) -> None:
    removed = read(run, segment(3))
    run.bucket.delete([segment(3)])
    check_rejected(run, "line 3: number is 4, expected 3")
    run.bucket.write(segment(3), read(run, segment(4)))
    check_rejected(run, "line 3: number is 4, expected 3")
    run.bucket.write(segment(3), removed)
    open_and_close(run)


def test_ledger_with_fewer_events_than_its_lease_is_rejected(run: BucketFolder) -> None:
    last = len(load_events(run))
    run.bucket.delete([segment(last)])
    check_rejected(run, rf"ends after event {last - 1}, .*lease.json .*after event {last}")


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"released": true, "note": {"number": "7"}}', '{"released": true, "note": [1]}'],
)
def test_damaged_lease_is_rejected(run: BucketFolder, content: str) -> None:
    run.bucket.write("lease.json", content.encode())
    with pytest.raises(InputError, match="lease.json: .*remove"):
        load_events(run)


def test_copy_with_gap_is_rejected_unchanged(run: BucketFolder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "ledger").mkdir(parents=True)
    for number in range(1, 7):
        (copy / segment(number)).write_bytes(read(run, segment(number)))
    missing = (copy / segment(3)).read_bytes()
    (copy / segment(3)).unlink()
    for _ in range(2):
        with pytest.raises(InputError, match="line 3: number is 4, expected 3"):
            Ledger(copy).open()
    (copy / segment(3)).write_bytes(missing)
    ledger = Ledger(copy)
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    assert load_events(copy) == [*load_events(run)[:6], TrialContinued(trial=0)]


def test_truncated_object_is_ignored_and_set_aside(run: BucketFolder) -> None:
    events = load_events(run)
    run.bucket.write(segment(len(events) + 1), b'{"event": "continued", "tri')
    assert load_events(run) == events
    ledger = Ledger(run)
    ledger.open()
    assert ledger.unfinished == b'{"event": "continued", "tri'
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    assert load_events(run) == [*events, TrialContinued(trial=0)]
    assert read(run, "ledger.unfinished") == b'{"event": "continued", "tri\n'


def test_driver_that_lost_the_lease_writes_nothing(
    run: BucketFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)
    monkeypatch.setattr(lease, "NOTICE_SECONDS", 1.0)
    events, messages = load_events(run), list[str]()
    first, second = Ledger(run), Ledger(run, messages.append, take_over=True)
    lost = threading.Event()
    first.on_lost = lost.set
    first.append(TrialContinued(trial=1))
    second.append(TrialContinued(trial=2))
    assert "taken over from" in messages[0]
    assert lost.is_set()
    with pytest.raises(InputError, match="taken over by"):
        first.append(TrialContinued(trial=3))
    with pytest.raises(InputError, match="taken over by"):
        first.append(TrialContinued(trial=4))
    second.append(TrialContinued(trial=5))
    first.close()
    second.close()
    expected = [*events, TrialContinued(trial=1), TrialContinued(trial=2), TrialContinued(trial=5)]
    assert load_events(run) == expected


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SECONDS", 3.0)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)


def same_run(run: BucketFolder) -> BucketFolder:
    """Open the run again, as another process does."""
    folder = open_folder(run.location, [].append)
    assert isinstance(folder, BucketFolder)
    return folder


class Appending(threading.Thread):
    """Appends an event and stores the error, if one is raised."""

    def __init__(self, ledger: Ledger, event: Event) -> None:
        super().__init__(daemon=True)
        self.ledger, self.event = ledger, event
        self.error: InputError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.ledger.append(self.event)
        except InputError as error:
            self.error = error


def lease_of(ledger: Ledger) -> lease.Lease:
    assert isinstance(ledger._log, LineObjects)
    return ledger._log._lease


@pytest.mark.usefixtures("short_leases")
def test_driver_with_expired_lease_writes_nothing(run: BucketFolder) -> None:
    """Only renewals fail. Once they succeed, the driver continues, because no other process took the run."""
    events = load_events(run)
    ledger = Ledger(run, [].append)
    ledger.open()
    journal = run.path / "study.journal"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text("before")
    run.store("study.journal")
    network = CutOff(lease_of(ledger).bucket, "lease.json")
    time.sleep(3)
    journal.write_text("after it")
    with uploaded(run, ["study.journal"], seconds=0.1):
        appending = Appending(ledger, TrialContinued(trial=1))
        appending.join(2)
        assert appending.is_alive()
        assert load_events(same_run(run)) == events
        assert read(same_run(run), "study.journal") == b"before"
        network.parts = ()
        appending.join()
    assert appending.error is None
    assert load_events(run) == [*events, TrialContinued(trial=1)]
    assert read(run, "study.journal") == b"after it"
    ledger.close()


@pytest.mark.usefixtures("short_leases")
def test_event_in_flight_is_not_written_after_the_run_was_taken_over(run: BucketFolder) -> None:
    """The first driver reaches the store again before it can renew its lease and before the second driver writes."""
    events = load_events(run)
    first, second = Ledger(run, [].append), Ledger(same_run(run), [].append)
    first.open()
    (run.path / "study.journal").parent.mkdir(parents=True, exist_ok=True)
    (run.path / "study.journal").write_text("first driver")
    network, network_of_lease = (
        CutOff(run.bucket, "ledger/"),
        CutOff(lease_of(first).bucket, "lease.json"),
    )
    run.bucket.on_wait = [].append
    late = Appending(first, TrialContinued(trial=1))
    second.open()
    network.parts = ()
    late.join(4)  # longer than the pause between retries
    network_of_lease.parts = ()
    late.join()
    assert late.error is not None and "taken over by" in str(late.error)
    with uploaded(run, ["study.journal"]):
        pass
    first.close()
    with uploaded(run, ["study.journal"]):
        pass
    second.append(TrialContinued(trial=2))
    second.close()
    assert load_events(same_run(run)) == [*events, TrialContinued(trial=2)]
    assert "study.journal" not in run.sizes()


def test_event_of_another_driver_is_not_replaced(run: BucketFolder) -> None:
    events = load_events(run)
    ledger = Ledger(run)
    ledger.open()
    line = ledger_line(TrialContinued(trial=7), len(events) + 1)
    run.bucket.write(segment(len(events) + 1), line)
    with pytest.raises(InputError, match=r"another process.*--resume"):
        ledger.append(TrialContinued(trial=1))
    ledger.close()
    open_and_close(run)
    assert load_events(run) == [*events, TrialContinued(trial=7)]


def test_lease_is_released_after_the_last_upload(run: BucketFolder) -> None:
    ledger = Ledger(run)
    ledger.open()
    released: list[bool] = []
    ledger.on_close = lambda: released.append(json.loads(read(run, "lease.json"))["released"])
    ledger.close()
    ledger.close()
    assert released == [False]
    assert json.loads(read(run, "lease.json"))["released"]


def test_ledger_waits_for_an_unreachable_bucket(server: S3Server, run: BucketFolder) -> None:
    events, messages = load_events(run), list[str]()
    run.bucket.on_wait = messages.append
    ledger = Ledger(run, messages.append)
    ledger.open()
    server.fail(outage=8)
    began = time.monotonic()
    ledger.append(TrialContinued(trial=0))
    assert time.monotonic() - began > 7
    ledger.close()
    assert load_events(run) == [*events, TrialContinued(trial=0)]
    assert any("waiting" in line for line in messages)


def test_lost_response_does_not_duplicate_an_event(server: S3Server, run: BucketFolder) -> None:
    events = load_events(run)
    before = server.fail(share=0.2).total
    ledger = Ledger(run)
    for trial in range(40):
        ledger.append(TrialContinued(trial=trial))
    ledger.close()
    assert server.fail(share=0.0).total - before > 5
    assert load_events(run) == [*events, *(TrialContinued(trial=trial) for trial in range(40))]


def test_truncated_file_is_moved_to_a_bucket_and_back(run: BucketFolder, tmp_path: Path) -> None:
    events = load_events(run)
    whole = (tmp_path / "local" / "ledger.jsonl").read_bytes()
    run.bucket.delete([*run.bucket.sizes("ledger"), "lease.json"])
    run.bucket.write("ledger.jsonl", whole + b'{"event": "cont')
    ledger = Ledger(run)
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    expected = [*events, TrialContinued(trial=0)]
    assert load_events(run) == expected
    back = tmp_path / "back"
    for name in run.sizes():
        (back / name).parent.mkdir(parents=True, exist_ok=True)
        (back / name).write_bytes(read(run, name))
    assert load_events(back) == expected
    again = Ledger(back)
    again.append(TrialContinued(trial=1))
    again.close()
    assert load_events(back) == [*expected, TrialContinued(trial=1)]
