"""Starting Ray and joining clusters: errors, the token, and signals."""

import ctypes
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from raysweep.cluster.connection import connected, protect_token, shut_down
from raysweep.config.sweep import ResourcesConfig
from raysweep.errors import InputError


def test_token_is_readable_by_its_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    modes = []
    real_open = os.open

    def noting(path: Path, flags: int, mode: int) -> int:
        descriptor = real_open(path, flags, mode)
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        return descriptor

    monkeypatch.setattr(os, "open", noting)
    before = os.umask(0)
    try:
        protect_token(may_make=False)
        assert not list(tmp_path.iterdir()), "where a cluster is joined, its own token counts"
        protect_token(may_make=True)
    finally:
        os.umask(before)
    token = tmp_path / ".ray" / "auth_token"
    assert modes == [0o600]
    assert re.fullmatch("[0-9a-f]{64}", token.read_text())
    content = token.read_text()
    token.chmod(0o644)
    protect_token(may_make=False)
    assert (token.read_text(), token.stat().st_mode & 0o777) == (content, 0o600)


@pytest.mark.parametrize(
    ("name", "value"),
    [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "t"), ("RAY_AUTH_TOKEN_PATH", "/x")],
)
def test_no_token_is_created_if_the_environment_configures_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv(name, value)
    protect_token(may_make=True)
    assert not list(tmp_path.iterdir())


def test_ray_client_is_rejected() -> None:
    with (
        pytest.raises(InputError, match=r"resources.address is ray://head:10001.*ray job submit"),
        connected(ResourcesConfig(address="ray://head:10001")),
    ):
        pass


def test_address_of_a_killed_cluster_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("", 0))
        port = unused.getsockname()[1]
        file = tmp_path / "ray" / "ray_current_cluster"
        file.parent.mkdir()
        file.write_text(f"127.0.0.1:{port}")
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)
        monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray would wait for the cluster"))
        with (
            pytest.raises(InputError, match=f"resources.address: .*:{port}"),
            connected(ResourcesConfig(address="auto")),
        ):
            pass


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Exception("The current node timed out during startup."), "busy"),
        (OSError("AF_UNIX path length cannot exceed 107 bytes: /long"), "RAY_TMPDIR.*short"),
        (PermissionError(13, "Permission denied", "/proc/x"), "RAY_TMPDIR.*writable"),
    ],
)
def test_ray_that_does_not_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, remedy: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("ray.init", fail)
    with (
        pytest.raises(InputError, match=f"{re.escape(str(error))}; .*{remedy}"),
        connected(ResourcesConfig()),
    ):
        pass


def test_slow_start_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines: list[str] = []
    is_reported = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        is_reported.set()

    def start_slowly(*_: object, **__: object) -> None:
        assert is_reported.wait(60)
        raise OSError("stopped here")

    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("ray.init", start_slowly)
    monkeypatch.setattr("raysweep.cluster.connection.SILENT_SECONDS", 0.01)
    with (
        pytest.raises(InputError, match="stopped here"),
        connected(ResourcesConfig(), report=report),
    ):
        pass
    assert "not started" in lines[0]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://head:10001", "nonsense"])
def test_address_from_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with (
        pytest.raises(InputError, match=f"^RAY_ADDRESS.*{address}.*allowed"),
        connected(ResourcesConfig()),
    ):
        pass


def test_missing_cluster_file_is_rejected_before_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_CLUSTER_FILE", "clusters/mine.yaml")
    with (
        pytest.raises(InputError, match=r"RAYSWEEP_CLUSTER_FILE is clusters/mine.yaml"),
        connected(ResourcesConfig(address="127.0.0.1:1")),
    ):
        pass


def test_sigterm_stays_ignored_during_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's core resets the signal from another thread, without Python noticing."""
    own_handler = signal.getsignal(signal.SIGTERM)
    c_library = ctypes.CDLL(None)
    c_library.signal.restype = ctypes.c_void_p

    def reset_and_return() -> None:
        c_library.signal(signal.SIGTERM.value, None)
        until = time.monotonic() + 30
        while not is_ignored(signal.SIGTERM):
            assert time.monotonic() < until
            time.sleep(0.01)

    monkeypatch.setattr("ray.shutdown", reset_and_return)
    shut_down()
    assert signal.getsignal(signal.SIGTERM) == own_handler
    assert not is_ignored(signal.SIGTERM)


def is_ignored(number: signal.Signals) -> bool:
    """Return whether the kernel reports that this process ignores the signal."""
    status = Path("/proc/self/status").read_text()
    mask = int(re.findall(r"SigIgn:\s*([0-9a-f]+)", status)[0], 16)
    return bool(mask >> (number - 1) & 1)
