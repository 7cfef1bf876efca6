"""The site of the documents, in a real browser: no other host, no broken link, and a search."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from tests.support.browsed import IN_A_BROWSER

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [*IN_A_BROWSER, pytest.mark.extended("installs MkDocs")]
ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src"}:
                self.links.append(value or "")
            elif name in {"id", "name"}:
                self.anchors.add(value or "")


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def site() -> Path:
    command = ["make", "--no-print-directory", "docs", f"VENV={sys.prefix}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not (Path(sys.prefix) / "docs" / "ready").exists():
        pytest.skip(f"MkDocs cannot be installed: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return ROOT / "build" / "docs"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.fixture(scope="module", params=["disk", "server"])
def address(site: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "disk":
        yield site.as_uri()
        return
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Handler, directory=site)
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_links_lead_to_pages_and_headings(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 40
    broken = []
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if target.startswith(("https://", "data:")):
                continue
            file = (path.parent / target).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file() or (file in pages and anchor not in pages[file].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_pages_and_search_request_nothing_from_other_hosts(
    site: Path, pages: dict[Path, Page], address: str, browser: Browser
) -> None:
    from playwright.sync_api import expect

    from stepscope.testing.browser import collect_problems

    tab = browser.new_page()
    problems = collect_problems(tab, lambda request: request.url.startswith((address, "data:")))
    for path in pages:
        tab.goto(f"{address}/{path.relative_to(site)}", wait_until="load")
        assert tab.title()
    tab.goto(f"{address}/index.html")
    tab.get_by_role("textbox", name="Search").fill("pageable copies")
    result = tab.locator(".md-search-result__link", has_text="PageableCopies").first
    expect(result).to_be_visible()
    result.click()
    expect(tab).to_have_url(re.compile("rules.html"))
    tab.close()
    assert problems == []
