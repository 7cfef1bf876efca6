"""Pages of `stepscope ui` in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from stepscope.testing.browser import CHROMIUM, collect_problems

expect.set_options(timeout=30_000)  # tests run side by side on few cores

IN_A_BROWSER = [pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
"""Marks of a test module that uses a browser."""
_WEB = Path(__file__).parents[2] / "web"
_AXE = _WEB / "node_modules" / "axe-core" / "axe.min.js"
_REGISTRY = _WEB / "src" / "app" / "screens.ts"
SCREENS = re.findall(r'^  \{ name: "(.+?)"', _REGISTRY.read_text(), flags=re.MULTILINE)
"""Names of the screens of a run."""
assert "overview" in SCREENS, f"{_REGISTRY} has one entry per line"

_COLOR_RULES = ["color-contrast", "link-in-text-block"]


class Ui:
    """Served directory and its pages.

    Args:
        root: the directory.
        address: URL that the server printed, with its token.
        browser: browser that opens the pages.
    """

    def __init__(self, root: Path, address: str, browser: Browser) -> None:
        assert address.startswith("http://127.0.0.1:")
        self.root = root
        self.address = address.partition("?")[0].rstrip("/")
        self.printed_address = address
        self._browser = browser
        self._opened: list[tuple[Page, list[str]]] = []

    def open(self, path: str, *, scheme: str = "light", **options: Any) -> Page:
        """Open a page; its problems fail the test at its end."""
        page = self._browser.new_page(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": 1280, "height": 860},
            **options,
        )
        allowed = (self.address + "/", "blob:", "data:")
        problems = collect_problems(page, lambda request: request.url.startswith(allowed))
        self._opened.append((page, problems))
        page.context.request.get(self.printed_address)  # for the cookie
        page.goto(self.address + path)
        return page

    def settle(self, *expected: str) -> None:
        """Close the pages of a test, and check that they had no problems.

        Args:
            expected: parts of messages that the test causes.
        """
        pages, self._opened = self._opened, []
        for page, problems in pages:
            page.close()
            unexpected = [text for text in problems if not any(part in text for part in expected)]
            assert not unexpected, unexpected


SETTLED = """() => document.querySelector('main .skeleton, main [aria-busy=true]') === null
    && document.querySelector('main')?.children.length > 0"""


def settled(page: Page) -> None:
    """Wait until no response is pending, and no other is requested in the next moment."""
    while True:
        page.wait_for_function(SETTLED)
        page.wait_for_timeout(150)
        if page.evaluate(SETTLED):
            return


def assert_drawn(page: Page, *, only_colors: bool = False) -> None:
    """Check that a screen shows something, no error, and is accessible."""
    settled(page)
    assert page.locator("main [role=alert]").count() == 0, page.inner_text("main")
    assert len(page.inner_text("main")) > 20
    assert_accessible(page, only_colors=only_colors)


def assert_accessible(page: Page, *, only_colors: bool = False) -> None:
    """Check that the page fits its width, and that axe finds nothing serious.

    Args:
        only_colors: what has been checked before differs in its colors alone.
    """
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0, "the page scrolls sideways"
    assert _AXE.exists(), "npm ci in web/ brings it"
    page.evaluate(
        _AXE.read_text()
    )  # as the console would: the page's policy forbids script elements
    rules = {"runOnly": _COLOR_RULES} if only_colors else {}
    results = page.evaluate(
        "options => axe.run(document, options)", {"resultTypes": ["violations"], **rules}
    )
    serious = [
        (opened["id"], [node["html"][:200] for node in opened["nodes"][:3]])
        for opened in results["violations"]
        if opened["impact"] in {"serious", "critical"}
    ]
    assert serious == []


def screen(name: str, run: str, **values: str) -> str:
    """Return the path of a screen."""
    more = "".join(f"&{key}={quote(value)}" for key, value in values.items())
    return f"/{name}?run={quote(run)}{more}"


def drawn(page: Page) -> None:
    """Wait until the timeline shows its slices."""
    page.wait_for_function("() => window.__stepscopeTimeline?.ready")


def cells(page: Page, testid: str) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of a table as they read."""
    table = page.locator(f'[data-testid="{testid}"] table').first
    table.wait_for()  # a fold builds its content after the click that opens it
    headings = table.locator("thead th").all_inner_texts()
    rows = table.locator("tbody tr:not([aria-hidden])").evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return [text.rstrip(" ▼▲").lower() for text in headings], rows
