"""Objects under a URI in an object store, with verified transfers and retries after temporary failures."""

import errno
import math
import os
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from raysweep.errors import InputError
from raysweep.storage.location import expand_home, is_address, is_region, join, split
from raysweep.storage.private import make_private

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

# how long to wait while a store does not respond or is temporarily unavailable
PATIENCE_SECONDS = 600.0
# shorter for the first request, since the URI or the network settings may be wrong
FIRST_PATIENCE_SECONDS = 20.0
LEASE = "lease.json"  # object name of the lease on a URI
PART_BYTES = 16 * 2**20  # maximum data per request; larger files are transferred in parts
NUM_THREADS = 8
TIMEOUT_VARIABLE = "RAYSWEEP_REQUEST_SECONDS"
DEFAULT_TIMEOUT_SECONDS = 30.0  # per request, including up to PART_BYTES of data

_LONGEST_TIMEOUT_SECONDS = 86_400.0
_RETRY_SECONDS = 20.0  # how long the client itself retries a request
_PAUSE_SECONDS = 3.0  # the client's longest pause between retries
_RETRIES: Any = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=_PAUSE_SECONDS),
        "base": 2,
    },
}
_CONNECT_TIMEOUT = "5s"
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_PROFILE_VARIABLES = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
)
# metadata servers, which provide credentials to cloud machines
_METADATA_HOSTS = (
    "169.254.169.254",
    "metadata.google.internal",
)


class StorageError(OSError, InputError):
    """An object store rejected a request or did not respond in time. ``strerror`` is the reason."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


@dataclass(frozen=True)
class Stored:
    """A version of an object, with its modification time according to the store's clock."""

    content: bytes
    tag: dict[str, str]
    modified: datetime


class FileStat(NamedTuple):
    """The size of a stored file in bytes and its modification time in seconds since the epoch."""

    num_bytes: int
    modified: float


@dataclass
class Bucket:
    """The objects under ``uri``. Object names are relative to it.

    All methods raise StorageError if the store rejects a request or does not respond for ``patience``
    seconds. While waiting, they call ``on_wait`` with the reason. Methods may be called from any thread.
    """

    uri: str
    on_wait: Callable[[str], None] = print
    patience: float = PATIENCE_SECONDS
    # called before each write attempt; an exception cancels the write
    guard: Callable[[], None] = lambda: None

    @cached_property
    def _store(self) -> "ObjectStore":
        return _connect(self.uri)

    def check(self) -> None:
        """Raise InputError unless the store responds quickly."""
        patience, self.patience = self.patience, min(self.patience, FIRST_PATIENCE_SECONDS)
        try:
            self.size_of(LEASE)
        finally:
            self.patience = patience

    def read(self, name: str) -> bytes:
        """Return an object's bytes. Raises FileNotFoundError if the object does not exist."""
        return self.read_version(name).content

    def read_version(self, name: str) -> Stored:
        """Return the current version of an object. Raises FileNotFoundError if the object does not exist."""

        def get() -> Stored:
            response = self._store.get(name)
            content = response.bytes().to_bytes()
            return Stored(content, _tag(response.meta), response.meta["last_modified"])

        return self._persist(get)

    def read_all(self, names: Iterable[str], num_bytes: int | None = None) -> list[bytes]:
        """Return the bytes of small objects, or their first ``num_bytes`` bytes, in order. Requests run in parallel."""

        def read(name: str) -> bytes:
            if num_bytes is None:
                return self.read(name)
            start = self._persist(lambda: self._store.get_range(name, start=0, length=num_bytes))
            return start.to_bytes()

        with ThreadPoolExecutor(NUM_THREADS) as pool:
            return list(pool.map(read, names))

    def write(self, name: str, content: bytes) -> None:
        """Write an object, replacing any existing one."""
        self._persist_writing(
            lambda: self._store.put(name, content, use_multipart=len(content) > PART_BYTES)
        )

    def create(self, name: str, content: bytes) -> dict[str, str]:
        """Create an object and return its tag.

        An existing object with the same content is accepted, because the response to an earlier attempt
        may have been lost.

        Raises:
            FileExistsError: If the object exists with different content.
        """
        from obstore.exceptions import AlreadyExistsError

        def put() -> dict[str, str]:
            try:
                return _tag(self._store.put(name, content, mode="create", use_multipart=False))
            except AlreadyExistsError:
                existing = self.read_version(name)
                if existing.content != content:
                    raise FileExistsError(
                        errno.EEXIST, "already exists", join(self.uri, name)
                    ) from None
                return existing.tag

        return self._persist_writing(put)

    def replace(self, name: str, content: bytes, tag: dict[str, str]) -> dict[str, str] | None:
        """Replace an object if it still has this tag. Return the new tag, or None if it has changed or is missing."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put() -> dict[str, str] | None:
            try:
                return _tag(self._store.put(name, content, mode=tag, use_multipart=False))  # type: ignore[arg-type]
            except (PreconditionError, AlreadyExistsError, FileNotFoundError):
                return None

        return self._persist_writing(put)

    def files(self, prefix: str = "") -> dict[str, FileStat]:
        """Return the objects whose names begin with ``prefix/`` (by default, all objects), sorted by name."""

        def list_files() -> dict[str, FileStat]:
            files = {}
            for batch in self._store.list(prefix or None):
                for meta in batch:
                    name = meta["path"]
                    modified = meta["last_modified"].timestamp()
                    files[name] = FileStat(meta["size"], modified)
            return files

        files = self._persist(list_files)
        return dict(sorted(files.items()))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the size in bytes of each object that :meth:`files` returns."""
        return {name: stat.num_bytes for name, stat in self.files(prefix).items()}

    def size_of(self, name: str) -> int | None:
        """Return the size in bytes of the object with this exact name, or None if it does not exist."""
        try:
            num_bytes: int = self._persist(lambda: self._store.head(name))["size"]
        except FileNotFoundError:
            return None
        return num_bytes

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, ignoring missing ones."""
        present = list(names)
        if present:
            with suppress(FileNotFoundError):
                self._persist_writing(lambda: self._store.delete(present))

    def upload(self, path: Path, name: str) -> None:
        """Upload a file of any size. Raises StorageError if the upload is incomplete.

        S3 checks the received data against the SHA-256 in each request's signature.
        """
        num_bytes = path.stat().st_size
        self._persist_writing(lambda: self._store.put(name, path))
        arrived: int = self._persist(lambda: self._store.head(name))["size"]
        if arrived < num_bytes:  # a log may have grown
            raise StorageError(
                errno.EIO, f"{arrived} of {num_bytes} bytes arrived", join(self.uri, name)
            )

    def download(self, name: str, path: Path, num_bytes: int) -> None:
        """Download an object of ``num_bytes`` bytes to a file, creating the file's folder if necessary."""
        make_private(path.parent)
        with path.open("wb") as file:
            for start in range(0, num_bytes, PART_BYTES):
                length = min(PART_BYTES, num_bytes - start)
                get_range = partial(self._store.get_range, name, start=start, length=length)
                file.write(self._persist(get_range))

    def now(self) -> datetime:
        """Return the current time of the store's clock, to the second."""
        self.write("clock", b"")
        modified: datetime = self._persist(lambda: self._store.head("clock"))["last_modified"]
        return modified

    def _persist_writing(self, request: Callable[[], T]) -> T:
        """Return the response to a write request, calling the guard before each attempt."""
        return self._persist(request, self.guard)

    def _persist(self, request: Callable[[], T], guard: Callable[[], None] = lambda: None) -> T:
        """Return the response to a request, retrying while the store does not respond or is temporarily unavailable."""
        # Connect first, because if obstore is missing, the error message names the extra to install.
        _ = self._store
        from obstore.exceptions import BaseError

        began = time.monotonic()
        pause = 0.5
        while True:
            guard()
            try:
                answer = request()
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise InputError(f"{self.uri}: the bucket does not exist") from None
                raise FileNotFoundError(
                    errno.ENOENT, "the object does not exist", self.uri
                ) from None
            except BaseError as error:
                reason = describe_error(error)
                if not _is_temporary(error):
                    raise StorageError(errno.EACCES, reason, self.uri) from None
                waited = time.monotonic() - began
                if waited >= self.patience:
                    timeout = f"no response for {waited:.0f} s ({reason})"
                    raise StorageError(errno.ETIMEDOUT, timeout, self.uri) from None
                details = f"reason={reason}, waited={waited:.0f} s, limit={self.patience:.0f} s"
                self.on_wait(f"{self.uri}: waiting ({details})")
                time.sleep(pause)
                pause = min(2 * pause, 10.0)
            else:
                return answer


def _connect(uri: str) -> "ObjectStore":
    """Return a client for the store that finds credentials like the cloud provider's own libraries."""
    scheme, bucket, prefix, options = split(uri)
    try:
        from obstore.store import GCSStore, S3Store
    except ImportError:
        extra = {"s3": "s3", "gs": "gcs"}[scheme]
        raise InputError(
            f"{uri}: object stores need an extra: pip install 'raysweep[{extra}]'"
        ) from None
    timeout = f"{_timeout_seconds():g}s"
    timeouts = {"timeout": timeout, "connect_timeout": _CONNECT_TIMEOUT}
    common: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": timeouts,
        "retry_config": _RETRIES,
    }
    if scheme == "gs":
        return GCSStore(bucket, **common)
    _check_variables()
    if endpoint := options.get("endpoint_override"):
        endpoint_scheme = options.get("scheme", "https")
        common["endpoint"] = endpoint if "://" in endpoint else f"{endpoint_scheme}://{endpoint}"
    # needed for http:// endpoints; others still use https
    common["client_options"]["allow_http"] = True
    if region := options.get("region"):
        common["region"] = region
    if provider := _profile_credentials():
        common["credential_provider"] = provider
    return S3Store(bucket, **common)


def attempt_seconds() -> float:
    """Return the maximum time in seconds until an attempted small request reaches the store."""
    return _RETRY_SECONDS + _PAUSE_SECONDS + _timeout_seconds()


def _timeout_seconds() -> float:
    """Return the timeout in seconds after which a request is retried."""
    text = os.environ.get(TIMEOUT_VARIABLE)
    if not text:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.001 <= seconds <= _LONGEST_TIMEOUT_SECONDS:
        raise InputError(
            f"{TIMEOUT_VARIABLE} is {text!r}; allowed: a number of seconds above 0, at most {_LONGEST_TIMEOUT_SECONDS:,.0f}"
        )
    return seconds


def _check_variables() -> None:
    """Raise InputError if the environment contains an invalid endpoint or region, which would crash the client."""
    for name in _ENDPOINT_VARIABLES:
        endpoint = os.environ.get(name)
        if not endpoint:
            continue
        has_scheme = endpoint.startswith(("http://", "https://"))
        if not (has_scheme and is_address(endpoint)):
            raise InputError(
                f"{name} is not a server address; allowed: http://HOST:PORT or https://HOST:PORT"
            )
    for name in _REGION_VARIABLES:
        region = os.environ.get(name)
        if region and not is_region(region):
            raise InputError(f"{name} is {region!r}; allowed: a name such as eu-west-1")


def _profile_credentials() -> Any:
    """Return boto3's credential provider for profiles and single sign-on, or None if they are not used.

    The object store client supports neither.
    """
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return None
    is_named = any(name in os.environ for name in _PROFILE_VARIABLES)
    if not is_named and not expand_home("~/.aws").is_dir():
        return None
    try:
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:  # boto3 is not installed
        if is_named:
            names = " or ".join(name for name in _PROFILE_VARIABLES if name in os.environ)
            raise InputError(
                f"{names}: requires the package boto3: pip install 'raysweep[s3]'"
            ) from None
        return None
    try:
        # A TTL of 0 disables caching, because only boto3 tracks when the credentials expire.
        return Boto3CredentialProvider(ttl=timedelta(0))
    except ValueError:  # no credentials in any profile
        return None
    except BotoCoreError as error:
        raise InputError(
            f"AWS credentials: cannot be read from this environment: {error}"
        ) from None


def _tag(meta: Any) -> dict[str, str]:
    """Return the tag of an object's version: its ETag and, if the store has one, its version ID or generation."""
    tag = {key: meta[key] for key in ("e_tag", "version") if meta[key] is not None}
    if tag.get("version") == "null":  # versioning is off for this bucket
        del tag["version"]
    return tag


def _status(error: Exception) -> int | None:
    """Return the HTTP status of the store's response, or None if there was no response."""
    match = re.search(r"non-2xx status code: (\d{3})", str(error))
    return int(match.group(1)) if match else None


def _is_temporary(error: Exception) -> bool:
    from obstore.exceptions import GenericError

    status = _status(error)
    if status is not None:
        is_expired = "RequestTimeout" in str(error) or "ExpiredToken" in str(error)
        return status >= 500 or status in (408, 429) or is_expired
    return isinstance(error, GenericError)


def describe_error(error: Exception) -> str:
    """Return a short description of the error, without secrets in the response such as access key IDs."""
    from obstore.exceptions import InvalidPathError

    text = str(error)
    if any(host in text for host in _METADATA_HOSTS):
        return "credentials are missing, both in the environment and in this machine's metadata"
    status = _status(error)
    if "Error parsing Path" in text or isinstance(error, InvalidPathError):
        return "an object has an invalid name: a part of its path is empty, . or .., or contains a control character"
    if status is not None:
        code = re.search(r"<Code>(\w+)</Code>", text)
        hint = (
            "; check that the credentials in the environment allow it"
            if status in (401, 403)
            else ""
        )
        code_text = f" {code.group(1)}" if code else ""
        return f"the store responded with status {status}{code_text}{hint}"
    if "TimedOut" in text:  # how the client reports a request that exceeds the timeout
        return "timed out"
    for words in (
        "Connection refused",
        "timed out",
        "dns error",
        "Connection reset",
        "certificate",
    ):
        if words.lower() in text.lower():
            # The client does not always report the server.
            server = re.search(r"https?://(?:[^/\s@]*@)?([^/\s@\")]+)", text)
            server_text = f" ({server.group(1)})" if server else ""
            return f"{words.lower()}{server_text}"
    if "credential" in text.lower():
        return "credentials are missing in the environment"
    return "the store is unreachable"
