"""Verdicts on drawn traces of hosts that wait for the device: what the wait costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.testing.traces import TraceJob
from tests.support.drawn_verdicts import compute, judge


def test_a_wait_saves_at_most_its_own_time(tmp_path: Path) -> None:
    """The host needs 50 ms for itself: without the wait of 5 ms it still does."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            compute(job, 5_000, 5)
            job.item()
            for _ in range(50):
                job.python(985)
                job.operator("aten::empty", 15)
            with job.optimizer():
                pass
    verdict = judge(tmp_path, job)
    shares = {cause.cause: cause.share_ratio for cause in verdict.also}
    assert verdict.suspect == "framework_overhead"
    assert verdict.cause != "host_sync"
    assert shares["host_sync"] == pytest.approx(5 / 55, abs=0.01)


def test_long_python_is_no_wait(tmp_path: Path) -> None:
    """After a read Python runs for 20 ms: the device waits for Python."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            compute(job, 30_000, 30)
            job.item()
            job.python(20_000)
            with job.optimizer():
                pass
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "unknown")
    assert verdict.share_ratio == pytest.approx(20 / 50, abs=0.01)
    assert "with_stack=True" in verdict.headline


def test_selected_rows_make_the_host_wait(tmp_path: Path) -> None:
    """A mask needs a wait, a short kernel follows it, and then the device has no work."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            compute(job, 8_000, 8)
            for _ in range(20):
                job.operator("aten::nonzero", 4, kernel=("DeviceSelectSweepKernel", 6))
                job.wait()
                job.operator("aten::index", 4, kernel=("index_elementwise_kernel", 8))
                job.python(400)
                compute(job, 300, 1)
            with job.optimizer():
                pass
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "host_sync")
    assert verdict.share_ratio == pytest.approx(8 / 22, abs=0.05)
