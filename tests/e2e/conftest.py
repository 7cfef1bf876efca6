"""Directories served by `stepscope ui`, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.browsed import Ui


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser; its event loop would be in the way of other modules."""
    from stepscope.testing.browser import chromium

    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def serve(browser: Browser) -> Iterator[Callable[..., Ui]]:
    """Serve directories until the tests of the module have ended."""
    from tests.support.browsed import Ui
    from tests.support.under_stepscope import serving

    servers = []

    def start(root: Path, *options: str, **environment: str) -> Ui:
        server = serving(str(root), "--port", "0", *options, **environment)
        address, process = stack.enter_context(server)
        servers.append(process)
        return Ui(root, address, browser)

    with ExitStack() as stack:
        yield start
    assert [server.returncode for server in servers] == [0] * len(servers)


@pytest.fixture
def ui(served: Ui) -> Iterator[Ui]:
    """Provide what the fixture `served` of a module serves; pages are closed after each test."""
    yield served
    served.settle()
