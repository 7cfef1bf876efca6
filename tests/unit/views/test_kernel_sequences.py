"""Kernels that operators launch again and again, and launches by operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.run import Run
from stepscope.testing.traces import TraceJob
from stepscope.views import VIEWS, ViewOptions

Imported = Callable[..., Run]


def draw(job: TraceJob) -> None:
    """Norm launches two kernels of 3 and 5 us, 5 us of launch apart; mm launches one."""
    with job.step():
        for _ in range(3):
            start = job.now
            job.now += 2
            job.launch("mean", 3)
            job.launch("scale", 5)
            job.events.append(
                {
                    "ph": "X",
                    "cat": "cpu_op",
                    "name": "aten::norm",
                    "pid": 100,
                    "tid": 100,
                    "ts": 1_700_000_000_000_000 + start,
                    "dur": job.now - start,
                    "args": {},
                }
            )
            job.operator("aten::mm", 10, kernel=("gemm", 40))


def test_sequences_and_delays(imported: Imported) -> None:
    job = TraceJob()
    draw(job)
    run = imported(trace=job.encode())
    (trace,) = VIEWS["launches"](run).traces
    (sequence,) = trace.sequences
    assert (sequence.operator, sequence.kernels) == ("aten::norm", ["mean", "scale"])
    assert (sequence.repeat_count, sequence.total_ns) == (3, 3 * 8_000)
    # The first pair runs at once: 2 us remain of the second launch. Later the stream is busy.
    assert sequence.gap_ns == 2_000
    assert sequence.share_ratio == pytest.approx(24 / (24 + 120))
    assert [(row.call, row.launch_count) for row in trace.operators] == [
        ("aten::norm", 6),
        ("aten::mm", 3),
    ]


def test_the_bandwidth_of_copies_over_time(imported: Imported) -> None:
    """Two copies of 100 us at 10 GB/s, one after the other."""
    job = TraceJob()
    with job.step():
        for _ in range(2):
            job.copy(100)
            job.events[-1]["args"]["bytes"] = 1_000_000
        job.wait()
    run = imported(trace=job.encode())
    (trace,) = VIEWS["activity"](run).traces
    (curve,) = trace.bandwidth
    assert curve.direction == "HtoD"
    rates, width_ns = curve.curve_bytes_per_s, trace.bucket_ns
    start_ns, end_ns = run.traces[0].extent
    last_ns = end_ns - start_ns - width_ns * (len(rates) - 1)  # the last bucket is longer
    moved = sum(rate * width_ns for rate in rates[:-1]) + rates[-1] * last_ns
    assert moved / 1e9 == pytest.approx(2_000_000)
    assert max(rates) == pytest.approx(1e10)


def test_the_kernels_of_an_annotation(imported: Imported) -> None:
    """Kernels count by their launch: those of the optimizer run after its range has ended."""
    job = TraceJob()
    with job.step():
        job.operator("aten::mm", 10, kernel=("gemm", 500))
        with job.optimizer("SGD"):
            for _ in range(3):
                job.operator("aten::add_", 10, kernel=("update", 20))
    run = imported(trace=job.encode())
    options = ViewOptions(name="Optimizer.step#SGD.step")
    (source,) = VIEWS["annotations"](run, options).sources
    (kernel,) = source.kernels
    assert (kernel.name, kernel.calls, kernel.total_ns) == ("update", 3, 60_000)
