import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from botocore.credentials import RefreshableCredentials
from obstore.exceptions import GenericError

from raysweep.errors import InputError
from raysweep.storage.bucket import Bucket, StorageError, describe_error
from support.s3_server import S3Server


@pytest.fixture
def bucket(server: S3Server, request) -> Iterator[Bucket]:
    yield Bucket(server.uri("bucket tests", request.node.name.replace("[", "-")), on_wait=[].append)
    server.fail(share=0.0)


def test_written_objects_are_read_back(bucket: Bucket) -> None:
    bucket.write("a/b", b"one")
    bucket.write("a/b", b"two")
    bucket.write("a/c", b"")
    assert bucket.read("a/b") == b"two"
    assert bucket.sizes("a") == {"a/b": 3, "a/c": 0}
    assert bucket.read_all(["a/c", "a/b"]) == [b"", b"two"]
    bucket.delete(["a/b"])
    assert bucket.sizes() == {"a/c": 0}
    assert bucket.size_of("a/b") is None
    with pytest.raises(FileNotFoundError):
        bucket.read("a/b")


def test_create_rejects_an_existing_object(bucket: Bucket) -> None:
    bucket.create("one", b"mine")
    with pytest.raises(FileExistsError):
        bucket.create("one", b"theirs")
    assert bucket.read("one") == b"mine"


def test_replace_requires_the_current_tag(bucket: Bucket) -> None:
    first = bucket.create("one", b"1")
    second = bucket.replace("one", b"2", first)
    assert second is not None
    assert bucket.replace("one", b"3", first) is None
    assert bucket.read_version("one").tag == second
    assert bucket.read("one") == b"2"


def test_files_of_any_size_are_transferred_completely(bucket: Bucket, tmp_path: Path) -> None:
    for num_bytes in (0, 1, 16 * 2**20, 16 * 2**20 + 1, 40 * 2**20 + 7):
        content = bytes(range(256)) * (num_bytes // 256 + 1)
        source, target = tmp_path / "source", tmp_path / "new" / "target"
        source.write_bytes(content[:num_bytes])
        bucket.upload(source, "file")
        assert bucket.size_of("file") == num_bytes
        bucket.download("file", target, num_bytes)
        assert target.read_bytes() == source.read_bytes()


def test_temporary_failures_are_retried(server: S3Server, bucket: Bucket) -> None:
    """A tenth of the requests fail, some after they were executed."""
    bucket.write("first", b"")
    before = server.fail(share=0.1).total
    tag = bucket.create("counter", b"0")
    for number in range(1, 60):
        bucket.create(f"events/{number:03d}", str(number).encode())
        replaced = bucket.replace("counter", str(number).encode(), tag)
        if replaced is None:  # carried out, with the answer lost: the caller looks who did it
            stored = bucket.read_version("counter")
            assert stored.content == str(number).encode()
            replaced = stored.tag
        tag = replaced
    failed = server.fail(share=0.0).total - before
    names = [f"events/{number:03d}" for number in range(1, 60)]
    assert list(bucket.sizes("events")) == names
    assert bucket.read_all(names) == [str(number).encode() for number in range(1, 60)]
    assert failed > 5


def test_timed_out_requests_are_retried(
    server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the requests fail, a third of these by a timeout."""
    monkeypatch.setenv("RAYSWEEP_REQUEST_SECONDS", "0.5")
    before = server.fail(share=0.5, hold=1.0)
    for number in range(12):
        bucket.create(f"events/{number:02d}", str(number).encode())
    held = server.fail(share=0.0).held - before.held
    assert held > 2
    names = [f"events/{number:02d}" for number in range(12)]
    assert bucket.read_all(names) == [str(number).encode() for number in range(12)]
    assert list(bucket.sizes("events")) == names


def test_request_timeout_is_read_from_the_environment(
    server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    bucket.on_wait, bucket.patience = messages.append, 0.0
    monkeypatch.setenv("RAYSWEEP_REQUEST_SECONDS", "0.2")
    server.fail(slow=1.0)
    with pytest.raises(StorageError, match=r"no response for \d+ s \(timed out\)"):
        bucket.write("one", b"1")
    patient = Bucket(bucket.uri, on_wait=pytest.fail)
    monkeypatch.setenv("RAYSWEEP_REQUEST_SECONDS", "10")
    patient.write("one", b"1")
    server.fail()


@pytest.mark.parametrize("given", ["soon", "0", "-1", "inf", "nan", "1e99"])
def test_invalid_request_timeout_is_rejected(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("RAYSWEEP_REQUEST_SECONDS", given)
    with pytest.raises(
        InputError,
        match=f"RAYSWEEP_REQUEST_SECONDS is '{given}'; allowed: a number of seconds above 0, at most 86,400",
    ):
        bucket.write("one", b"1")


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_invalid_region_is_rejected(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "us east")
    with pytest.raises(InputError, match=f"{name} is 'us east'; allowed: .*eu-west-1"):
        bucket.write("one", b"1")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
@pytest.mark.parametrize(
    "given", ["127.0.0.1:9000", "http://127.0.0.1:99999", "http://[::1", "http://local host"]
)
def test_invalid_endpoint_is_rejected(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, name: str, given: str
) -> None:
    monkeypatch.setenv(name, given)
    with pytest.raises(
        InputError, match=f"{name} .*allowed: http://HOST:PORT or https://HOST:PORT"
    ):
        bucket.write("one", b"1")


def test_unknown_profile_is_named(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_DEFAULT_PROFILE", "nobody")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with pytest.raises(InputError, match=r"credentials.*\(nobody\)"):
        bucket.write("one", b"1")


def credentials(
    name: str, expires: datetime, renew: Callable[[], dict[str, str]]
) -> RefreshableCredentials:
    return RefreshableCredentials(
        name, "secret", "token", expires, renew, "test", advisory_timeout=0, mandatory_timeout=0
    )


def test_expired_credentials_are_renewed(
    server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the client's default lifetime of half an hour, the second request would use the expired credentials."""
    end_of_second = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    second = {
        "access_key": "second-key",
        "secret_key": "secret",
        "token": "token",
        "expiry_time": end_of_second,
    }
    first = credentials("first-key", datetime.now(UTC) + timedelta(seconds=8), lambda: second)
    monkeypatch.setattr(boto3.Session, "get_credentials", lambda session: first)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    bucket.write("one", b"1")
    assert server.last_key() == "first-key"
    time.sleep(8.1)
    bucket.write("one", b"2")
    assert server.last_key() == "second-key"


@pytest.mark.parametrize("variable", ["AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"])
def test_credentials_file_of_the_environment_is_used(
    server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """The folder ~/.aws need not exist."""
    file = tmp_path / "aws"
    file.write_text(
        "[default]\naws_access_key_id = key-of-a-file\naws_secret_access_key = secret\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(variable, str(file))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    bucket.write("one", b"1")
    assert server.last_key() == "key-of-a-file"


@pytest.mark.usefixtures("server")
def test_profile_of_the_environment_requires_boto3(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("botocore.exceptions", "obstore.auth.boto3"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "night")
    with pytest.raises(InputError, match=r"AWS_PROFILE: .*boto3: pip install 'raysweep\[s3\]'"):
        bucket.write("one", b"1")


def test_unreachable_server_is_named(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    impatient = Bucket(bucket.uri, on_wait=lambda text: None, patience=0.0)
    with pytest.raises(StorageError, match=r"connection refused \(127\.0\.0\.1:9\)"):
        impatient.write("one", b"1")


def test_missing_machine_credentials_are_reported() -> None:
    denied = (
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 4ms - Server returned non-2xx "
        "status code: 403 Forbidden"
    )
    assert "credentials are missing" in describe_error(GenericError(denied))


def test_short_outage_is_waited_out(server: S3Server, bucket: Bucket) -> None:
    messages: list[str] = []
    bucket.on_wait = messages.append
    bucket.write("first", b"")
    server.fail(outage=4)
    bucket.write("second", b"2")
    assert bucket.read("second") == b"2"


def test_lasting_outage_raises_one_error(server: S3Server, bucket: Bucket) -> None:
    messages: list[str] = []
    bucket.on_wait, bucket.patience = messages.append, 1.0
    bucket.write("first", b"")
    server.fail(outage=60)
    with pytest.raises(StorageError, match="no response for"):
        bucket.write("second", b"2")
    server.fail(outage=0)
    assert messages == [] or "waiting" in messages[0]


def test_missing_bucket_is_reported_at_once(server: S3Server) -> None:
    with pytest.raises(InputError, match="bucket does not exist"):
        Bucket("s3://elsewhere/x").write("a", b"")


def test_errors_never_repeat_a_key(server: S3Server) -> None:
    with pytest.raises((StorageError, InputError)) as raised:
        Bucket("s3://elsewhere/x").write("a", b"")
    shown = f"{raised.value} {raised.value.__cause__}"
    assert "secret-of-the-tests" not in shown and "access-key-of-the-tests" not in shown
