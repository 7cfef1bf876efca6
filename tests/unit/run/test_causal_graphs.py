"""Critical paths and simulated fixes of drawn traces, with figures computed by hand.

Each trace has `STEPS` equal steps. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from stepscope import analysis
from stepscope.run import Run, RunGraph, build_run_graphs, list_path_rows
from stepscope.testing.traces import COPY_STREAM, START_US, TraceJob
from tests.support.kineto_files import Event, kernel, launch, op, span, trace, wait

Imported = Callable[..., Run]
STEPS = 4
US = 1_000
NEXT_ITEM = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SYNC = "cudaStreamSynchronize"


def graph_of(run: Run) -> RunGraph:
    (graph,) = build_run_graphs(run, run.traces)
    check_graph(graph)
    return graph


def check_graph(graph: RunGraph) -> None:
    """The path covers the measured time to the nanosecond, in all sums of it."""
    assert (graph.path.duration_ns > 0).all()
    assert graph.path.duration_ns.sum() == graph.measured_ns
    assert sum(ns for _, ns in graph.sum_categories()) == graph.measured_ns
    assert sum(row.total_ns for row in list_path_rows(graph)) == graph.measured_ns
    slack = graph.joined.causal.measure_slack(graph.schedule, graph.joined.end)
    edges = graph.joined.causal.edges
    assert (slack >= 0).all()
    assert not slack[edges.target[graph.path.edge[graph.path.edge >= 0]]].any()


def categories(graph: RunGraph) -> dict[str, float]:
    """Return microseconds of the path by category."""
    return {category.name.lower(): ns / US for category, ns in graph.sum_categories() if ns}


def simulate(graph: RunGraph, *names: str) -> float:
    """Return microseconds of all steps with some fixes."""
    fixes = [(analysis.CAUSAL_FIXES[name], None) for name in names]
    return graph.simulate(*fixes).step_ns * graph.step_count / US


class Case(NamedTuple):
    """A drawn trace and its figures."""

    content: bytes
    path: dict[str, float]
    """Microseconds by category; they sum to the measured time."""
    fixes: dict[str, float]
    """Microseconds of all steps with the fix."""
    useless: tuple[str, ...] = ()
    """Fixes that save less than 1 %."""


def job(draw: Callable[[TraceJob], Any], steps: int = STEPS) -> bytes:
    drawn = TraceJob()
    for _ in range(steps):
        with drawn.step():
            draw(drawn)
    return drawn.encode()


def step(number: int, start: float, duration: float) -> Event:
    return span(
        "user_annotation", f"ProfilerStep#{number}", round(start * US), round(duration * US)
    )


def operator(name: str, start: float, duration: float, **more: Any) -> Event:
    return op(name, round(start * US), round(duration * US), **more)


def call(start: float, duration: float, number: int | None, **more: Any) -> Event:
    return launch(round(start * US), round(duration * US), number, **more)


def work(start: float, duration: float, number: int | None, **more: Any) -> Event:
    return kernel(round(start * US), round(duration * US), number, **more)


def steps(
    draw: Callable[[float, int], list[Event]], duration: float, *, marked: bool = True
) -> bytes:
    """Draw steps from their start and a number, from which their calls are numbered."""
    events = []
    for index in range(STEPS):
        if marked:
            events.append(step(index, duration * index, duration))
        events += draw(duration * index, 10 * index + 1)
    return trace(*events)


def launch_bound(drawn: TraceJob) -> None:
    for _ in range(10):
        drawn.operator("aten::add", 20, kernel=("add", 2))


def device_bound(drawn: TraceJob) -> None:
    for _ in range(10):
        drawn.operator("aten::mm", 5, kernel=("gemm", 100))


def item(drawn: TraceJob) -> None:
    drawn.operator("aten::mm", 5, kernel=("gemm", 100))
    drawn.item()


def fetch(drawn: TraceJob) -> None:
    drawn.fetch(500)
    drawn.operator("aten::mm", 5, kernel=("gemm", 100))
    drawn.wait()


def fetch_beside(drawn: TraceJob) -> None:
    drawn.fetch(30)
    device_bound(drawn)


def blocking_copy(drawn: TraceJob) -> None:
    drawn.blocking_copy(200)
    drawn.operator("aten::mm", 5, kernel=("gemm", 100))


def pageable_copy(drawn: TraceJob) -> None:
    drawn.copy(200, route="HtoD (Pageable -> Device)")
    drawn.operator("aten::mm", 5, kernel=("gemm", 100))


def copy_beside(drawn: TraceJob) -> None:
    drawn.copy(50, stream=COPY_STREAM)
    device_bound(drawn)


def two_streams(at: float, number: int, *, recorded: bool) -> list[Event]:
    """A kernel of 80 waits for one of 200 on another stream, and the host for both."""
    events = [
        operator("aten::mm", at, 30),
        call(at + 5, 5, number),
        work(at + 10, 200, number, stream=20),
        call(at + 12, 1, number + 1, name="cudaEventRecord"),
        call(at + 14, 1, number + 2, name="cudaStreamWaitEvent"),
        call(at + 20, 5, number + 3),
        work(at + 210, 80, number + 3),
        call(at + 40, 250, number + 4, name="cudaDeviceSynchronize"),
    ]
    if recorded:
        event = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": number + 1}
        waits = wait("Stream Wait Event", round((at + 14) * US), US, correlation=number + 2,
                     stream=7, wait_on_cuda_event_id=5, **event)  # fmt: skip
        on_host = wait("Context Sync", round((at + 40) * US), 250 * US, correlation=number + 4,
                       stream=-1)  # fmt: skip
        events += [waits, on_host]
    return events


def replayed_graph(at: float, number: int) -> list[Event]:
    """One launch of ten kernels, for which the host waits."""
    nodes = [
        work(at + 15 + 40 * node, 40, number, args={"graph id": 3, "graph node id": node + 1})
        for node in range(10)
    ]
    return [
        call(at + 5, 10, number, name="cudaGraphLaunch"),
        *nodes,
        call(at + 15, 400, None, name=SYNC),
    ]


def triton(at: float, number: int) -> list[Event]:
    start = call(at + 5, 10, number, category="cuda_driver", name="cuLaunchKernel")
    return [
        operator("triton_poi_fused", at, 20),
        start,
        work(at + 15, 100, number),
        call(at + 20, 95, None, name=SYNC),
    ]


def backward(at: float, number: int, *, parallel: bool) -> list[Event]:
    """Two threads of the backward pass, at once or one after the other, until 240."""
    first = 180 if parallel else 90
    return [
        operator("aten::fwd", at, 50),
        operator("autograd::A", at + 60, 90, tid=2),
        operator("autograd::B", at + 240 - first, first, tid=3),
        operator("aten::opt", at + 250, 50),
    ]


def prefetch(at: float, number: int) -> list[Event]:
    return [
        operator("aten::mm", at + 10, 30),
        operator("aten::mm", at + 50, 40),
        span("user_annotation", NEXT_ITEM, round((at + 20) * US), 60 * US, tid=5),
    ]


def host_only(at: float, number: int) -> list[Event]:
    return [operator("aten::conv", at + 10, 150), operator("aten::view", at + 165, 5)]


def calls_only(at: float, number: int) -> list[Event]:
    return [call(at + 10, 5, number), work(at + 15, 60, number), call(at + 20, 56, None, name=SYNC)]


def unmarked(at: float, number: int) -> list[Event]:
    return [operator("aten::mm", at, 20), call(at + 10, 5, number), work(at + 15, 100, number)]


def without_durations(at: float, number: int) -> list[Event]:
    """A launch and a kernel that take no time, and a launch at the end of an operator."""
    return [
        operator("aten::mm", at, 20),
        operator("aten::empty", at + 3, 0),
        call(at + 5, 0, number),
        work(at + 6, 0, number),
        call(at + 20, 0, number + 1),
        work(at + 21, 79, number + 1),
        call(at + 40, 61, None, name=SYNC),
    ]


def carry_over() -> bytes:
    """A kernel that was launched before the trace holds up all the others."""
    events = [work(-100, 500, 1)]
    for index in range(2):
        at = 100 * index
        events += [step(index, at, 100), operator("aten::mm", at, 50)]
        events += [call(at + 20, 5, 10 + index), work(400 + 50 * index, 50, 10 + index)]
    return trace(*events)


CASES = {
    # 40 launches of 25, and the last kernel; without these the kernels alone.
    "launch-bound": Case(
        job(launch_bound),
        {"launch": 1000, "compute": 2},
        {"no-launch-gaps": 80, "batch": (1000 + 4) / 2},
        ("faster-kernels", "no-sync", "async-copies", "overlap", "fused-optimizer"),
    ),
    "device-bound": Case(
        job(device_bound),
        {"compute": 4000, "launch": 10},
        {"faster-kernels": 10 + 2000},
        ("no-launch-gaps", "no-sync", "batch", "bandwidth", "no-straggler"),
    ),
    # A step: 10 until the kernel starts, 100, a copy of 1, a wait of 1, and 3 until it ends.
    "item": Case(
        job(item),
        {"compute": 400, "launch": 52, "host_sync": 4, "copy": 4},
        {"no-sync": 10 + 4 * 101, "faster-kernels": 460 - 200, "no-launch-gaps": 4 * 102},
        ("async-copies", "no-input", "workers"),
    ),
    "fetch": Case(
        job(fetch),
        {"input": 2000, "compute": 400, "launch": 40},
        {"no-input": 440, "workers": 4 * 250 + 110, "no-sync": 4 * 510 + 100},
        ("async-copies", "batch", "fused-optimizer"),
    ),
    "fetch beside": Case(
        job(fetch_beside),
        {"compute": 4000, "input": 30, "launch": 10},
        {"faster-kernels": 2040},
        ("no-input", "workers", "no-launch-gaps"),
    ),
    # A step: the call of 5, 200, the return of 1, 10 until the kernel starts; the last kernel.
    "blocking copy": Case(
        job(blocking_copy),
        {"copy": 800, "compute": 400, "launch": 45, "host_sync": 4},
        {"async-copies": 10 + 400},
        ("no-sync", "no-input", "overlap"),
    ),
    "pageable copy": Case(
        job(pageable_copy),
        {"copy": 800, "compute": 400, "launch": 45},
        {"async-copies": 10 + 400},
        ("no-sync", "no-input"),
    ),
    "copy beside": Case(
        job(copy_beside),
        {"compute": 4000, "launch": 15},
        {"faster-kernels": 2015},
        ("async-copies", "no-launch-gaps"),
    ),
    **{
        f"event {form}": Case(
            steps(
                lambda at, number, form=form: two_streams(at, number, recorded=form == "recorded"),
                300,
            ),
            {"compute": 1120, "launch": 40, "python": 40},
            {"faster-kernels": 80 + 560, "no-sync": 10 + 800 + 80, "no-launch-gaps": 1120},
            ("async-copies", "no-input"),
        )
        for form in ("recorded", "inferred")
    },
    "carry-over": Case(
        carry_over(), {"compute": 500}, {"faster-kernels": 250}, ("no-launch-gaps", "no-sync")
    ),
    "replayed graph": Case(
        steps(replayed_graph, 420),
        {"compute": 1600, "launch": 40, "python": 40},
        {"faster-kernels": 880, "no-sync": 15 + 1600, "no-launch-gaps": 1600},
        ("async-copies",),
    ),
    "triton": Case(
        steps(triton, 120),
        {"compute": 400, "launch": 60, "python": 20},
        {"no-launch-gaps": 400, "no-sync": 15 + 400},
        ("async-copies",),
    ),
    "backward in turn": Case(
        steps(lambda at, number: backward(at, number, parallel=False), 300),
        {"compute": 1120, "python": 80},
        {"faster-kernels": 80 + 560, "no-launch-gaps": 1120},
        ("no-sync",),
    ),
    "backward at once": Case(
        steps(lambda at, number: backward(at, number, parallel=True), 300),
        {"compute": 1120, "python": 80},
        {"faster-kernels": 80 + 560, "no-launch-gaps": 1120},
        ("no-sync",),
    ),
    "prefetch thread": Case(
        steps(prefetch, 100),
        {"compute": 280, "python": 120},
        {"faster-kernels": 260},
        ("no-input", "workers"),
    ),
    "host only": Case(
        steps(host_only, 200),
        {"compute": 600, "python": 180, "launch": 20},
        {"faster-kernels": 500, "no-launch-gaps": 600},
        ("no-sync", "no-input"),
    ),
    # A step: 15 until the kernel starts, 60, the return of 1, and 44 of unknown host code.
    "without operators": Case(
        steps(calls_only, 120),
        {"compute": 240, "python": 216, "launch": 20, "host_sync": 4},
        {"no-sync": 3 * 64 + 15 + 60, "faster-kernels": 360},
        ("async-copies", "no-input"),
    ),
    "without steps": Case(
        steps(unmarked, 120, marked=False),
        {"python": 300, "compute": 100, "launch": 75},
        {"no-launch-gaps": 400, "faster-kernels": 425},
        ("no-sync",),
    ),
    # When a host would have launched them is not known.
    "only kernels": Case(
        trace(*(work(10 * index, 10, None) for index in range(5))),
        {"compute": 50},
        {},
        ("no-launch-gaps", "no-sync"),
    ),
    "without durations": Case(
        steps(without_durations, 110),
        {"compute": 316, "launch": 84, "python": 36, "host_sync": 4},
        {"faster-kernels": 440 - 158},
        ("async-copies",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_path_and_fixes(imported: Imported, name: str) -> None:
    case = CASES[name]
    graph = graph_of(imported(trace=case.content))
    assert categories(graph) == pytest.approx(case.path)
    measured = sum(case.path.values())
    assert graph.measured_ns / US == graph.replayed_ns / US == pytest.approx(measured)
    assert not graph.measure_step_errors().max()
    assert {fix: simulate(graph, fix) for fix in case.fixes} == pytest.approx(case.fixes)
    savings = {fix: 1 - simulate(graph, fix) / measured for fix in case.useless}
    assert {fix: saving for fix, saving in savings.items() if abs(saving) >= 0.01} == {}


def test_fixes_are_simulated_together(imported: Imported) -> None:
    """Without fetches and waits, kernels of 100 follow each other; each alone saves less."""
    graph = graph_of(imported(trace=job(fetch)))
    assert simulate(graph, "no-input", "no-sync") == 10 + 400
    assert simulate(graph, "no-sync", "no-input") == 10 + 400


@pytest.mark.parametrize("name", ["fetch", "event recorded", "backward at once", "triton"])
def test_times_in_whole_microseconds(imported: Imported, name: str) -> None:
    """Starts and durations are cut to microseconds, so ends contradict each other by two."""
    scale = 1.0137
    document = msgspec.json.decode(CASES[name].content)
    base = document.pop("baseTimeNanoseconds", 0) // 1_000 or int(START_US)
    for event in document["traceEvents"]:
        offset = event["ts"] - (START_US if event["ts"] >= START_US else 0)
        event |= {"ts": base + int(scale * offset), "dur": int(scale * event["dur"])}
    graph = graph_of(imported(trace=msgspec.json.encode(document)))
    assert graph.measured_ns / US == pytest.approx(scale * sum(CASES[name].path.values()), abs=3)
    assert graph.replayed_ns == pytest.approx(graph.measured_ns, rel=0.02)
    for fix, expected in CASES[name].fixes.items():
        assert simulate(graph, fix) == pytest.approx(scale * expected, rel=0.04)


def test_waits_are_of_one_device(imported: Imported) -> None:
    """Two devices have a stream of the same number; the host waits for the first one, 100 long."""
    events = []
    for index in range(STEPS):
        at, number = 300 * index, 10 * index + 1
        events += [step(index, at, 300), operator("aten::mm", at, 10)]
        events += [call(at + 10, 5, number), work(at + 15, 100, number)]
        events += [call(at + 15, 5, number + 1), work(at + 20, 80, number + 1, device=1)]
        events += [call(at + 20, 96, number + 2, name="cudaDeviceSynchronize")]
        events += [wait("Context Sync", (at + 20) * US, 96 * US, correlation=number + 2, stream=-1)]
    graph = graph_of(imported(trace=trace(*events)))
    edges = graph.joined.causal.edges
    syncs = edges.take(edges.kind == analysis.EdgeKind.SYNC)
    lengths = graph.joined.causal.time_ns[syncs.source] - graph.start_ns
    assert [ns / US % 300 for ns in lengths.tolist()] == [115] * STEPS


def test_recorded_waits_of_a_real_trace(real: Callable[[str], Run]) -> None:
    """A stream waits for another one, and the host looks twice for an event; a third look is for an
    event that was never recorded, and the wait for the device comes after the last operator."""
    graph = graph_of(real("event_sync_multi_stream.a100.json.gz"))
    causal, edges = graph.joined.causal, graph.joined.causal.edges
    times = causal.time_ns // US + graph.joined.offset_ns[0] // US - 1_712_867_402_000_000
    for kind, expected in (
        (analysis.EdgeKind.EVENT, [(348_700 + 123, 368_034)]),
        (analysis.EdgeKind.SYNC, [(348_700 + 123, 349_061), (349_097 + 123, 368_013)]),
    ):
        rows = edges.take(edges.kind == kind)
        assert list(zip(times[rows.source], times[rows.target], strict=True)) == expected
