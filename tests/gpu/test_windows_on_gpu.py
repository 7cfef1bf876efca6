"""Windows of a real GPU: their links, their depths, and the phases that CUDA events measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stepscope.intervals import Intervals, overlap, union
from stepscope.run import Run
from stepscope.run.model.traces import Trace
from stepscope.views import VIEWS

Recorded = Callable[[str], Run]
DEPTHS = pytest.mark.parametrize("depth", ["light", "full"])
CLOCK_NS = 1_000_000
"""Kineto and our CUDA events place the device on the host's clock each in its own way."""


def only_trace(run: Run) -> Trace:
    (trace,) = run.traces
    return trace


@pytest.mark.seed("DBP-04")
@DEPTHS
def test_kernels_have_their_launches(recorded: Recorded, depth: str) -> None:
    kernels = only_trace(recorded(depth)).columns("kernels", ("launch", "carry_over"))
    assert len(kernels["launch"]) > 1_000
    unlinked = (kernels["launch"] < 0) & (kernels["carry_over"] == 0)
    assert unlinked.mean() < 0.01


def test_light_windows_hold_no_operators(recorded: Recorded) -> None:
    assert not len(only_trace(recorded("light")).columns("operators", ("id",))["id"])
    assert len(only_trace(recorded("light")).columns("runtime_calls", ("id",))["id"])


def test_full_windows_account_for_all_work_that_operators_launched(recorded: Recorded) -> None:
    trace = only_trace(recorded("full"))
    launched = 0
    for table in ("kernels", "copies"):
        work = trace.columns(table, ("duration_ns", "operator", "graph"))
        launched += int(work["duration_ns"][work["operator"] >= 0].sum())
    operators = trace.columns("operators", ("device_self_ns", "device_total_ns", "parent"))
    assert int(operators["device_self_ns"].sum()) == launched
    assert int(operators["device_total_ns"][operators["parent"] < 0].sum()) == launched


@DEPTHS
def test_gpu_time_is_conserved(recorded: Recorded, depth: str) -> None:
    (figures,) = VIEWS["gpu-time"](recorded(depth)).traces
    parts = (
        figures.compute_ns + figures.exposed_comm_ns + figures.exposed_memcpy_ns + figures.idle_ns
    )
    assert parts == figures.total_ns == figures.busy_ns + figures.idle_ns
    assert figures.busy_ns > 0


@DEPTHS
def test_device_phases_cover_the_kernels_of_the_window(recorded: Recorded, depth: str) -> None:
    """Forward, backward and optimizer as CUDA events timed them leave out next to no kernel."""
    run = recorded(depth)
    trace = only_trace(run)
    spans = run.ranks[0].spans.of("device")
    phases = union(Intervals(spans.start - CLOCK_NS, spans.end + CLOCK_NS))
    kernels = trace.columns("kernels", ("start_ns", "duration_ns", "carry_over"))
    kept_kernels = kernels["carry_over"] == 0
    start, duration = kernels["start_ns"][kept_kernels], kernels["duration_ns"][kept_kernels]
    inside = overlap(Intervals(start, start + duration), phases)
    assert inside.sum() > 0.95 * duration.sum()
    window = Intervals(np.array([start.min()]), np.array([(start + duration).max()]))
    during = overlap(Intervals(spans.start, spans.end), window)
    busy = union(Intervals(start, start + duration)).total_ns
    assert during.sum() >= 0.9 * busy


def test_bf16_matrices_ran_on_tensor_cores(recorded: Recorded) -> None:
    (figures,) = VIEWS["gpu-metrics"](recorded("full")).traces
    (device,) = [device_row for device_row in figures.devices if device_row.kernel_count]
    assert 0 < device.utilization_ratio <= 1
    assert device.tensor_core_ratio is not None
    assert 0 < device.tensor_core_ratio < 1
