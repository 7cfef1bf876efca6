"""Runs to serve: a profiled job, and an imported trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepscope.cli import root as command_line
from stepscope.testing import RunBuilder

STEP = "wait 60 | forward 12 | backward 20 | optimizer 8"
START_US = 1_700_000_000_000_000


def draw_job(path: Path, step_count: int = 60) -> Path:
    """Draw a job that waits for data, with samples of its GPU."""
    run = RunBuilder(path, sampling_ms=50, code={"decode": "fetch > decode # image.load()"})
    rank = run.rank(0, workers=1)
    rank.draw(STEP, step_count, jitter=0.1)
    rank.workers[0].draw("fetch ( samples ( do:decode 88 ) | collate 2 )", step_count)
    run.metric("gpu_busy_ratio", 0.4, device="0")
    run.metric("cpu_busy_ratio", 0.5)
    return run.write()


def trace_events(kernel: str = "gemm") -> list[dict[str, Any]]:
    """Return events of two steps of 100 us, each with an operator, its launch and a kernel."""
    events = []
    for step in (0, 1):
        start = START_US + 100 * step
        events += [
            _event("user_annotation", f"ProfilerStep#{step}", start, 100),
            _event("cpu_op", "aten::mm", start + 20, 30),
            _event("cuda_runtime", "cudaLaunchKernel", start + 25, 2, correlation=step + 1),
            _event("kernel", kernel, start + 40, 25, correlation=step + 1, device=0, stream=7),
        ]
    return events


def import_trace(path: Path, events: list[dict[str, Any]]) -> Path:
    """Import a trace with the command line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_suffix(".json")
    file.write_text(json.dumps({"traceEvents": events}))
    command_line.main(["import", str(file), "-o", str(path)], standalone_mode=False)
    file.unlink()
    return path


def _event(category: str, name: str, start: int, duration: int, **args: Any) -> dict[str, Any]:
    thread = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 10, "tid": 10}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start,
        "dur": duration,
        "args": args,
        **thread,
    }
