"""The drawn run, opened as users do."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepscope
from stepscope.access import OpenRun
from tests.support.access_run import draw
from tests.support.shared_folder import SharedFolder


@pytest.fixture(scope="session")
def path(shared_folder: SharedFolder) -> Path:
    return shared_folder.make("access", lambda path: draw(path).write())


@pytest.fixture(scope="session")
def run(path: Path) -> OpenRun:
    return stepscope.open(path)
