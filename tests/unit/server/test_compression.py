"""Compressed responses, and the clients that get them."""

from __future__ import annotations

import asyncio
import gzip
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from stepscope.server.requests import accepts_gzip, json_response
from tests.support.served import Served, serving

BUILD = Path(__file__).parents[3] / "web" / "build.py"
SCRIPT = b"export const response = 42;\n" * 400
NAME = "/assets/screen-abc.js"
GZIP = {"Accept-Encoding": "gzip, deflate, br"}


def make_request(accepted: str, client: str = "192.0.2.7") -> Request:
    """Create a request from another machine."""
    headers = [(b"accept-encoding", accepted.encode())]
    return Request({"type": "http", "headers": headers, "client": (client, 50_000)})


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Front end of one script and one small style sheet, compressed by the build."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "screen-abc.js").write_bytes(SCRIPT)
    (assets / "small-abc.css").write_bytes(b"main { margin: 0 }")
    runpy.run_path(str(BUILD))["compress"](assets)
    monkeypatch.setattr("stepscope.assets.web_app", lambda: tmp_path)
    return assets


@pytest.fixture
def with_bundle(runs: Path, bundle: Path) -> Iterator[Served]:
    with serving(runs) as served:
        yield served


def test_the_build_compresses_large_files_once(bundle: Path) -> None:
    names = {path.name for path in bundle.iterdir()}
    assert names == {"screen-abc.js", "screen-abc.js.gz", "small-abc.css"}
    mtime_ns = (bundle / "screen-abc.js.gz").stat().st_mtime_ns
    runpy.run_path(str(BUILD))["compress"](bundle)
    assert (bundle / "screen-abc.js.gz").stat().st_mtime_ns == mtime_ns


def test_a_script_is_sent_in_an_accepted_encoding(with_bundle: Served) -> None:
    plain = with_bundle.request(NAME)
    compressed = with_bundle.request(NAME, headers=GZIP)
    assert "content-encoding" not in plain.headers
    assert plain.body == SCRIPT
    assert compressed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(compressed.body) == SCRIPT
    assert int(compressed.headers["content-length"]) == len(compressed.body) < len(SCRIPT) / 10
    assert plain.headers["etag"] != compressed.headers["etag"]
    for response in (plain, compressed):
        assert response.headers["vary"] == "accept-encoding"
        assert response.headers["content-type"].startswith("text/javascript")
        assert "immutable" in response.headers["cache-control"]
    head = with_bundle.request(NAME, method="HEAD", headers=GZIP)
    assert head.headers["content-encoding"] == "gzip"


def test_a_cached_script_is_not_sent_again(with_bundle: Served) -> None:
    for headers in ({}, GZIP):
        first = with_bundle.request(NAME, headers=headers)
        validator = {"If-None-Match": first.headers["etag"]}
        again = with_bundle.request(NAME, headers=headers | validator)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["cache-control"] == first.headers["cache-control"]


def test_a_small_file_is_not_compressed(with_bundle: Served) -> None:
    response = with_bundle.request("/assets/small-abc.css", headers=GZIP)
    assert response.body == b"main { margin: 0 }"
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip", True),
        ("br;q=1.0, GZIP ; q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("identity", False),
        ("", False),
    ],
)
def test_accepted_encodings(accepted: str, expected: bool) -> None:
    assert accepts_gzip(make_request(accepted)) is expected


@pytest.mark.parametrize(
    ("client", "accepted", "size", "is_compressed"),
    [
        ("192.0.2.7", "gzip", 50_000, True),
        ("192.0.2.7", "gzip", 500, False),
        ("192.0.2.7", "identity", 50_000, False),
        ("127.0.0.1", "gzip", 50_000, False),
        ("::1", "gzip", 50_000, False),
    ],
)
def test_payloads_are_compressed_for_other_machines(
    client: str, accepted: str, size: int, is_compressed: bool
) -> None:
    body = b"1" * size
    response = asyncio.run(json_response(make_request(accepted, client), body))
    assert response.headers["vary"] == "accept-encoding"
    assert ("content-encoding" in response.headers) is is_compressed
    content = bytes(response.body)
    assert (gzip.decompress(content) if is_compressed else content) == body
    assert response.headers["content-length"] == str(len(content))


def test_streams_and_payloads_are_not_compressed_on_this_machine(server: Served) -> None:
    events = server.events("/api/events", GZIP, run="recorded")
    try:
        assert events.response.getheader("content-encoding") is None
        assert events.next()[0] == "open"
    finally:
        events.close()
    response = server.request("/api/views/insights", headers=GZIP, run="recorded")
    assert len(response.body) > 8_000
    assert "content-encoding" not in response.headers
