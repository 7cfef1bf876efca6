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
"""Marks of a module whose tests drive one."""


class Ui:
    """A served directory, and pages of it.

    Args:
        root: the directory.
        address: of the server, with a slash at its end.
        browser: that opens the pages.
    """

    def __init__(self, root: Path, address: str, browser: Browser) -> None:
        assert address.startswith("http://127.0.0.1:")
        self.root = root
        self.address = address.partition("?")[0].rstrip("/")
        self._browser = browser
        self._opened: list[tuple[Page, list[str]]] = []

    def open(self, path: str, *, scheme: str = "light", **more: Any) -> Page:
        """A new page at a path; what goes wrong on it fails the test at its end."""
        page = self._browser.new_page(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": 1280, "height": 860},
            **more,
        )
        own = (self.address + "/", "blob:", "data:")
        problems = collect_problems(page, lambda request: request.url.startswith(own))
        self._opened.append((page, problems))
        page.goto(self.address + path)
        return page

    def settle(self) -> None:
        """Close the pages of a test; nothing may have gone wrong on them."""
        opened, self._opened = self._opened, []
        for page, problems in opened:
            page.close()
            assert problems == []
