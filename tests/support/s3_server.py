"""A real S3 API on a loopback socket that fails on request: ``python -m support.s3_server`` prints its port.

``PUT /_faults?share=0.05&hold=2&outage=3`` makes that share of later requests fail, some of them by a delay of ``hold``
seconds, and makes all of them fail for ``outage`` seconds. ``slow`` delays each request by that many seconds; with
``parts``, all requests fail once that many parts of a ledger have been sent.
"""

import contextlib
import math
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

BUCKET = "sweeps"


class Faults:
    """Forwards requests, except for a share of them, which fail like those to an overloaded or distant S3."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.share = 0.0
        self.hold_seconds = 0.0
        self.slow_seconds = 0.0
        self.outage_until = 0.0
        self.parts_left = math.inf
        self.random = random.Random(0)
        self.num_failed = 0
        self.num_paused = 0
        self.last_key = ""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/_faults":
            if environ["REQUEST_METHOD"] == "PUT":
                self.set(
                    **{
                        name: float(values[0])
                        for name, values in parse_qs(environ["QUERY_STRING"]).items()
                    }
                )
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [f"{self.num_failed} {self.num_paused} {int(self.parts_left <= 0)}".encode()]
        if environ["PATH_INFO"] == "/_last_key":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [self.last_key.encode()]
        self.last_key = (
            environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
        )
        if time.monotonic() < self.outage_until or self.parts_left <= 0:
            return self.reset(environ)
        if environ["REQUEST_METHOD"] == "PUT" and "/ledger/" in environ["PATH_INFO"]:
            self.parts_left -= 1
        time.sleep(self.slow_seconds)
        if self.random.random() < self.share:
            self.num_failed += 1
            faults = [self.reset, self.late, self.unavailable, self.broken]
            if self.hold_seconds:
                faults += [self.held, self.held_late]
            return self.random.choice(faults)(environ, start_response)
        return self.app(environ, start_response)

    def set(self, share: float, hold: float, slow: float, outage: float, parts: float) -> None:
        self.share = share
        self.hold_seconds = hold
        self.slow_seconds = slow
        self.outage_until = time.monotonic() + outage
        self.parts_left = parts

    def reset(self, environ: dict[str, Any], start_response: Any = None) -> Iterable[bytes]:
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return []

    def late(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Execute the request, but lose its response."""
        list(self.app(environ, lambda *_: None))
        return self.reset(environ)

    def held(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Delay the request beyond the client's timeout and never execute it."""
        self.num_paused += 1
        time.sleep(self.hold_seconds)
        return self.reset(environ)

    def held_late(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Execute the request immediately, but delay its response beyond the client's timeout."""
        self.num_paused += 1
        list(self.app(environ, lambda *_: None))
        time.sleep(self.hold_seconds)
        return self.reset(environ)

    def unavailable(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self._error("503 Service Unavailable", "SlowDown", environ, start_response)

    def broken(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self._error("500 Internal Server Error", "InternalError", environ, start_response)

    def _error(
        self, status: str, code: str, environ: dict[str, Any], start_response: Any
    ) -> Iterable[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(status, [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code></Error>".encode()]


class Failed(NamedTuple):
    """Counts of failed requests and of those that were delayed, and whether all requests fail from now on."""

    total: int
    held: int
    all_fail: bool


@dataclass(frozen=True)
class S3Server:
    """A running server."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "access-key-of-the-tests",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
            "AWS_REGION": "us-east-1",
        }

    def uri(self, *names: str) -> str:
        return "/".join([f"s3://{BUCKET}", *names])

    def fail(
        self,
        share: float = 0.0,
        outage: float = 0.0,
        hold: float = 0.0,
        slow: float = 0.0,
        after_ledger_parts: float = math.inf,
    ) -> Failed:
        """Make requests fail from now on, and return the number of failures so far by ``share``."""
        faults = f"share={share}&outage={outage}&hold={hold}&slow={slow}&parts={after_ledger_parts}"
        return self._faults(f"?{faults}", "PUT")

    def failed(self) -> Failed:
        return self._faults("", "GET")

    def _faults(self, query: str, method: str) -> Failed:
        url = f"http://127.0.0.1:{self.port}/_faults{query}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:
            total, held, all_fail = map(int, answer.read().split())
        return Failed(total, held, bool(all_fail))

    def last_key(self) -> str:
        """Return the name of the access key that signed the latest request."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_last_key") as answer:
            return str(answer.read().decode())


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Yield a server in a separate process with an empty bucket; the environment points to it."""
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "support.s3_server"]
    process = subprocess.Popen(
        command, cwd=tests, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    server = S3Server(int(process.stdout.readline()))
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        import boto3

        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield server
    finally:
        process.kill()
        process.wait()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

    app = Faults(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
