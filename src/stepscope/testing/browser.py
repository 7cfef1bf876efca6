"""A real browser for pages: Debian's Chromium without a GPU, driven by Playwright.

Whoever imports this has Playwright: it belongs to the extra `test`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

CHROMIUM = shutil.which("chromium")
"""None where there is no browser."""
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",  # with GPU flags, software rendering of a canvas takes ten times as long
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """A headless browser, with more arguments than those that every test needs."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[*_ARGUMENTS, *arguments])
        try:
            yield browser
        finally:
            browser.close()


def _matters(message: ConsoleMessage) -> bool:
    """Software rendering tells of its own work whenever a picture of WebGL is taken."""
    return "GL Driver Message" not in message.text


def watch(page: Page, allowed: Callable[[Request], bool]) -> list[str]:
    """Collects what goes wrong on a page: errors, messages, requests that are not allowed."""
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if _matters(message) else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if allowed(request) else problems.append(request.url))
    return problems
