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


def test_released_lease_is_acquired_at_once(bucket: Bucket) -> None:
    first = Lease(bucket, note={"events": 7})
    assert first.acquire(pytest.fail) == {}
    first.ensure(pytest.fail)
    first.release()
    second = Lease(bucket)
    assert second.acquire(pytest.fail) == {"events": 7}
    second.release()


def test_acquire_waits_for_the_named_holder(bucket: Bucket) -> None:
    messages: list[str] = []
    first = Lease(bucket, seconds=3, renew_seconds=60)  # as of a driver that is killed
    first.acquire(pytest.fail)
    began = time.monotonic()
    second = Lease(bucket, seconds=3)
    second.acquire(messages.append)
    assert time.monotonic() - began >= 3
    [line] = messages
    assert "process" in line and "until" in line and "--take-over" in line
    first.renew()
    with pytest.raises(StorageError, match="taken over by"):
        first.ensure(pytest.fail)
    second.release()


def test_renewed_lease_is_not_acquired(bucket: Bucket) -> None:
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


def test_takeover_stops_the_holder(bucket: Bucket) -> None:
    messages: list[str] = []
    first = Lease(bucket, renew_seconds=60)
    first.acquire(pytest.fail)
    second = Lease(bucket, renew_seconds=0.2)
    second.acquire(messages.append, take_over=True)
    assert "taken over from" in messages[0]
    first.renew()
    with pytest.raises(StorageError, match="taken over by"):
        first.ensure(pytest.fail)
    first.release()
    second.ensure(pytest.fail)
    second.release()


def test_holder_writes_nothing_after_expiry(server: S3Server, bucket: Bucket) -> None:
    bucket.patience = 10
    messages: list[str] = []
    lease = Lease(bucket, seconds=1, renew_seconds=0.2)
    lease.acquire(pytest.fail)
    server.fail(outage=4)
    time.sleep(1.5)
    began = time.monotonic()
    # nobody took it over, so it is renewed once the store answers again
    lease.ensure(messages.append)
    assert time.monotonic() - began > 1
    assert "cannot be renewed" in messages[0]
    lease.release()


def test_no_request_starts_shortly_before_expiry(bucket: Bucket) -> None:
    """A request may take long, so none starts shortly before the lease expires."""
    messages: list[str] = []
    lease = Lease(bucket, seconds=120, renew_seconds=60)
    lease.acquire(pytest.fail)
    lease.ensure(pytest.fail)
    lease._held_until -= (
        70  # so long ago was it renewed: 50 seconds are left, and a request may take 53
    )
    asking = threading.Thread(target=lease.ensure, args=(messages.append,), daemon=True)
    asking.start()
    while not messages:
        assert asking.is_alive()
        time.sleep(0.01)
    assert "cannot be renewed" in messages[0]
    lease.renew()
    asking.join()
    lease.release()


def test_lease_duration_grows_with_the_request_timeout(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Lease(bucket).seconds == 120
    monkeypatch.setenv("RAYSWEEP_REQUEST_SECONDS", "120")
    slow = Lease(bucket)
    assert slow.seconds >= 2 * attempt_seconds() == 286
    slow.acquire(pytest.fail)
    monkeypatch.delenv("RAYSWEEP_REQUEST_SECONDS")
    stored = bucket.read_version("lease.json")
    assert json.loads(stored.content)["seconds"] == slow.seconds
    slow.release()
    for damaged in (b"NaN", b"Infinity", b"-1", b"1e99", b'"long"'):
        bucket.write("lease.json", b'{"holder": "somebody", "seconds": ' + damaged + b"}")
        assert not is_live(bucket, "lease.json")


def test_removed_bucket_ends_the_work(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(bucket, renew_seconds=60)
    lease.acquire(pytest.fail)

    def gone(*_: object) -> None:
        raise InputError("the bucket does not exist")

    monkeypatch.setattr(bucket, "replace", gone)
    lease.renew()
    lease._held_until -= lease.seconds
    with pytest.raises(StorageError, match="the bucket does not exist"):
        lease.ensure(print)
    monkeypatch.undo()
    lease.release()


def test_takeover_with_a_lost_response_waits_for_the_holder(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "NOTICE_SECONDS", 1.0)
    messages: list[str] = []
    first = Lease(bucket, renew_seconds=60)
    first.acquire(pytest.fail)
    replace = bucket.replace

    def answerless(name: str, content: bytes, tag: dict[str, str]) -> None:
        replace(name, content, tag)

    taker = Bucket(bucket.uri)
    monkeypatch.setattr(taker, "replace", answerless)
    second = Lease(taker, renew_seconds=0.5)
    began = time.monotonic()
    second.acquire(messages.append, take_over=True)
    assert time.monotonic() - began >= 1.5
    assert len(messages) == 1 and "taken over from" in messages[0]
    monkeypatch.undo()
    second.release()


def test_renewal_with_a_lost_response_keeps_the_lease(bucket: Bucket) -> None:
    lease = Lease(bucket, renew_seconds=60)
    lease.acquire(pytest.fail)
    stored = json.loads(bucket.read("lease.json"))
    bucket.write(
        "lease.json",
        json.dumps({**stored, "version": "of the renewal whose answer was lost"}).encode(),
    )
    lease.renew()  # finds that the lease is its own still
    before = bucket.read("lease.json")
    lease.renew()
    assert bucket.read("lease.json") != before
    lease.ensure(pytest.fail)
    lease.release()


def test_holder_without_a_user_name_is_named_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as any user."""
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert lease_module._holder().startswith("user 54321 on ")
