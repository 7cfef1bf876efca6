"""Windows that the framework's profiler records, if libkineto has no connection to a monitor."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from stepscope.monitor.windows.planner import WindowStart
from tests.support.window_jobs import OVER, RECORDING, WindowJob, steps

in_detail = pytest.mark.extended("another job; test_windows_by_libkineto.py has the same promise")


@pytest.fixture
def job(spool: Any) -> Iterator[WindowJob]:
    """Provide a job without a daemon that has trained five steps."""
    started = WindowJob(spool, served=False)
    started.do("steps 5")
    yield started
    started.close()


def test_a_window_has_exactly_the_requested_steps(job: WindowJob) -> None:
    job.plan(steps(4, options=("memory", "shapes")), WindowStart(first_step=10))
    job.do("steps 20")
    job.step_until(OVER)
    window = job.window()
    assert window["steps"] == 4
    assert window["categories"]["cpu_instant_event"] > 10
    recorded = job.spool.drain(final=False)
    (fact,) = recorded.facts("window")
    assert (fact["recorder"], fact["first_step"], fact["step_count"]) == ("profiler", 10, 4)
    (span,) = recorded.of("window")
    assert len([r for r in recorded.of("optimizer") if r.inside(span)]) == 4


@in_detail
def test_a_profiler_of_the_job_closes_a_window(job: WindowJob) -> None:
    alone = job.do("profile 5")
    job.plan(steps(20), WindowStart(first_step=job.training_process.steps + 2))
    job.step_until(RECORDING)
    job.do("steps 5")
    assert job.do("profile 5") == alone
    job.step_until(OVER)
    assert 5 <= job.window()["steps"] <= 7


@in_detail
def test_a_window_waits_while_the_job_profiles_itself(job: WindowJob) -> None:
    alone = job.do("profile 20")
    job.plan(steps(4), WindowStart(first_step=job.training_process.steps + 5))
    assert job.do("profile 20") == alone
    job.step_until(OVER)
    assert job.window()["steps"] == 4


@in_detail
def test_a_job_may_end_inside_a_window(job: WindowJob) -> None:
    job.plan(steps(20), WindowStart(first_step=10))
    job.step_until(RECORDING)
    job.do("steps 3")
    assert job.end("exit 4") == 4
    assert 3 <= job.window()["steps"] <= 5


@in_detail
def test_a_forked_child_continues_without_the_window(job: WindowJob) -> None:
    job.plan(steps(6), WindowStart(first_step=10))
    job.step_until(RECORDING)
    assert job.do("fork") == "5"
    job.step_until(OVER)
    assert job.window()["steps"] == 6
