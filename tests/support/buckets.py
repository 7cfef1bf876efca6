"""A bucket of the test's own, in an S3 server that runs on this machine."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepscope.store import layout
from stepscope.store.upload import upload_run

PATIENCE_S = 60
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "no secret"}
_REGION = "us-east-1"
_REQUEST = re.compile(r'"(?:\x1b\[[\d;]*m)?([A-Z]+) (\S+) HTTP/1\.1(?:\x1b\[[\d;]*m)?" (\d+)')


class Request(NamedTuple):
    """What the server was asked."""

    method: str
    path: str
    """With what follows the question mark."""
    status: int

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.path

    @property
    def is_segment(self) -> bool:
        """Whether it fetched rows."""
        return self.method == "GET" and ".parquet" in self.path and not self.is_listing


class S3Server:
    """The server."""

    def __init__(self, endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self._log = log

    @property
    def environment(self) -> dict[str, str]:
        """What makes stepscope ask this server."""
        return {
            **_CREDENTIALS,
            "AWS_REGION": _REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def client(self) -> Any:
        """A client that knows neither stepscope nor its library."""
        import boto3  # other tests need not wait for it

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=_REGION,
            aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    @contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """What is asked while the block runs."""
        before = len(self._requests())
        found: list[Request] = []
        yield found
        found += self._requests()[before:]

    def _requests(self) -> list[Request]:
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
        """An object of whatever name."""
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def keys(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return [each["Key"] for each in found]

    def put_run(self, run: Path, key: str) -> str:
        """A copy of a run, and its URL."""
        upload_run(run, self.url(key))
        return self.url(key)

    def put_files(self, run: Path, key: str) -> None:
        """What has changed or is new in a run, as a tool that mirrors directories does it."""
        for path in sorted(run.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(run)}", path.read_bytes())

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def remove_run(self, key: str) -> None:
        for each in self.keys():
            if each.startswith(f"{key}/"):
                self.remove(each)
        assert f"{key}/{layout.RUN_KEY}" not in self.keys()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server for all tests of this process; its buckets are no secret."""
    log = tmp_path_factory.mktemp("s3") / "log"
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            _wait_for(port, process, log)
            yield S3Server(f"http://127.0.0.1:{port}", log)
        finally:
            process.kill()


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestBucket:
    """An empty bucket, the environment that leads there, and no copies from it yet."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return TestBucket(s3)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, "the server does not answer"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
