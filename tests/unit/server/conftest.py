"""Servers of runs that tests do not change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.server.settings import Limits
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job, import_trace, trace_events

SMALL = Limits(response_s=20.0, grace_s=0.3, response_bytes=3_000_000, worker_bytes=100_000_000)
"""Limits that a test can reach. A busy machine takes seconds to start a worker."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with two runs."""
    root = tmp_path_factory.mktemp("served")
    draw_job(root / "team" / "job")
    import_trace(root / "recorded", trace_events())
    return root


@pytest.fixture(autouse=True)
def _separate_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Served]:
    """Server with default settings."""
    with serving(runs) as served:
        yield served


@pytest.fixture(scope="module")
def misbehaving(runs: Path) -> Iterator[Served]:
    """Server with views that misbehave, and limits that a test can reach."""
    with serving(runs, tasks="tests.support.misbehaving_tasks", limits=SMALL) as served:
        yield served
