"""Push of an exported model to a Hub that is unreachable, rejects it, or accepts it."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import huggingface_hub
import pytest

from raysweep.data import hub as data_hub
from raysweep.errors import InputError
from raysweep.export import hub
from support.command_line import raysweep_here

TOKEN = "hf_secretsecretsecret"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("README.md", "front.png", "model.safetensors", "raysweep.json"):
        (model / name).write_text(name)
    return model


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.mark.parametrize("name", ["model", "a/b/c", "a/b c", "", "../x", "a/--", "https://x/a"])
def test_invalid_name_is_rejected_before_export(name: str, tmp_path: Path) -> None:
    done = raysweep_here(tmp_path, "export", "nowhere", "model", "--push", name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --push {name}: ")
    assert len(done.stderr.splitlines()) == 1
    hub.check_name("owner/my-model.v2")


def test_private_without_push_is_rejected(tmp_path: Path) -> None:
    done = raysweep_here(tmp_path, "export", "nowhere", "model", "--private")
    assert (done.returncode, done.stderr) == (2, "error: --private requires --push OWNER/NAME\n")


def test_push_without_a_network_keeps_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    data_hub.reachable.cache_clear()
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        hub.push(folder, "owner/name", private=False)
    data_hub.reachable.cache_clear()
    assert time.monotonic() - began < data_hub.PROBE_SECONDS + 1
    assert str(caught.value).startswith(f"{folder} was written but not pushed to owner/name: ")
    assert str(caught.value).endswith(
        f"to upload it later, run: hf upload owner/name {folder} . --exclude raysweep.json"
    )
    assert (folder / "README.md").is_file()


def test_push_without_a_token_is_rejected(
    folder: Path, reachable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(InputError, match="HF_TOKEN"):
        hub.push(folder, "owner/name", private=False)


class FakeHub:
    """A substitute for the Hub's client that records uploads."""

    endpoint = "https://hub.test"

    def __init__(self, *, private: bool) -> None:
        self.private = private
        self.calls: dict[str, Any] = {}

    def __call__(self, token: str) -> "FakeHub":
        assert token == TOKEN
        return self

    def create_repo(self, name: str, **options: Any) -> None:
        self.calls["create_repo"] = (name, options)

    def model_info(self, name: str) -> "FakeHub":
        return self

    def upload_folder(self, **options: Any) -> None:
        self.calls["upload_folder"] = options


def test_file_with_local_paths_is_not_uploaded(
    folder: Path, reachable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for private in (False, True):
        fake_hub = FakeHub(private=private)
        monkeypatch.setattr(huggingface_hub, "HfApi", fake_hub)
        assert hub.push(folder, "owner/name", private=private) == "https://hub.test/owner/name"
        assert fake_hub.calls["create_repo"] == (
            "owner/name",
            {"private": private or None, "exist_ok": True},
        )
        upload = fake_hub.calls["upload_folder"]
        uploaded = huggingface_hub.utils.filter_repo_objects(
            [path.name for path in folder.iterdir()], ignore_patterns=upload["ignore_patterns"]
        )
        assert sorted(uploaded) == ["README.md", "front.png", "model.safetensors"]
        assert (upload["repo_id"], upload["folder_path"]) == ("owner/name", folder)


def test_private_push_to_a_public_repository_is_rejected(
    folder: Path, reachable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_hub = FakeHub(private=False)
    monkeypatch.setattr(huggingface_hub, "HfApi", fake_hub)
    with pytest.raises(InputError, match="already exists and is public"):
        hub.push(folder, "owner/name", private=True)
    assert "upload_folder" not in fake_hub.calls


class RejectionHandler(BaseHTTPRequestHandler):
    """Handler that answers like the Hub to an invalid token."""

    def do_POST(self) -> None:
        self.send_response(401)
        self.send_header("x-error-message", f"Invalid credentials {TOKEN}")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def rejecting_hub() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), RejectionHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_message_of_the_hub_is_printed_without_the_token(
    folder: Path,
    reachable: None,
    rejecting_hub: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from functools import partial

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        huggingface_hub, "HfApi", partial(huggingface_hub.HfApi, endpoint=rejecting_hub)
    )
    with pytest.raises(
        InputError, match="was written but not pushed to owner/name: .*401"
    ) as caught:
        hub.push(folder, "owner/name", private=False)
    shown = str(caught.value) + "".join(capfd.readouterr())
    assert "\n" not in str(caught.value)
    assert TOKEN not in shown
    assert "to upload it later, run: hf upload owner/name" in str(caught.value)
