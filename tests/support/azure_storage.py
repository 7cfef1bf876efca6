"""Containers for tests, in Microsoft's emulator of Azure Storage on this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from stepscope.store.location import upload_run
from tests.support.buckets import TestBucket, free_port, wait_for_server

_EMULATOR = Path(__file__).with_name("azurite")
"""Its `package-lock.json` pins the emulator; `make test` installs it there."""
_SCRIPT = _EMULATOR / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
_VERSION = "2021-08-06"  # of the REST interface
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one account of the emulator and its public key:
https://learn.microsoft.com/azure/storage/common/storage-connect-azurite"""


class AzureServer:
    """A running emulator.

    Args:
        port: its port on this machine.
    """

    def __init__(self, port: int) -> None:
        self.host = f"http://127.0.0.1:{port}"
        self.endpoint = f"{self.host}/{ACCOUNT}"
        self.sas = _account_sas()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point stepscope to this server."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }


class AzureContainer:
    """An empty container, and a client that is independent of stepscope and its library."""

    def __init__(self, server: AzureServer) -> None:
        self.server = server
        self.name = f"container-{uuid.uuid4().hex}"
        self._request("PUT", restype="container")

    def url(self, key: str = "") -> str:
        return f"az://{self.name}/{key}" if key else f"az://{self.name}"

    def put(self, key: str, content: bytes = b"x") -> None:
        """Write an object."""
        self._request("PUT", key, content)

    def put_run(self, run: Path, key: str) -> str:
        """Upload a run; return its URL."""
        upload_run(run, self.url(key))
        return self.url(key)

    def remove(self, key: str) -> None:
        self._request("DELETE", key)

    def keys(self) -> list[str]:
        listing = ET.fromstring(self._request("GET", restype="container", comp="list"))  # noqa: S314
        return [name.text or "" for name in listing.iterfind("Blobs/Blob/Name")]

    def _request(self, method: str, key: str = "", content: bytes = b"", **query: str) -> bytes:
        path = "/".join([self.name, quote(key)] if key else [self.name])
        request = urllib.request.Request(
            f"{self.server.endpoint}/{path}?{urlencode(query)}&{self.server.sas}",
            content if method == "PUT" else None,
            {"x-ms-version": _VERSION, "x-ms-blob-type": "BlockBlob", "Content-Type": ""},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: bytes = response.read()
            return answer


Storage = TestBucket | AzureContainer


def _account_sas() -> str:
    """Return a signature that permits everything in the account:
    https://learn.microsoft.com/rest/api/storageservices/create-account-sas"""
    fields = {"sp": "rwdlac", "ss": "b", "srt": "sco", "se": "2099-01-01", "sv": _VERSION}
    lines = [ACCOUNT, fields["sp"], fields["ss"], fields["srt"], "", fields["se"], "", "", _VERSION]
    text = "\n".join([*lines, "", ""])  # no encryption scope
    digest = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    return urlencode({**fields, "sig": base64.b64encode(digest).decode()})


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Provide a server for all tests of this process."""
    directory = tmp_path_factory.mktemp("azure")
    log = directory / "log"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    node = shutil.which("node", path=path)
    if node is None or not _SCRIPT.exists():
        pytest.skip("needs azurite: `npm ci` in tests/support/azurite installs it")
    port = free_port()
    command = [node, str(_SCRIPT), "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    # Its check of versions knows only those before its release; the library's is newer.
    command += ["--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command, stdout=file, stderr=file, cwd=directory, start_new_session=True
        ) as process,
    ):
        try:
            wait_for_server(port, process, log)
            yield AzureServer(port)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # `node` may be a script that starts Node.js


@pytest.fixture
def container(
    azure: AzureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AzureContainer:
    """Make an empty container, with the environment for it and an empty cache."""
    for name, value in azure.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return AzureContainer(azure)


@pytest.fixture(params=["bucket", "container"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """Make an empty bucket of S3, and an empty container of Azure."""
    empty: Storage = request.getfixturevalue(request.param)
    return empty
