"""Waiting for data of a growing run: what is there, what comes, and what never will."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.cli import root
from stepscope.errors import JobEndedError, NotARunError, UsageError, WaitTimeoutError
from stepscope.schema import JobState
from stepscope.testing import RunBuilder
from tests.support.access_run import STEPS
from tests.support.debugger_files import DebuggerOutput, sample
from tests.support.kineto_files import trace, training

pytestmark = pytest.mark.seed("DBU-01")


def growing(tmp_path: Path, *, heartbeat_ns: int | None = None) -> OpenRun:
    """Return a run whose job is still in progress, with samples and without spans."""
    builder = RunBuilder(tmp_path / "run").metric("cpu_busy_ratio", 0.5)
    builder.rank(0).draw("wait 1000")
    now_ns = time.time_ns() if heartbeat_ns is None else heartbeat_ns
    builder.status(JobState.IN_PROGRESS, heartbeat_ns=now_ns)
    return stepscope.open(builder.write())


def test_data_that_is_there(run: OpenRun) -> None:
    assert run.wait_for_system_metrics(timeout_s=0) is run
    run.wait_for_system_metrics(["gpu_busy_ratio", "memory_used_bytes"], timeout_s=0)
    run.wait_for_spans(timeout_s=0).wait_for_spans(re.compile("forward|backward"), timeout_s=0)
    run.wait_for_steps(STEPS, timeout_s=0).wait_for_end(timeout_s=0)
    assert run.state == "Completed"


def test_a_job_that_ended_before(run: OpenRun) -> None:
    start = r"The job drawn has ended \(Completed\) and has "
    with pytest.raises(JobEndedError, match=start + rf"{STEPS} complete steps of {STEPS + 1}\."):
        run.wait_for_steps(STEPS + 1)
    with pytest.raises(JobEndedError, match=start + r"no span of checkpoint\."):
        run.wait_for_spans(["forward", "checkpoint"])
    with pytest.raises(JobEndedError, match=start + r"no sample of cpu_iowait_ratio\."):
        run.wait_for_system_metrics("cpu_iowait_ratio")
    with pytest.raises(UsageError, match="no metric 'gpu'"):
        run.wait_for_system_metrics("gpu")


def test_imported_files_do_not_grow(tmp_path: Path) -> None:
    output = DebuggerOutput(tmp_path / "profiler-output")
    output.system("algo-1", [sample("CPUUtilization", "cpu0", 50)])
    output.imported(tmp_path / "debugger")
    run = stepscope.open(tmp_path / "debugger").wait_for_system_metrics("cpu_busy_ratio")
    with pytest.raises(JobEndedError, match=r"has ended \(Stopped\) and has no span\."):
        run.wait_for_spans()
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    root.main(["import", str(tmp_path / "trace.json"), "-o", str(tmp_path / "run")],
              standalone_mode=False)  # fmt: skip
    run = stepscope.open(tmp_path / "run")
    assert run.state is None
    with pytest.raises(JobEndedError, match=r"was imported and has no span\."):
        run.wait_for_spans()


def test_a_running_job_that_is_too_slow(tmp_path: Path) -> None:
    run = growing(tmp_path).wait_for_system_metrics(timeout_s=0)
    assert run.state == "InProgress"
    with pytest.raises(
        WaitTimeoutError, match=r"has 0 complete steps of 5 after 0.01 s; its state is InProgress\."
    ):
        run.wait_for_steps(5, timeout_s=0.01)
    with pytest.raises(WaitTimeoutError, match="has not ended after 0 s"):
        run.wait_for_end(timeout_s=0)


def test_a_monitor_that_is_lost(tmp_path: Path) -> None:
    run = growing(tmp_path, heartbeat_ns=1)
    with pytest.raises(WaitTimeoutError, match="and its monitor sends no heartbeat"):
        run.wait_for_steps(timeout_s=3600)


def test_a_run_that_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="does not exist"):
        stepscope.open(tmp_path / "run", timeout_s=0.01)
