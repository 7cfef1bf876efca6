"""Verdicts on traces of simulated jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stepscope.diagnosis import Verdict, diagnose
from stepscope.testing.traces import TraceJob
from tests.support.imported_runs import import_into

STEPS = 6
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
PLAIN_GEMM = "ampere_sgemm_128x64_tn"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"
Draw = Callable[[TraceJob, float], None]


def judge(directory: Path, *jobs: TraceJob) -> Verdict:
    """Diagnose the traces of the ranks of a job."""
    files = []
    for number, job in enumerate(jobs):
        file = directory / f"{number}.json"
        file.write_bytes(job.encode())
        files.append(file)
    return diagnose(import_into(directory / "run", *files))


def draw_steps(draw: Draw, severity: float, **rank: int) -> TraceJob:
    """Draw the steps of a training job, each with an update."""
    job = TraceJob(**rank)
    for _ in range(STEPS):
        with job.step():
            draw(job, severity)
            with job.optimizer():
                pass
    return job


def compute(job: TraceJob, total: float = 20_000, pieces: int = 20, name: str = GEMM) -> None:
    """Compute for some microseconds in kernels that take longer than their launch."""
    for _ in range(pieces):
        job.operator("aten::mm", 20, kernel=(name, total / pieces))
