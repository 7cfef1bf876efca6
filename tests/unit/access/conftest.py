"""The drawn run, opened as users do."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn_run import draw

import stepscope
from stepscope.access import Run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn") / "run").write()


@pytest.fixture
def run(path: Path) -> Run:
    return stepscope.open(path)
