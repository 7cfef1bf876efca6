"""What is sent in fewer bytes, and to whom."""

from __future__ import annotations

import asyncio
import gzip
import runpy
from pathlib import Path

import pytest
from starlette.requests import Request

from stepscope.server import static
from stepscope.server.compression import payload, takes_gzip
from tests.support.served import Served

BUILD = Path(__file__).parents[3] / "web" / "build.py"
SCRIPT = b"export const answer = 42;\n" * 400
NAME = "/assets/screen-abc.js"
GZIP = {"Accept-Encoding": "gzip, deflate, br"}


def asking(accepts: str, client: str = "192.0.2.7") -> Request:
    """A request from some machine."""
    headers = [(b"accept-encoding", accepts.encode())]
    return Request({"type": "http", "headers": headers, "client": (client, 50_000)})


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A front end of one script and one small style sheet, compressed as the build does it."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "screen-abc.js").write_bytes(SCRIPT)
    (assets / "small-abc.css").write_bytes(b"main { margin: 0 }")
    runpy.run_path(str(BUILD))["compress"](assets)
    monkeypatch.setattr(static, "web_app", lambda: tmp_path)
    return assets


def test_the_build_compresses_what_is_large_and_once(bundle: Path) -> None:
    names = {path.name for path in bundle.iterdir()}
    assert names == {"screen-abc.js", "screen-abc.js.gz", "small-abc.css"}
    before = (bundle / "screen-abc.js.gz").stat().st_mtime_ns
    runpy.run_path(str(BUILD))["compress"](bundle)
    assert (bundle / "screen-abc.js.gz").stat().st_mtime_ns == before


def test_a_script_is_sent_as_the_browser_can_read_it(server: Served, bundle: Path) -> None:
    plain = server.ask(NAME)
    packed = server.ask(NAME, headers=GZIP)
    assert "content-encoding" not in plain.headers
    assert plain.body == SCRIPT
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == SCRIPT
    assert int(packed.headers["content-length"]) == len(packed.body) < len(SCRIPT) / 10
    assert plain.headers["etag"] != packed.headers["etag"]
    for answer in (plain, packed):
        assert answer.headers["vary"] == "accept-encoding"
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "immutable" in answer.headers["cache-control"]
    assert server.ask(NAME, method="HEAD", headers=GZIP).headers["content-encoding"] == "gzip"


def test_a_small_file_is_sent_as_it_is(server: Served, bundle: Path) -> None:
    answer = server.ask("/assets/small-abc.css", headers=GZIP)
    assert answer.body == b"main { margin: 0 }"
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accepts", "taken"),
    [
        ("gzip", True),
        ("br;q=1.0, GZIP ; q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("identity", False),
        ("", False),
    ],
)
def test_what_a_browser_says_that_it_can_read(accepts: str, taken: bool) -> None:
    assert takes_gzip(asking(accepts)) is taken


@pytest.mark.parametrize(
    ("client", "accepts", "size", "packed"),
    [
        ("192.0.2.7", "gzip", 50_000, True),
        ("192.0.2.7", "gzip", 500, False),
        ("192.0.2.7", "identity", 50_000, False),
        ("127.0.0.1", "gzip", 50_000, False),
        ("::1", "gzip", 50_000, False),
    ],
)
def test_payloads_are_compressed_for_other_machines(
    client: str, accepts: str, size: int, packed: bool
) -> None:
    body = b"1" * size
    answer = asyncio.run(payload(asking(accepts, client), body))
    assert answer.headers["vary"] == "accept-encoding"
    assert ("content-encoding" in answer.headers) is packed
    sent = bytes(answer.body)
    assert (gzip.decompress(sent) if packed else sent) == body
    assert answer.headers["content-length"] == str(len(sent))


def test_streams_and_payloads_leave_at_once_on_this_machine(server: Served) -> None:
    listening = server.events("/api/events", GZIP, run="recorded")
    try:
        assert listening.answer.getheader("content-encoding") is None
        assert listening.next()[0] == "open"
    finally:
        listening.close()
    answer = server.ask("/api/views/insights", headers=GZIP, run="recorded")
    assert len(answer.body) > 8_000
    assert "content-encoding" not in answer.headers
