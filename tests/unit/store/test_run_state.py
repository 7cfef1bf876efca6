"""Heartbeats, revisions and links of run directories."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from stepscope.errors import NotARunError, UsageError
from stepscope.run import job_state
from stepscope.schema import JobState, JobStatus
from stepscope.store import FOLLOW_LINKS_VARIABLE, Results, RunWriter, open_run, revision_of
from tests.support.served_runs import draw_job
from tests.support.shared_runs import SharedJob
from tests.support.store_rows import spans
from tests.support.waiting import wait_until

YEAR_S = 365 * 86400.0
ELAPSED_S = 300.0


def write(
    path: Path, *, clock_s: float, age_s: float, is_copy: bool = False, server_s: float = 0.0
) -> JobStatus:
    """Write a run whose node has sent a heartbeat some time ago, by a clock that differs, to a
    file server whose clock differs by `server_s`.

    Returns:
        The status as it is read.
    """
    SharedJob(path)
    now_s = time.time() - age_s
    status = JobStatus(
        state=JobState.IN_PROGRESS,
        heartbeat_ns=round(1e9 * (now_s + clock_s)),
        started_ns=round(1e9 * (now_s + clock_s - ELAPSED_S)),
        elapsed_ns=round(1e9 * ELAPSED_S),
    )
    with RunWriter(path, "n") as writer:
        writer.put_status(status)
    written_s = now_s + server_s if not is_copy else time.time()
    os.utime(path / "nodes/n/status.json", (written_s, written_s))
    created_s = written_s if is_copy else written_s - ELAPSED_S - 1
    os.utime(path / "run.json", (created_s, created_s))
    return open_run(path).statuses()["n"]


@pytest.mark.parametrize("clock_s", [-YEAR_S, 0.0, YEAR_S])
def test_a_node_runs_whatever_its_clock_says(tmp_path: Path, clock_s: float) -> None:
    for more_s in (-40.0, 0.0, 40.0):
        status = write(tmp_path / str(more_s), clock_s=clock_s + more_s, age_s=1)
        assert not status.is_silent(time.time_ns())
    status = write(tmp_path / "silent", clock_s=clock_s, age_s=120)
    assert status.is_silent(time.time_ns())
    assert time.time_ns() - status.heartbeat_ns == pytest.approx(120e9, abs=30e9)


@pytest.mark.parametrize("server_s", [-YEAR_S, -120.0, 120.0, YEAR_S])
def test_the_clock_of_the_file_server_does_not_matter(tmp_path: Path, server_s: float) -> None:
    for age_s, is_silent in ((1.0, False), (60.0, True)):
        path = tmp_path / str(age_s)
        status = write(path, clock_s=0.0, age_s=age_s, server_s=server_s)
        assert status.is_silent(time.time_ns()) == is_silent


def test_a_copy_of_a_run_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert write(path, clock_s=0, age_s=YEAR_S, is_copy=True).is_silent(time.time_ns())
    assert job_state(open_run(path).statuses().values()) is JobState.IN_PROGRESS  # its last state


@pytest.fixture
def drawn_run(tmp_path: Path) -> Path:
    return draw_job(tmp_path / "run", 3)


def wait_for_clock_tick(probe: Path) -> None:
    """Wait until the file system stamps a later time than now."""

    def touch() -> int:
        probe.touch()
        return probe.stat().st_mtime_ns

    start_ns = touch()
    wait_until(lambda: touch() > start_ns)


def test_every_change_gives_a_new_revision(drawn_run: Path, tmp_path: Path) -> None:
    revisions = {revision_of(drawn_run)}
    assert {revision_of(drawn_run)} == revisions
    node, findings, spans = (
        drawn_run / "nodes" / "n0",
        drawn_run / "findings",
        drawn_run / "tables" / "spans" / "n0",
    )
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
        revisions.add(revision_of(drawn_run))
        assert len(revisions) == number
    assert Results(str(drawn_run), "maker").put("verdict", b"{}")
    assert revision_of(drawn_run) in revisions
    shutil.rmtree(drawn_run)
    with pytest.raises(NotARunError, match="is not a run, or it was removed"):
        revision_of(drawn_run)


def test_a_run_without_heartbeats_gets_a_new_revision(
    drawn_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision, now = revision_of(drawn_run), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 20 * 10**9)
    assert revision_of(drawn_run) == revision
    monkeypatch.setattr(time, "time_ns", lambda: now + 40 * 10**9)
    assert revision_of(drawn_run) != revision


@pytest.fixture
def linked_run(run: Path, tmp_path: Path) -> Path:
    """A run whose files are links into a cache, as DVC leaves them."""
    with RunWriter(run, "n0") as writer:
        writer.append("spans", spans([0, 1]))
    cache = tmp_path / "cache"
    cache.mkdir()
    for number, path in enumerate(sorted(run.rglob("*"))):
        if path.is_file():
            target = path.rename(cache / f"{number}{path.suffix}")
            path.symlink_to(target)
    return run


def test_links_to_files_are_followed_on_request(
    linked_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the links, the run would be one that recorded nothing."""
    manifest = linked_run / "run.json"
    refusal = r"so it is not followed in a run. If you trust the run, set STEPSCOPE_FOLLOW_LINKS=1"
    with pytest.raises(UsageError, match=refusal):
        open_run(linked_run)
    content = manifest.read_bytes()
    manifest.unlink()
    manifest.write_bytes(content)
    with pytest.raises(UsageError, match=refusal):
        open_run(linked_run).table("spans")
    with pytest.raises(UsageError, match=refusal):
        revision_of(linked_run)
    monkeypatch.setenv(FOLLOW_LINKS_VARIABLE, "1")
    assert len(open_run(linked_run).table("spans")["depth"]) == 2
    assert revision_of(linked_run)


def test_links_to_directories_and_to_nothing_are_never_followed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLLOW_LINKS_VARIABLE, "1")
    link = run / "nodes" / "again"
    link.parent.mkdir()
    for target in (run / "nodes", tmp_path / "nothing", Path("/dev/zero"), link):
        link.symlink_to(target)
        with pytest.raises(UsageError, match="is a symbolic link that leads to no file"):
            open_run(run).statuses()
        link.unlink()
