"""Fixtures: an empty run, and a writer of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.store import RunWriter, create_run
from tests.support.store_rows import INFO


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    create_run(path, INFO)
    return path


@pytest.fixture
def writer(run: Path) -> Iterator[RunWriter]:
    with RunWriter(run, "n0") as writer:
        yield writer
