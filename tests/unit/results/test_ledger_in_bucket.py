"""The ledger where nothing appends: what is lost, moved or faked is refused, and two drivers never write one run."""

import json
import threading
import time
from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.results.events import Event, TrialContinued
from raysweep.results.ledger import Ledger, events_of, write_dependence
from raysweep.storage import lease
from raysweep.storage.folder import BucketFolder, open_folder
from raysweep.storage.line_log import LineObjects
from raysweep.storage.uploader import uploaded
from support.cut_off import CutOff
from support.ledgers import random_trials, write_ledger
from support.s3_server import S3Server


@pytest.fixture
def run(server: S3Server, tmp_path: Path) -> BucketFolder:
    """A run of some events in a bucket, which nobody has open."""
    (tmp_path / "local").mkdir()
    write_ledger(tmp_path / "local", random_trials(3, seed=0))
    folder = open_folder(server.uri(tmp_path.name))
    assert isinstance(folder, BucketFolder)
    ledger = Ledger(folder)
    for event in events_of(tmp_path / "local"):
        ledger.append(event)
    ledger.close()
    assert list(events_of(folder)) == list(events_of(tmp_path / "local"))
    return folder


def segment(number: int) -> str:
    return f"ledger/{number:09d}.jsonl"


def read(run: BucketFolder, name: str) -> bytes:
    return run.bucket.read(name)


def refused(run: BucketFolder, message: str) -> None:
    """By who only reads it, and by who would go on with it."""
    with pytest.raises(InputError, match=message):
        list(events_of(run))
    with pytest.raises(InputError, match=message):
        Ledger(run).open()


def opened_and_closed(run: BucketFolder) -> None:
    """What is left open renews its lease for as long as the process lives, and waits for a server that is gone."""
    ledger = Ledger(run)
    ledger.open()
    ledger.close()


def test_a_copy_in_a_folder_is_read_and_gone_on_with(run: BucketFolder, tmp_path: Path) -> None:
    """A run that was downloaded; and one that was uploaded from a folder again."""
    events = list(events_of(run))
    copy = tmp_path / "copy"
    for name, content in ((name, read(run, name)) for name in run.sizes()):
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert list(events_of(copy)) == events
    ledger = Ledger(copy)
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    assert list(events_of(copy)) == [*events, TrialContinued(trial=0)]
    run.bucket.write("ledger.jsonl", (copy / "ledger.jsonl").read_bytes())
    again = Ledger(run)
    again.append(TrialContinued(trial=1))
    again.close()
    assert list(events_of(run)) == [*events, TrialContinued(trial=0), TrialContinued(trial=1)]
    assert segment(len(events) + 2) in run.sizes()


def test_a_removed_a_swapped_and_an_edited_segment_are_refused_with_the_place(run: BucketFolder) -> None:
    removed = read(run, segment(3))
    run.bucket.delete([segment(3)])
    refused(run, "line 3: it is event 4, where event 3 belongs")
    run.bucket.write(segment(3), read(run, segment(4)))
    refused(run, "line 3: it is event 4, where event 3 belongs")
    edited = json.loads(removed)
    edited["at"] = -1.0
    run.bucket.write(segment(3), json.dumps(edited).encode() + b"\n")
    refused(run, "line 4: line 3 was changed after it was written")
    run.bucket.write(segment(3), removed)
    opened_and_closed(run)


def test_a_ledger_that_ends_before_what_its_lease_names_is_refused(run: BucketFolder) -> None:
    last = len(list(events_of(run)))
    run.bucket.delete([segment(last)])
    refused(run, rf"ends after event {last - 1} .*after event {last}; put the missing events back")


@pytest.mark.parametrize("content", ["", "[]", '{"released": true, "note": {"number": "7"}}'])
def test_a_damaged_lease_does_not_switch_that_off(run: BucketFolder, content: str) -> None:
    run.bucket.write("lease.json", content.encode())
    with pytest.raises(InputError, match="its lease is damaged, .* remove the lease to do without that"):
        list(events_of(run))


def test_a_ledger_that_ends_before_what_depends_on_it_is_refused_by_who_reads_it(run: BucketFolder) -> None:
    name = "points/trial-0000-step-001"
    events = list(events_of(run))
    ledger = Ledger(run)
    ledger.open()
    (run.path / name).mkdir(parents=True)
    run.bucket.write(f"{name}/dev.npz", b"")
    write_dependence(run, name, ledger.position)
    ledger.close()
    assert list(events_of(run)) == events
    run.bucket.delete([segment(len(events)), "lease.json"])
    with pytest.raises(InputError, match=rf"ends after event {len(events) - 1}, but .*{name} was written after event"):
        list(events_of(run))


def test_a_copy_with_a_gap_is_refused_and_left_as_it_is(run: BucketFolder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "ledger").mkdir(parents=True)
    for number in range(1, 7):
        (copy / segment(number)).write_bytes(read(run, segment(number)))
    missing = (copy / segment(3)).read_bytes()
    (copy / segment(3)).unlink()
    for _ in range(2):
        with pytest.raises(InputError, match="line 3: it is event 4, where event 3 belongs"):
            Ledger(copy).open()
    (copy / segment(3)).write_bytes(missing)
    ledger = Ledger(copy)
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    assert list(events_of(copy)) == [*list(events_of(run))[:6], TrialContinued(trial=0)]


def test_a_segment_cut_short_never_counted_and_is_set_aside(run: BucketFolder) -> None:
    events = list(events_of(run))
    run.bucket.write(segment(len(events) + 1), b'{"event": "continued", "tri')
    assert list(events_of(run)) == events
    ledger = Ledger(run)
    ledger.open()
    assert ledger.unfinished == b'{"event": "continued", "tri'
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    assert list(events_of(run)) == [*events, TrialContinued(trial=0)]
    assert read(run, "ledger.unfinished") == b'{"event": "continued", "tri\n'


def test_of_two_drivers_the_one_that_lost_the_lease_writes_nothing(
    run: BucketFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)
    monkeypatch.setattr(lease, "NOTICE_SECONDS", 1.0)
    events, said = list(events_of(run)), list[str]()
    first, second = Ledger(run), Ledger(run, said.append, take_over=True)
    lost = threading.Event()
    first.on_lost = lost.set
    first.append(TrialContinued(trial=1))
    second.append(TrialContinued(trial=2))
    assert "taken over from" in said[0]
    assert lost.is_set()
    with pytest.raises(InputError, match="taken over by .*; the sweep stops here"):
        first.append(TrialContinued(trial=3))
    with pytest.raises(InputError, match="taken over by"):
        first.append(TrialContinued(trial=4))
    second.append(TrialContinued(trial=5))
    first.close()
    second.close()
    expected = [*events, TrialContinued(trial=1), TrialContinued(trial=2), TrialContinued(trial=5)]
    assert list(events_of(run)) == expected


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SECONDS", 3.0)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)


def same_run(run: BucketFolder) -> BucketFolder:
    """As another process opens it."""
    again = open_folder(run.location, [].append)
    assert isinstance(again, BucketFolder)
    return again


class Appending(threading.Thread):
    """Appends an event, and keeps what the ledger says of it."""

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
def test_an_expired_driver_writes_nothing_of_any_kind(run: BucketFolder) -> None:
    """It cannot renew its lease, and reaches the store otherwise; once it can, it goes on, as nobody took the run."""
    events = list(events_of(run))
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
        assert list(events_of(same_run(run))) == events
        assert read(same_run(run), "study.journal") == b"before"
        network.parts = ()
        appending.join()
    assert appending.error is None
    assert list(events_of(run)) == [*events, TrialContinued(trial=1)]
    assert read(run, "study.journal") == b"after it"
    ledger.close()


@pytest.mark.usefixtures("short_leases")
def test_a_driver_that_was_cut_off_with_an_event_in_flight_leaves_the_run_to_the_next(run: BucketFolder) -> None:
    """It reaches the store again before its lease does, and before the next driver writes anything."""
    events = list(events_of(run))
    first, second = Ledger(run, [].append), Ledger(same_run(run), [].append)
    first.open()
    (run.path / "study.journal").parent.mkdir(parents=True, exist_ok=True)
    (run.path / "study.journal").write_text("of the first driver")
    network, network_of_lease = CutOff(run.bucket, "ledger/"), CutOff(lease_of(first).bucket, "lease.json")
    run.bucket.on_wait = [].append
    late = Appending(first, TrialContinued(trial=1))
    second.open()
    network.parts = ()
    late.join(4)  # of which a request that fails waits less before it is made again
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
    assert list(events_of(same_run(run))) == [*events, TrialContinued(trial=2)]
    assert "study.journal" not in run.sizes()


def test_an_event_that_another_driver_wrote_is_not_replaced(run: BucketFolder) -> None:
    """Events may follow it, which one more reader goes on from."""
    events = list(events_of(run))
    ledger = Ledger(run)
    ledger.open()
    line = ledger.position.line(TrialContinued(trial=7))
    run.bucket.write(segment(len(events) + 1), line)
    with pytest.raises(InputError, match=r"another process, which had this run before, .*--resume"):
        ledger.append(TrialContinued(trial=1))
    ledger.close()
    opened_and_closed(run)
    assert list(events_of(run)) == [*events, TrialContinued(trial=7)]


def test_what_is_uploaded_at_the_end_comes_before_the_run_is_let_go(run: BucketFolder) -> None:
    ledger = Ledger(run)
    ledger.open()
    released: list[bool] = []
    ledger.on_close = lambda: released.append(json.loads(read(run, "lease.json"))["released"])
    ledger.close()
    ledger.close()
    assert released == [False]
    assert json.loads(read(run, "lease.json"))["released"]


def test_an_unreachable_bucket_is_waited_for_and_said(server: S3Server, run: BucketFolder) -> None:
    events, said = list(events_of(run)), list[str]()
    run.bucket.on_wait = said.append
    ledger = Ledger(run, said.append)
    ledger.open()
    server.fail(outage=8)
    began = time.monotonic()
    ledger.append(TrialContinued(trial=0))
    assert time.monotonic() - began > 7
    ledger.close()
    assert list(events_of(run)) == [*events, TrialContinued(trial=0)]
    assert any("waiting" in line for line in said)


def test_an_answer_that_is_lost_does_not_give_one_event_twice(server: S3Server, run: BucketFolder) -> None:
    events = list(events_of(run))
    before = server.fail(share=0.2).total
    ledger = Ledger(run)
    for trial in range(40):
        ledger.append(TrialContinued(trial=trial))
    ledger.close()
    assert server.fail(share=0.0).total - before > 5
    assert list(events_of(run)) == [*events, *(TrialContinued(trial=trial) for trial in range(40))]


def test_a_file_cut_short_may_be_moved_to_a_bucket_and_back(run: BucketFolder, tmp_path: Path) -> None:
    events = list(events_of(run))
    whole = (tmp_path / "local" / "ledger.jsonl").read_bytes()
    run.bucket.delete([*run.bucket.sizes("ledger"), "lease.json"])
    run.bucket.write("ledger.jsonl", whole + b'{"event": "cont')
    ledger = Ledger(run)
    ledger.append(TrialContinued(trial=0))
    ledger.close()
    expected = [*events, TrialContinued(trial=0)]
    assert list(events_of(run)) == expected
    back = tmp_path / "back"
    for name in run.sizes():
        (back / name).parent.mkdir(parents=True, exist_ok=True)
        (back / name).write_bytes(read(run, name))
    assert list(events_of(back)) == expected
    again = Ledger(back)
    again.append(TrialContinued(trial=1))
    again.close()
    assert list(events_of(back)) == [*expected, TrialContinued(trial=1)]
