"""Operators and kernels in SageMaker Debugger's framework events, as traces of their process."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from stepscope.rule_feed import check_rules, choose_rules
from stepscope.run import Run, marked_steps
from stepscope.views.devices.kernels import show_kernels
from stepscope.views.operators.operators import show_operators
from stepscope.views.options import ViewOptions
from tests.support.debugger_files import (
    EPOCH_NS,
    DebuggerOutput,
    Event,
    event,
    kernel,
    operator,
    rows,
    step,
)

US = 10**3
STEP_US = 10_000


def draw_operators(number: int, rng: random.Random) -> tuple[list[Event], Counter[str]]:
    """Draw nested operators of a step, and their self times in microseconds by name."""
    events, own_us = [], Counter[str]()
    at = number * STEP_US + 100
    while at < number * STEP_US + 9_000:
        outer, inner = rng.randint(300, 600), rng.randint(100, 250)
        lead = rng.randint(0, 50)
        name = rng.choice(["aten::conv2d", "aten::linear"])
        events.append(operator(name, at, outer, step=number))
        events.append(operator("aten::kernel", at + lead, inner, step=number))
        own_us[name] += outer - inner
        own_us["aten::kernel"] += inner
        at += outer + rng.randint(0, 40)
    return events, own_us


def job_with_operators(output: DebuggerOutput, profiled: set[int]) -> Counter[str]:
    """Write 30 steps with operators in some; return their self times in microseconds by name."""
    rng, events, own_us = random.Random(7), [], Counter[str]()
    for number in range(30):
        events += [
            event("Forward", "Net", number * STEP_US, 4_000, step_num=str(number)),
            event("Backward(post-forward)", "Net", number * STEP_US + 4_000, 6_000),
            step(number, number * STEP_US, STEP_US),
        ]
        if number in profiled:
            operators, step_us = draw_operators(number, rng)
            events += operators
            own_us += step_us
    rng.shuffle(events)
    output.events("77-algo-1", events)
    return own_us


def test_self_times_are_those_of_a_twin(output: DebuggerOutput) -> None:
    own_us = job_with_operators(output, {5, 6})
    run = output.imported()
    (shown,) = show_operators(run, ViewOptions()).traces
    assert {row.name: row.host_self_ns for row in shown.operators} == {
        name: time_us * US for name, time_us in own_us.items()
    }
    assert not [r for r in rows(run) if str(r["name"]).startswith("aten")]


def test_times_are_exact(output: DebuggerOutput) -> None:
    output.events(
        "77-algo-1",
        [
            operator("aten::mm", 1_234, 56, step=0, thread=3),
            kernel("sgemm", 1_300, 78, step=0, device=1),
            kernel("sgemm", 1_310, 9, step=0, device=0),
        ],
    )
    run = output.imported()
    (mm,) = rows(run, "operators")
    assert (mm["start_ns"], mm["duration_ns"]) == (EPOCH_NS + 1_234 * US, 56 * US)
    kernels = {r["device"]: r["start_ns"] for r in rows(run, "kernels")}
    assert kernels == {0: EPOCH_NS + 1_310 * US, 1: EPOCH_NS + 1_300 * US}
    (trace,) = run.traces
    assert (trace.process, trace.node, trace.name) == ("77-algo-1", "algo-1", "77-algo-1")
    threads = {r["tid"] for r in rows(run, "tracks", kind="host")}
    assert threads == {"3"}


def test_steps_without_operators_end_a_trace(output: DebuggerOutput) -> None:
    job_with_operators(output, {5, 6, 9, 20})
    run = output.imported()
    names = [f"77-algo-1 window {number}" for number in (1, 2, 3)]
    assert [trace.name for trace in run.traces] == names
    assert [trace.window for trace in run.traces] == [1, 2, 3]
    steps = [marked_steps(run, trace) for trace in run.traces]
    assert [marked.source for marked in steps] == ["job"] * 3
    assert [marked.steps.names for marked in steps] == [["5", "6"], ["9"], ["20"]]


@pytest.mark.seed("DBR-07")
def test_shares_of_the_report(output: DebuggerOutput) -> None:
    own_us = job_with_operators(output, {5})
    kernels = [kernel("gemm", 5 * STEP_US + 500 * n, 100 + n, step=5) for n in range(10)]
    output.events("77-algo-1", kernels, suffix="model_timeline")
    run = output.imported()
    (finding,) = check_rules(run.reader, choose_rules(["OverallFrameworkMetrics"])).findings
    kernel_us = sum(100 + n for n in range(10))
    total_us = own_us.total() + kernel_us
    shares = finding.details["cpu_gpu_share_ratio"]
    assert shares["CPU operators"] == pytest.approx(own_us.total() / total_us)
    assert shares["GPU kernels"] == pytest.approx(kernel_us / total_us)
    listed = {row["name"]: row["time_ns"] for row in finding.details["cpu_operators"]}
    assert listed == {name: time_us * US for name, time_us in own_us.items()}
    (shown,) = show_kernels(run, ViewOptions()).traces
    assert [(row.name, row.total_ns) for row in shown.kernels] == [("gemm", kernel_us * US)]


def test_unfinished_operators_stay_spans(output: DebuggerOutput) -> None:
    begin = {"phase": "cpu_functions", "name": "aten::mm", "ph": "B", "ts": 100}
    output.events("77-algo-1", [begin, event("Forward", "Net", 0, 300)])
    run: Run = output.imported()
    assert [r["end_ns"] for r in rows(run, kind="annotation")] == [None]
    assert not run.traces
