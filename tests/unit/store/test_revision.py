"""Revisions of runs: a new one for every change."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from stepscope.errors import NotARunError
from stepscope.store import revision_of
from tests.support.served_runs import draw_job
from tests.support.waiting import wait_until


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return draw_job(tmp_path / "run", 3)


def wait_for_clock_tick(probe: Path) -> None:
    """Wait until the file system stamps a later time than now."""

    def touch() -> int:
        probe.touch()
        return probe.stat().st_mtime_ns

    start_ns = touch()
    wait_until(lambda: touch() > start_ns)


def test_every_change_gives_a_new_revision(run: Path, tmp_path: Path) -> None:
    revisions = {revision_of(run)}
    assert {revision_of(run)} == revisions
    node, findings, spans = run / "nodes" / "n0", run / "findings", run / "tables" / "spans" / "n0"
    changes = [
        (node / "new").touch,
        lambda: (node / "new").rename(node / "status.json"),
        findings.mkdir,
        (findings / "rules.json").touch,
        (spans / "x.parquet").touch,
        (spans / "x.parquet").unlink,
    ]
    for number, change in enumerate(changes, 2):
        wait_for_clock_tick(tmp_path / "probe")
        change()
        revisions.add(revision_of(run))
        assert len(revisions) == number
    shutil.rmtree(run)
    with pytest.raises(NotARunError, match="is not a run, or it was removed"):
        revision_of(run)


def test_a_run_without_heartbeats_gets_a_new_revision(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision, now = revision_of(run), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 20 * 10**9)
    assert revision_of(run) == revision
    monkeypatch.setattr(time, "time_ns", lambda: now + 40 * 10**9)
    assert revision_of(run) != revision
