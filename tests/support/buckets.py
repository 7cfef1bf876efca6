"""Buckets for tests, in an S3 server on this machine."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepscope.store import layout
from stepscope.store.location import upload_run
from tests.support.waiting import wait_until

START_TIMEOUT_S = 60
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "no secret"}
_REGION = "us-east-1"
_SERVER = """
import sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

def serve_one_at_a_time(environ, start_response):
    with lock:
        return application(environ, start_response)

run_simple("127.0.0.1", int(sys.argv[1]), serve_one_at_a_time, threaded=True)
"""
"""moto checks a condition and writes the object in two steps; a real store does both at once."""
_REQUEST = re.compile(r'"(?:\x1b\[[\d;]*m)?([A-Z]+) (\S+) HTTP/1\.1(?:\x1b\[[\d;]*m)?" (\d+)')


class Request(NamedTuple):
    """One request to the server."""

    method: str
    path: str
    """Path with the query string."""
    status: int

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.path

    @property
    def is_segment(self) -> bool:
        """True if the request fetched rows."""
        return self.method == "GET" and ".parquet" in self.path and not self.is_listing


class S3Server:
    """A running S3 server."""

    def __init__(self, endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self._log = log

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point stepscope to this server."""
        return {
            **_CREDENTIALS,
            "AWS_REGION": _REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def client(self) -> Any:
        """Make a client that is independent of stepscope and its library."""
        import boto3  # slow to import, and not needed by other tests

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=_REGION,
            aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    @contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """Collect the requests during a block."""
        before = len(self._read_requests())
        requests: list[Request] = []
        yield requests
        requests += self._read_requests()[before:]

    def _read_requests(self) -> list[Request]:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return [Request(m[1], m[2], int(m[3])) for m in _REQUEST.finditer(text)]


class TestBucket:
    """An empty bucket."""

    __test__ = False

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.name = f"bucket-{uuid.uuid4().hex}"
        self.client = server.client()
        self.client.create_bucket(Bucket=self.name)

    def url(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}" if key else f"s3://{self.name}"

    def put(self, key: str, content: bytes = b"x") -> None:
        """Write an object."""
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def keys(self) -> list[str]:
        entries = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return [entry["Key"] for entry in entries]

    def put_run(self, run: Path, key: str) -> str:
        """Upload a run; return its URL."""
        upload_run(run, self.url(key))
        return self.url(key)

    def put_files(self, run: Path, key: str) -> None:
        """Copy the files of a run, as a directory mirroring tool does."""
        for path in sorted(run.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(run)}", path.read_bytes())

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def remove_run(self, key: str) -> None:
        for run_key in self.keys():
            if run_key.startswith(f"{key}/"):
                self.remove(run_key)
        assert f"{key}/{layout.RUN_KEY}" not in self.keys()


@contextmanager
def s3_server(log: Path) -> Iterator[S3Server]:
    """Run a server that writes its log to a file."""
    port = free_port()
    command = [sys.executable, "-c", _SERVER, str(port)]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            wait_for_server(port, process, log)
            yield S3Server(f"http://127.0.0.1:{port}", log)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Provide a server for all tests of this process."""
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestBucket:
    """Make an empty bucket, with the environment for it and an empty cache."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return TestBucket(s3)


def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_server(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server accepts connections; fail with its log if it ends before."""

    def accepts_connections() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    wait_until(
        accepts_connections, timeout_s=START_TIMEOUT_S, waiting_for="an answer of the server"
    )
