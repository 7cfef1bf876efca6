"""Traces that tell too little, or what cannot be, have no verdict, and the reason comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.testing.traces import TraceJob
from tests.support.drawn_verdicts import GEMM, Draw, compute, draw_steps, judge


def test_a_device_that_is_idle_for_unknown_reasons(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(5):
        job.launch(GEMM, 100)
        job.python(1_000)
    job.events = [event for event in job.events if event["cat"] == "kernel"]
    verdict = judge(tmp_path, job)
    assert verdict.suspect == "insufficient_evidence"
    assert "the trace has no operators to tell why" in verdict.headline


def test_devices_that_work_in_turn_have_no_verdict(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(6):
        with job.step():
            for device in (0, 1):
                job.launch(GEMM, 10_000)
                job.events[-1]["args"]["device"] = device
                job.events[-1]["pid"] = device
                job.wait()
    verdict = judge(tmp_path, job)
    assert verdict.suspect == "insufficient_evidence"
    assert "uses 2 GPUs, of which each works for 50% of step time" in verdict.headline


def read_at_end(job: TraceJob, severity: float) -> None:
    """Fetch for 30 ms and compute for 20 ms, of which a value is read."""
    job.fetch(30_000)
    compute(job)
    job.item()


def wait_at_end(job: TraceJob, severity: float) -> None:
    job.fetch(30_000)
    compute(job)
    job.wait("cudaDeviceSynchronize")


@pytest.mark.parametrize("draw", [read_at_end, wait_at_end])
@pytest.mark.parametrize(
    ("shift_us", "factor", "doubt", "headline"),
    [
        (0, 1, "", "data pipeline"),
        (1_000, 1, "6 of 6 waits of the host for the device end before", "data pipeline"),
        (20_000, 1, "6 of 6 waits of the host for the device end before", "20 ms, and a step"),
        (3_000_000, 1, "6 of 6 waits of the host for the device end before", "3 s, and a step"),
        (-20_000, 1, "kernels, copies and sets start before their launch", "20 ms, and a step"),
        (0, 1_000, "are on streams that would have", "durations of device work are wrong ("),
    ],
)
def test_times_of_another_clock(
    tmp_path: Path, draw: Draw, shift_us: float, factor: int, doubt: str, headline: str
) -> None:
    """Times of the device that are ahead of, or behind, those of the host by a part of a step, or
    durations of another unit, have no verdict; a small difference is a doubt."""
    job = draw_steps(draw, 1.0)
    for event in job.events:
        if event["cat"] in {"kernel", "gpu_memcpy"}:
            event["ts"] += shift_us
            event["dur"] *= factor
    verdict = judge(tmp_path, job)
    assert [text for text in verdict.doubts if doubt in text] == verdict.doubts
    assert bool(verdict.doubts) == bool(doubt)
    assert headline in verdict.headline.replace("about ", "").replace("_", " ")
