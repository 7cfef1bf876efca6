"""Counters of exported traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.exporters import export_chrome
from stepscope.testing.traces import TraceJob
from tests.support.imported_runs import import_into


def test_queue_depth_and_bandwidth_as_counters(tmp_path: Path) -> None:
    """Four kernels of 50 us are launched every 5 us, so that three wait; then a copy at 10 GB/s."""
    job = TraceJob()
    with job.step():
        for _ in range(4):
            job.launch("gemm", 50)
        job.wait()
        job.copy(100)
        job.events[-1]["args"]["bytes"] = 1_000_000
        job.wait()
    (tmp_path / "trace.json").write_bytes(job.encode())
    run = import_into(tmp_path / "run", tmp_path / "trace.json")
    out = tmp_path / "out.json"
    export_chrome(run.traces, out, counters=True)
    events = [event for event in json.loads(out.read_text())["traceEvents"] if event["ph"] == "C"]
    depths = [event["args"]["launches"] for event in events if "queue depth" in event["name"]]
    assert max(depths) == 3
    rates = [event["args"]["GB/s"] for event in events if event["name"] == "bandwidth of HtoD"]
    assert max(rates) == pytest.approx(10)
    export_chrome(run.traces, out)
    assert not any(event["ph"] == "C" for event in json.loads(out.read_text())["traceEvents"])
