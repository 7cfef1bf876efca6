"""Critical paths of several ranks, tied together by collectives. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.run import Run, RunGraph, build_run_graphs
from stepscope.testing.traces import TraceJob
from tests.support.kineto_files import op, span, trace
from tests.unit.run.test_causal_graphs import STEPS, US, categories, check_graph, simulate

Imported = Callable[..., Run]
LATE = 500
ALONE = [STEPS * (15 + compute + 100) for compute in (1_000, 1_000 + LATE)]
"""Time of all steps of each rank alone: a launch, a kernel, a transfer."""


def rank_job(
    rank: int, *, clock: int = 0, skipped: int = 0, order: tuple[str, ...] = ("AllReduce",)
) -> TraceJob:
    """Compute for 1000, on rank 1 for 500 more; collectives of 100 start when both are there."""
    job = TraceJob(rank=rank, world_size=2, now=clock)
    for index in range(STEPS):
        with job.step():
            job.operator("aten::mm", 10, kernel=("gemm", 1_000 + LATE * rank))
            waiting = LATE * (1 - rank)
            for name in order if index >= skipped else ():
                job.collective(name, 100 + waiting)
                waiting = 0
            job.join()
            job.wait("cudaDeviceSynchronize")
    return job


def graphs_of(imported: Imported, *jobs: TraceJob) -> list[RunGraph]:
    run = imported(**{f"rank{number}": job.encode() for number, job in enumerate(jobs)})
    graphs = build_run_graphs(run, run.traces)
    for graph in graphs:
        check_graph(graph)
    return graphs


@pytest.mark.parametrize("clock", [0, 3_000])
def test_a_straggler(imported: Imported, clock: int) -> None:
    """Rank 1 is on the path; rank 0 waits 500 in each step, by whichever clock."""
    (graph,) = graphs_of(imported, rank_job(0), rank_job(1, clock=clock))
    assert graph.joined.matched_count == STEPS
    assert graph.joined.offset_ns[1] - graph.joined.offset_ns[0] == clock * US
    assert graph.measured_ns / US == graph.replayed_ns / US == ALONE[1]
    assert categories(graph) == {
        "compute": STEPS * 1_500, "communication": STEPS * 100, "launch": STEPS * 15,
    }  # fmt: skip
    # The last transfer ends on both.
    assert graph.sum_ranks() == [100 * US, graph.measured_ns - 100 * US]
    assert simulate(graph, "no-straggler") == min(ALONE)
    assert simulate(graph, "bandwidth") == ALONE[1] - STEPS * 50
    assert simulate(graph, "no-input") == ALONE[1]


def test_different_counts_of_collectives(imported: Imported) -> None:
    """Nothing ties the ranks together, so the path is that of the longer one."""
    (graph,) = graphs_of(imported, rank_job(0, skipped=1), rank_job(1))
    assert graph.joined.matched_count == 0
    assert graph.measured_ns / US == graph.replayed_ns / US == ALONE[1]
    assert graph.sum_ranks() == [0, graph.measured_ns]


def test_contradictory_orders(imported: Imported) -> None:
    """Each rank waits for what the other one does later: both are shown alone."""
    order = ("AllReduce", "AllGather")
    graphs = graphs_of(imported, rank_job(0, order=order), rank_job(1, order=order[::-1]))
    assert [len(graph.divided) for graph in graphs] == [1, 1]
    assert all("orders that contradict each other" in graph.notes[0] for graph in graphs)


def test_collectives_of_the_host(imported: Imported) -> None:
    """Rank 1 computes 100 longer, and its exchange of 50 starts last."""

    def draw(late: int) -> bytes:
        events = []
        for index in range(STEPS):
            at = 500 * index * US
            start, end = at + (200 + late) * US, at + 350 * US
            events += [
                span("user_annotation", f"ProfilerStep#{index}", at, 500 * US),
                op("aten::conv", at, (200 + late) * US),
                span("user_annotation", "gloo:all_reduce", start, end - start, tid=2),
                op("aten::opt", end, 100 * US),
            ]
        header = {"backend": "gloo", "rank": late // 100, "world_size": 2}
        return trace(*events, distributedInfo=header)

    run = imported(rank0=draw(0), rank1=draw(100))
    (graph,) = build_run_graphs(run, run.traces)
    check_graph(graph)
    assert graph.joined.matched_count == STEPS
    assert graph.measured_ns == graph.replayed_ns == 500 * STEPS * US
    path = categories(graph)
    assert path["compute"] == STEPS * 400
    assert path["communication"] == STEPS * 50
    assert path["python"] == STEPS * 50
    assert simulate(graph, "no-straggler") == STEPS * 400
