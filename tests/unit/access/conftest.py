"""The drawn run, opened as users do."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepscope
from stepscope.access import OpenRun
from tests.support.access_run import draw


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn") / "run").write()


@pytest.fixture
def run(path: Path) -> OpenRun:
    return stepscope.open(path)
