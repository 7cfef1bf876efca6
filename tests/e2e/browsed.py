"""`stepscope ui` as users start it, and its pages in a real browser."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from under_stepscope import STEPSCOPE

from stepscope.testing.browser import watch

PATIENCE_S = 30.0


@contextmanager
def serving(
    *options: str, cwd: Path | None = None, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The printed address, and the process, which is ended as a terminal does."""
    process = subprocess.Popen(
        [*STEPSCOPE, "ui", "--no-browser", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()


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
        problems = watch(page, lambda request: request.url.startswith(own))
        self._opened.append((page, problems))
        page.goto(self.address + path)
        return page

    def settle(self) -> None:
        """Close the pages of a test; nothing may have gone wrong on them."""
        opened, self._opened = self._opened, []
        for page, problems in opened:
            page.close()
            assert problems == []
