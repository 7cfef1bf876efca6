"""Pages of `stepscope ui` in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from stepscope.testing.browser import CHROMIUM, collect_problems

IN_A_BROWSER = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
"""Marks of a test module that uses a browser."""


class Ui:
    """Served directory and its pages.

    Args:
        root: the directory.
        address: URL of the server.
        browser: browser that opens the pages.
    """

    def __init__(self, root: Path, address: str, browser: Browser) -> None:
        assert address.startswith("http://127.0.0.1:")
        self.root = root
        self.address = address.partition("?")[0].rstrip("/")
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
        page.goto(self.address + path)
        return page

    def settle(self) -> None:
        """Close the pages of a test, and check that they had no problems."""
        pages, self._opened = self._opened, []
        for page, problems in pages:
            page.close()
            assert problems == []
