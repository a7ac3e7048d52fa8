import json
import os
import threading
import time
from collections.abc import Iterator

import pytest

from raysweep.errors import InputError
from raysweep.storage import lease as lease_module
from raysweep.storage.bucket import Bucket, StorageError, attempt_seconds
from raysweep.storage.lease import Lease, is_live
from support.s3_server import S3Server


@pytest.fixture
def bucket(server: S3Server, request) -> Iterator[Bucket]:
    yield Bucket(server.uri("leases", request.node.name), on_wait=[].append)
    server.fail(share=0.0)


def test_a_lease_that_is_let_go_is_had_at_once(bucket: Bucket) -> None:
    first = Lease(bucket, note={"events": 7})
    assert first.acquire(pytest.fail) == {}
    first.ensure(pytest.fail)
    first.release()
    second = Lease(bucket)
    assert second.acquire(pytest.fail) == {"events": 7}
    second.release()


def test_a_living_lease_is_waited_for_and_its_holder_named(bucket: Bucket) -> None:
    said: list[str] = []
    first = Lease(bucket, seconds=3, renew_seconds=60)  # as of a driver that is killed
    first.acquire(pytest.fail)
    began = time.monotonic()
    second = Lease(bucket, seconds=3)
    second.acquire(said.append)
    assert time.monotonic() - began >= 3
    [line] = said
    assert "process" in line and "until" in line and "--take-over" in line
    first.renew()
    with pytest.raises(StorageError, match="taken over by"):
        first.ensure(pytest.fail)
    second.release()


def test_a_lease_that_is_renewed_is_not_had_by_waiting(bucket: Bucket) -> None:
    first = Lease(bucket, seconds=2, renew_seconds=0.3)
    first.acquire(pytest.fail)
    second = Lease(bucket, seconds=2)
    waiting = threading.Thread(target=second.acquire, args=([].append,))
    waiting.start()
    waiting.join(5)
    assert waiting.is_alive()
    first.ensure(pytest.fail)
    first.release()
    waiting.join()
    second.ensure(pytest.fail)
    second.release()


def test_taking_over_stops_the_holder_with_a_warning(bucket: Bucket) -> None:
    said: list[str] = []
    first = Lease(bucket, renew_seconds=60)
    first.acquire(pytest.fail)
    second = Lease(bucket, renew_seconds=0.2)
    second.acquire(said.append, take_over=True)
    assert "taken over from" in said[0]
    first.renew()
    with pytest.raises(StorageError, match="taken over by"):
        first.ensure(pytest.fail)
    first.release()
    second.ensure(pytest.fail)
    second.release()


def test_a_holder_that_cannot_renew_writes_nothing_after_the_end(server: S3Server, bucket: Bucket) -> None:
    bucket.patience = 10
    said: list[str] = []
    lease = Lease(bucket, seconds=1, renew_seconds=0.2)
    lease.acquire(pytest.fail)
    server.fail(outage=4)
    time.sleep(1.5)
    began = time.monotonic()
    lease.ensure(said.append)  # nobody took it over, so it is renewed once the store answers again
    assert time.monotonic() - began > 1
    assert "cannot be renewed" in said[0]
    lease.release()


def test_what_is_sent_arrives_before_the_end(bucket: Bucket) -> None:
    """A request may take its time, so none is begun shortly before."""
    said: list[str] = []
    lease = Lease(bucket, seconds=120, renew_seconds=60)
    lease.acquire(pytest.fail)
    lease.ensure(pytest.fail)
    lease._held_until -= 70  # so long ago was it renewed: 50 seconds are left, and a request may take 53
    asking = threading.Thread(target=lease.ensure, args=(said.append,), daemon=True)
    asking.start()
    while not said:
        assert asking.is_alive()
        time.sleep(0.01)
    assert "cannot be renewed" in said[0]
    lease.renew()
    asking.join()
    lease.release()


def test_a_lease_lasts_longer_where_requests_may_take_longer_and_says_so(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Lease(bucket).seconds == 120
    monkeypatch.setenv("RAYSWEEP_REQUEST_SECONDS", "120")
    slow = Lease(bucket)
    assert slow.seconds >= 2 * attempt_seconds() == 286
    slow.acquire(pytest.fail)
    monkeypatch.delenv("RAYSWEEP_REQUEST_SECONDS")
    found = bucket.read_version("lease.json")
    assert json.loads(found.content)["seconds"] == slow.seconds
    slow.release()
    for damaged in (b"NaN", b"Infinity", b"-1", b"1e99", b'"long"'):
        bucket.write("lease.json", b'{"holder": "somebody", "seconds": ' + damaged + b"}")
        assert not is_live(bucket, "lease.json")


def test_a_bucket_that_is_gone_ends_the_work_with_that_reason(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(bucket, renew_seconds=60)
    lease.acquire(pytest.fail)

    def gone(*_: object) -> None:
        raise InputError("there is no bucket of this name")

    monkeypatch.setattr(bucket, "replace", gone)
    lease.renew()
    lease._held_until -= lease.seconds
    with pytest.raises(StorageError, match="there is no bucket of this name"):
        lease.ensure(print)
    monkeypatch.undo()
    lease.release()


def test_a_takeover_whose_answer_is_lost_waits_for_the_holder_all_the_same(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "NOTICE_SECONDS", 1.0)
    said: list[str] = []
    first = Lease(bucket, renew_seconds=60)
    first.acquire(pytest.fail)
    replace = bucket.replace

    def answerless(name: str, content: bytes, tag: dict[str, str]) -> None:
        replace(name, content, tag)

    taker = Bucket(bucket.uri)
    monkeypatch.setattr(taker, "replace", answerless)
    second = Lease(taker, renew_seconds=0.5)
    began = time.monotonic()
    second.acquire(said.append, take_over=True)
    assert time.monotonic() - began >= 1.5
    assert len(said) == 1 and "taken over from" in said[0]
    monkeypatch.undo()
    second.release()


def test_a_renewal_whose_answer_is_lost_loses_nothing(bucket: Bucket) -> None:
    lease = Lease(bucket, renew_seconds=60)
    lease.acquire(pytest.fail)
    stored = json.loads(bucket.read("lease.json"))
    bucket.write("lease.json", json.dumps({**stored, "version": "of the renewal whose answer was lost"}).encode())
    lease.renew()  # finds that the lease is its own still
    before = bucket.read("lease.json")
    lease.renew()
    assert bucket.read("lease.json") != before
    lease.ensure(pytest.fail)
    lease.release()


def test_a_holder_without_a_name_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as any user."""
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert lease_module._holder().startswith("user 54321 on ")
