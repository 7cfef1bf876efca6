"""Host memory of drawn runs: view, verdict, watch, terminal and frames. Times in seconds."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from stepscope import access, diagnosis, quantities
from stepscope.cli.writers.live import live_text
from stepscope.cli.writers.verdict import write_verdict
from stepscope.diagnosis.host_memory import COMPILED_CODE, account_for_memory
from stepscope.run import Run
from stepscope.schema import JobState, RuleRecord
from stepscope.testing import RunBuilder
from stepscope.views.job.host_memory import show_host_memory
from stepscope.watch import Observer

GIB, MIB = 1 << 30, 1 << 20
STEP = "forward 400 | backward 500 | optimizer 100"
STEPS = 200
RATE = 2 * MIB
"""Growth per step, which takes a second."""


def draw(path: Path, *, rate: int = RATE, limit: bool = True, state: JobState | None = None) -> Run:
    """Draw a rank of process 1000 with a worker, process 1001, that keeps *rate* a second."""
    run = RunBuilder(path)
    run.rank(0, workers=1).draw(STEP, STEPS)
    worker = run.processes[1].info.pid
    run.metric("process_anonymous_bytes", GIB, device="1000")
    run.metric("process_anonymous_bytes", lambda s: GIB + rate * s, device=str(worker))
    run.metric("process_private_bytes", lambda s: GIB // 2 + rate * s, device=str(worker))
    run.metric("process_shared_bytes", lambda s: GIB // 2 - MIB * s, device=str(worker))
    run.metric("job_memory_bytes", lambda s: 2 * GIB + rate * s)
    run.metric("memory_available_bytes", lambda s: 40 * GIB - rate * s)
    run.metric("cgroup_oom_kills", lambda s: 3 + (s > 100))
    if limit:
        run.metric("cgroup_memory_used_bytes", lambda s: 2 * GIB + rate * s)
        run.metric("cgroup_memory_limit_bytes", 4 * GIB)
    if state is not None:
        run.status(state)
    return run.open()


def test_growth_its_process_and_when_the_limit_is_full(tmp_path: Path) -> None:
    run = draw(tmp_path / "run", state=JobState.IN_PROGRESS)
    payload = show_host_memory(run)
    (node,) = payload.nodes
    assert (payload.missing, payload.holders) == (None, [])
    assert node.is_growing
    assert node.growth is not None
    assert node.growth.bytes_per_step == pytest.approx(RATE, rel=1e-3)
    assert node.growth.bytes_per_hour == pytest.approx(3600 * RATE, rel=1e-3)
    assert (node.limit, node.limit_bytes) == ("container", 4 * GIB)
    assert node.forecast is not None
    full_at = 2 * GIB / RATE  # 2 GiB are left at the start
    assert node.forecast.full_at_step == pytest.approx(full_at, rel=0.02)
    assert node.forecast.full_in_ns == pytest.approx((full_at - STEPS) * 1e9, rel=0.02)
    # The trend goes on to the limit, from where it ends.
    seconds = (node.forecast.trend_end_bytes - 2 * GIB) / RATE
    assert node.forecast.trend_end_after_ns == pytest.approx(seconds * 1e9, abs=2e9)
    assert node.oom_kill_count == 1
    rank, worker = sorted(node.processes, key=lambda process: process.pid)
    assert (rank.name, rank.growth) == ("rank 0", None)
    assert worker.growth is not None
    assert worker.growth_share_ratio == pytest.approx(1)
    assert [series.name for series in node.series] == ["job", worker.name]
    start = "Host memory of the job grows by 2 MiB per step (2 MiB to 2 MiB)"
    assert node.lines[0].startswith(start)
    assert f"(100% in {worker.name})" in node.lines[0]
    assert node.lines[1].startswith("4 GiB (the container's limit) are full at step 1,0")
    assert "Pages that were shared at the fork became private" in node.lines[2]


def test_the_verdict_and_watch_say_it_first(tmp_path: Path) -> None:
    run = draw(tmp_path / "run", state=JobState.IN_PROGRESS)
    verdict = diagnosis.diagnose(run)
    assert verdict.memory is not None
    assert verdict.memory.is_growing
    recompiled = account_for_memory(run, "recompilation")
    assert recompiled is not None
    assert set(recompiled.lines) - set(verdict.memory.lines) == {COMPILED_CODE}
    out = Console(file=io.StringIO(), width=300)
    write_verdict(out, verdict)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert text.index("Host memory of the job grows") < text.index(verdict.headline[:20])
    record = RuleRecord(progress="running", end_ns=None, scan_ns=1, written_ns=0, findings=[])
    view = Observer(run.reader).observe(record)
    out.print(live_text(view))
    shown = out.file.getvalue()  # type: ignore[attr-defined]
    assert "memory   Host memory of the job grows by" in shown


def test_growth_outside_of_processes_is_told(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank(0, workers=9).draw(STEP, STEPS)
    builder.metric("process_anonymous_bytes", GIB, device="1000")
    for process in builder.processes[1:]:
        process.info.facts.append(
            {"fact": "worker_process", "target": "preview.render", "trains": False}
        )
        builder.metric("process_anonymous_bytes", MIB, device=str(process.info.pid))
    builder.metric("job_memory_bytes", lambda s: GIB + RATE * s)
    builder.metric("shared_memory_used_bytes", lambda s: RATE * s)
    builder.metric("job_process_count", lambda s: 1 + s // 10)
    (node,) = show_host_memory(builder.open()).nodes
    # The last sample is taken half a second before the end.
    shared = quantities.memory(RATE * (STEPS - 0.5))
    assert node.lines[-2:] == [
        f"Files in /dev/shm grew by {shared}.",
        "The number of processes rose from 1 to 20; 9 of them run preview.render and do not "
        "end. Let each end and call join() on it, or give the work to one pool of processes.",
    ]


def test_a_job_that_does_not_grow_has_its_peak(tmp_path: Path) -> None:
    run = draw(tmp_path / "run", rate=0, limit=False, state=JobState.COMPLETED)
    verdict = diagnosis.diagnose(run)
    assert verdict.memory is not None
    assert not verdict.memory.is_growing
    assert verdict.memory.headline == (
        "Host memory of the job did not grow steadily; peak 2 GiB of 64 GiB (the memory of the "
        "machine)."
    )
    assert verdict.memory.full_at_step is None


def test_a_run_without_samples_says_so(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank(0).draw(STEP, 30)
    run = builder.open()
    assert "not sampled by kind" in (show_host_memory(run).missing or "")
    assert diagnosis.diagnose(run).memory is None


def test_processes_as_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "run"
    draw(path)
    run = access.open(str(path))
    rows = run.host_memory_processes().rows()
    assert [row["growth_bytes_per_hour"] is None for row in rows] == [False, True]
    assert rows[0]["peak_bytes"] == pytest.approx(GIB + STEPS * RATE, rel=0.01)
    assert run.host_memory_processes().arrow().num_rows == 2
    (node,) = run.host_memory()
    assert node.growth.is_growing


def test_growth_that_no_container_holds_is_said(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    rank = builder.rank(0)
    rank.draw(STEP, STEPS)
    rank.info.facts.append(
        {
            "fact": "memory_census",
            "request": 1,
            "unit": "step",
            "count": 20,
            "duration_ns": 20_000_000_000,
            "pauses_ns": [1, 1],
            "object_count": 1000,
            "is_sampled": False,
            "resident_bytes": GIB,
            "holders": [],
            "anonymous_growth_bytes": 40 * MIB,
            "private_growth_bytes": 40 * MIB,
        }
    )
    builder.metric("process_anonymous_bytes", lambda s: GIB + RATE * s, device="1000")
    builder.metric("job_memory_bytes", lambda s: GIB + RATE * s)
    verdict = diagnosis.diagnose(builder.open())
    assert verdict.memory is not None
    assert verdict.memory.lines[-1] == (
        "No container of the job holds 100% of what rank 0 grew by meanwhile: memory of C or C++ "
        "code, or freed and kept by the allocator."
    )
