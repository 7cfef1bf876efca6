"""Fetches of batches in causal graphs of drawn traces, with figures from formulas."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope import analysis
from stepscope.run import RunGraph, build_run_graphs
from stepscope.testing.traces import TraceJob
from tests.support.imported_runs import import_into

STEPS = 20
COMPUTE_US = 10_000
HANDLING_US = 200


def build(tmp_path: Path, fetch_us: float, *, workers: bool) -> RunGraph:
    """Build the graph of steps that fetch a batch and compute on the host."""
    job = TraceJob()
    for _ in range(STEPS):
        with job.step():
            job.fetch(fetch_us, workers=workers)
            job.operator("aten::mm", COMPUTE_US)
    path = tmp_path / "rank0.json"
    path.write_bytes(job.encode())
    run = import_into(tmp_path / "run", path)
    (graph,) = build_run_graphs(run, run.traces)
    assert graph.error_ratio == 0
    return graph


def simulate(graph: RunGraph, name: str, factor: float | None = None) -> float:
    """Return the microseconds of a step with a fix."""
    fix = analysis.find_fix(name)
    assert fix is not None
    return graph.simulate((fix, factor)).step_ns / 1000


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("workers", [False, True])
def test_more_workers_fetch_beside_the_steps(
    tmp_path: Path, *, workers: bool, factor: float
) -> None:
    """A step takes as long as its computation or as the time between two batches, which workers
    prepare in the time of a step so far, the script itself in the time of a fetch. The first step
    waits for the whole fetch."""
    fetch_us = 20_000
    graph = build(tmp_path, fetch_us, workers=workers)
    between_us = fetch_us + COMPUTE_US if workers else fetch_us
    busy_us = COMPUTE_US + (HANDLING_US if workers else 0)
    later_us = (STEPS - 1) * max(busy_us, between_us / factor)
    expected_us = (fetch_us / factor + COMPUTE_US + later_us) / STEPS
    assert simulate(graph, "workers", factor) == pytest.approx(expected_us, rel=0.001)
    assert simulate(graph, "no-input") == pytest.approx(busy_us, rel=0.001)


def test_what_is_computed_while_workers_are_late_is_not_on_the_path(tmp_path: Path) -> None:
    graph = build(tmp_path, 20_000, workers=True)
    assert simulate(graph, "faster:aten::mm", 2) == pytest.approx(30_000, rel=0.01)
    assert graph.sum_categories()[0][0] is analysis.PathCategory.INPUT


def test_workers_that_are_ahead_hold_up_nothing(tmp_path: Path) -> None:
    """A fetch of 0.9 ms is the time to get a batch that is ready."""
    graph = build(tmp_path, 900, workers=True)
    assert simulate(graph, "workers") == pytest.approx(COMPUTE_US + 900, rel=0.001)
    assert simulate(graph, "faster:aten::mm", 2) == pytest.approx(COMPUTE_US / 2 + 900, rel=0.01)
