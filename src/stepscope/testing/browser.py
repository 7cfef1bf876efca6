"""Real browser for pages: Debian's Chromium without a GPU, driven by Playwright.

This module needs Playwright, which belongs to the extra `test`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

CHROMIUM = shutil.which("chromium")
"""Path of the browser; None where there is none."""
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",  # otherwise software rendering of a canvas takes ten times as long
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Start a headless browser, with `arguments` in addition to those that every test needs."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[*_ARGUMENTS, *arguments])
        try:
            yield browser
        finally:
            browser.close()


def _is_problem(message: ConsoleMessage) -> bool:
    """Exclude the messages of software rendering about screenshots of WebGL."""
    return "GL Driver Message" not in message.text


def collect_problems(page: Page, is_allowed: Callable[[Request], bool]) -> list[str]:
    """Collect the problems of a page: errors, messages, requests that are not allowed."""
    problems: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if _is_problem(message):
            problems.append(message.text)

    def on_request(request: Request) -> None:
        if not is_allowed(request):
            problems.append(request.url)

    page.on("console", on_console)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", on_request)
    return problems
