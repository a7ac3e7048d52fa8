"""Preemption notices of clouds, from servers that answer as documented."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from raysweep.cluster import nodes
from raysweep.cluster.nodes import end_is_announced, this_cloud

TOKEN = "a-token-of-a-session"


class Metadata(BaseHTTPRequestHandler):
    """Handler of the metadata paths of AWS and Google Cloud that concern nodes."""

    is_preempted: ClassVar[bool]

    def do_PUT(self) -> None:
        knows_how = (
            self.path == "/latest/api/token"
            and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        )
        self._answer(200 if knows_how else 400, TOKEN)

    def do_GET(self) -> None:
        if self.path == "/latest/meta-data/spot/instance-action":
            if self.headers["X-aws-ec2-metadata-token"] != TOKEN:
                self._answer(401, "")
            elif self.is_preempted:
                self._answer(200, '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}')
            else:
                self._answer(404, "<?xml ...")
        elif (
            self.path == "/computeMetadata/v1/instance/preempted"
            and self.headers["Metadata-Flavor"] == "Google"
        ):
            self._answer(200, str(self.is_preempted).upper())
        else:
            self._answer(403, "")

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def metadata() -> Iterator[str]:
    """Return the host and port of a server."""
    Metadata.is_preempted = False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the cloud that these tests may run on."""
    monkeypatch.setattr(nodes, "VENDOR_FILE", "/nowhere")
    for cloud in nodes.CLOUDS:
        monkeypatch.delenv(cloud.variable, raising=False)


@pytest.mark.parametrize(
    ("vendor", "variable", "prefix"),
    [
        ("Amazon EC2", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://"),
        ("Google", "GCE_METADATA_HOST", ""),
    ],
)
def test_preemption_notice(
    vendor: str, variable: str, prefix: str, metadata: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, prefix + metadata)
    cloud = this_cloud()
    assert cloud is not None
    assert cloud.vendor == vendor
    assert not end_is_announced(cloud)
    Metadata.is_preempted = True
    assert end_is_announced(cloud)


def test_no_notice_without_a_metadata_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    cloud = this_cloud()
    assert cloud is not None
    assert not end_is_announced(cloud)


@pytest.mark.parametrize("vendor", ["Amazon EC2", "Google"])
def test_cloud_is_detected_by_firmware(
    vendor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sys_vendor"
    file.write_text(vendor + "\n")
    monkeypatch.setattr(nodes, "VENDOR_FILE", str(file))
    cloud = this_cloud()
    assert cloud is not None
    assert cloud.vendor == vendor


def test_no_cloud_on_other_machines() -> None:
    assert this_cloud() is None
