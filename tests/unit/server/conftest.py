"""Servers of runs that tests leave as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.server.settings import Limits
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job, import_trace, recording

SMALL = Limits(answer_s=2.0, grace_s=0.3, answer_bytes=3_000_000, worker_bytes=100_000_000)
"""Limits that a test can reach."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with runs."""
    place = tmp_path_factory.mktemp("served")
    draw_job(place / "team" / "job")
    import_trace(place / "recorded", recording())
    return place


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Served]:
    """One with nothing special."""
    with serving(runs) as served:
        yield served


@pytest.fixture
def odd(runs: Path) -> Iterator[Served]:
    """One whose views may misbehave, with limits that a test can reach."""
    with serving(runs, tasks="tests.support.odd_tasks", limits=SMALL) as served:
        yield served
