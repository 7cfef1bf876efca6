"""Views of a range of time, against what can be counted nanosecond by nanosecond."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.trace_data import NO_TRACE_IN_RANGE
from tests.support.drawn_trace import START_US, copy, event, kernel, launch, step, training

Imported = Callable[..., Run]
US = 1_000
MS = 1_000_000
RANGED = [
    name
    for name, view in VIEWS.items()
    if "from_ns" in view.uses and "timeline" not in name and name != "tensor"  # needs a name
]


def drawn(seed: int) -> list[dict[str, Any]]:
    """Return kernels, collectives and copies of a graph at random, on two streams that overlap."""
    generator = np.random.default_rng(seed)
    events = [step(1, 0, 400), step(2, 400, 600), event("cpu_op", "aten::mm", 5, 300)]
    for number in range(1, 60):
        at, duration = int(generator.integers(0, 950)), int(generator.integers(0, 60))
        stream = int(generator.choice([7, 20]))
        name = str(generator.choice(["gemm", "relu", "ncclDevKernel_AllReduce_Sum"]))
        events.append(launch(number, max(0, at - 20)))
        if number % 5 == 0:
            events.append(copy("Memcpy HtoD (Pinned -> Device)", at, duration, number, 10))
        elif number % 7 == 0:
            events.append(copy("Memset (Device)", at, duration, number, 10))
        else:
            events.append(kernel(name, at, duration, number, stream=stream))
        events[-1]["args"]["graph node id"] = number
    return events


def busy(events: list[dict[str, Any]], begin: int, end: int, *names: str) -> int:
    """Count one by one the microseconds of a range that any event of these names covers."""
    covered = np.zeros(2000, dtype=bool)
    for one in events:
        if one["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"} and one["name"].startswith(names):
            at = round(one["ts"] - START_US)
            covered[at : at + round(one["dur"])] = True
    return int(covered[begin:end].sum())


@pytest.mark.parametrize("seed", range(3))
def test_gpu_time(imported: Imported, seed: int) -> None:
    events = drawn(seed)
    run = imported(a=events)
    for begin, end in [(0, 1000), (100, 450), (333, 334), (700, 990)]:
        check_gpu_time(run, events, begin, end)


def check_gpu_time(run: Run, events: list[dict[str, Any]], begin: int, end: int) -> None:
    options = ViewOptions(from_ns=begin * US, to_ns=end * US)
    (payload,) = VIEWS["gpu-time"](run, options).traces
    device = [e for e in events if e["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    first = min(round(e["ts"] - START_US) for e in device)
    last = max(round(e["ts"] - START_US + e["dur"]) for e in device)
    compute = busy(events, begin, end, "gemm", "relu", "Memset")
    with_comm = busy(events, begin, end, "gemm", "relu", "Memset", "nccl")
    busy_time = busy(events, begin, end, "")
    assert payload.total_ns == (min(end, last) - max(begin, first)) * US
    assert payload.compute_ns == compute * US
    assert payload.comm_ns == busy(events, begin, end, "nccl") * US
    assert payload.exposed_comm_ns == (with_comm - compute) * US
    assert payload.exposed_memcpy_ns == (busy_time - with_comm) * US
    assert payload.busy_ns == busy_time * US


@pytest.mark.parametrize("seed", range(2))
def test_tables_hold_what_begins_in_the_range(imported: Imported, seed: int) -> None:
    events, begin, end = drawn(seed), 200, 600
    options = ViewOptions(from_ns=begin * US, to_ns=end * US)
    run = imported(a=events)
    inside = [e for e in events if begin <= round(e["ts"] - START_US) < end]
    kernels = [e for e in inside if e["cat"] == "kernel"]
    (payload,) = VIEWS["kernels"](run, options).traces
    assert payload.call_count == len(kernels)
    assert payload.total_ns == sum(round(e["dur"]) for e in kernels) * US
    (activity,) = VIEWS["activity"](run, options).traces
    assert sum(one.count for one in activity.activities) == len(
        [e for e in inside if e["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    )
    (launches,) = VIEWS["launches"](run, options).traces
    calls = {e["args"]["correlation"] for e in inside if e["cat"] == "cuda_runtime"}
    work = {e["args"]["correlation"] for e in inside if e["cat"].startswith(("kernel", "gpu_"))}
    assert launches.calls[0].launch_count == len(calls & work)
    (steps,) = VIEWS["steps"](run, options).traces
    assert [one.step for one in steps.steps] == ["2"]


def test_own_times_of_operators_need_what_begins_later(imported: Imported) -> None:
    """The inner operator begins after the range: the outer one's own time is without it."""
    events = [
        event("cpu_op", "before", 0, 10),
        event("cpu_op", "outer", 20, 60),
        event("cpu_op", "inner", 50, 20),
    ]
    options = ViewOptions(from_ns=15 * US, to_ns=40 * US)
    (payload,) = VIEWS["operators"](imported(a=events), options).traces
    assert [(row.name, row.host_self_ns) for row in payload.operators] == [("outer", 40 * US)]


@pytest.mark.seed("PTP-07")
def test_memory_of_a_range(imported: Imported) -> None:
    """The curve, the blocks and the operators are those of the allocations in the range."""
    events, allocated = [], 0
    for number in range(8):
        allocated += 1024 * (number + 1)
        args = {"Device Type": 1, "Device Id": 0, "Addr": number + 1, "Bytes": 1024 * (number + 1)}
        events += [
            event("cpu_op", f"aten::op{number}", 100 * number, 50),
            {
                **event("cpu_instant_event", "[memory]", 100 * number + 10, 0),
                "ph": "i",
                "args": {**args, "Total Allocated": allocated, "Total Reserved": 1 << 20},
            },
        ]
    options = ViewOptions(from_ns=300 * US, to_ns=500 * US)
    (trace,) = VIEWS["memory"](imported(a=events), options).traces
    (gpu,) = trace.devices
    assert gpu.allocated_curve_bytes == [1024 * 10, 1024 * 15]
    assert [block.operator for block in gpu.blocks] == ["aten::op4", "aten::op3"]
    assert {row.name for row in gpu.operators} == {"aten::op3", "aten::op4"}


def test_ranges_that_follow_one_another_share_nothing(imported: Imported) -> None:
    run = imported(a=drawn(9))
    total_ns = VIEWS["kernels"](run).traces[0].total_ns
    cuts = [0, 130, 250, 600, 2000]
    parts = [
        VIEWS["kernels"](run, ViewOptions(from_ns=a * US, to_ns=b * US)).traces
        for a, b in itertools.pairwise(cuts)
    ]
    assert sum(trace.total_ns for traces in parts for trace in traces) == total_ns


def test_recordings_outside_the_range_are_left_out(imported: Imported) -> None:
    later = [{**one, "ts": one["ts"] + 10_000} for one in training()]
    run = imported(a=training(), b=later)
    payload = VIEWS["gpu-time"](run, ViewOptions(from_ns=5_000 * US))
    assert [trace.trace for trace in payload.traces] == ["b.json"]
    assert payload.range is not None
    assert payload.range.from_after_ns == 5_000 * US
    assert payload.range.notes == ["excluded traces, outside the range: a.json"]
    nothing = VIEWS["gpu-time"](run, ViewOptions(from_ns=5_000 * US, to_ns=6_000 * US))
    assert nothing.traces == []
    assert nothing.missing == NO_TRACE_IN_RANGE
    with pytest.raises(UsageError, match="ends before it starts"):
        VIEWS["gpu-time"](run, ViewOptions(from_ns=6, to_ns=5))


def test_clocks_without_a_base_are_moved(imported: Imported) -> None:
    """The range counts from where the recording is drawn, not from 1970."""
    elsewhere = [{**one, "ts": one["ts"] - START_US + 5_000} for one in training()]
    based = {"baseTimeNanoseconds": 1_000_000_000, "traceEvents": training()}
    run = imported(a=based, b={"traceEvents": elsewhere})
    payload = VIEWS["kernels"](run, ViewOptions(to_ns=100 * US))
    assert [trace.call_count for trace in payload.traces] == [2, 2]


@pytest.mark.slow("evaluates every view twice")
def test_every_view_takes_a_range(imported: Imported) -> None:
    run = imported(a=drawn(1), b=training())
    for view in RANGED:
        for begin, end in [(60, 130), (10**9, 2 * 10**9)]:
            payload = VIEWS[view](run, ViewOptions(from_ns=begin * US, to_ns=end * US))
            assert payload.range is not None
            assert payload.range.to_after_ns == end * US
        assert VIEWS[view](run).range is None


# --- what stepscope watched ----------------------------------------------------------------------


def draw(path: Path) -> RunBuilder:
    builder = RunBuilder(path, code={"decode": "fetch > Rows.__getitem__ > decode"})
    rank = builder.rank(workers=1)
    rank.draw("wait=0 60 | forward 12 | backward 20 | optimizer 8", 60, jitter=0.2)
    rank.draw("wait=0 900 | forward 12 | backward 20 | optimizer 8")
    rank.draw("wait=0 60 | forward 12 | backward 20 | optimizer 8", 39, jitter=0.2)
    rank.workers[0].draw("fetch ( samples ( do:decode 90 ) | collate 2 )", 100)
    return builder.metric("cpu_busy_ratio", lambda s: 0.1 if s < 4 else 0.5)


@pytest.fixture
def watched(drawn_once: Callable[..., Run]) -> Run:
    return drawn_once(draw)


def test_steps_that_begin_in_the_range(watched: Run) -> None:
    steps = watched.ranks[0].steps
    begin, end = 500 * MS, 7_000 * MS
    (payload,) = VIEWS["steps"](watched, ViewOptions(from_ns=begin, to_ns=end)).ranks
    at = steps.start - EPOCH_NS
    inside = (at >= begin) & (at < end)
    # The tenth and last step of the warm-up begins in the range, too.
    measured = inside & (np.arange(len(steps)) >= 10)
    assert payload.step_count == inside.sum()
    assert payload.measured_count == measured.sum()
    assert payload.step_ns is not None
    assert payload.step_ns.mean == pytest.approx(steps.wall_ns[measured].mean())
    assert payload.outlier_steps == [60]
    waiting = payload.phases[0]
    total = steps.phase_ns["data_wait"][measured].sum()
    assert waiting.share_ratio == pytest.approx(total / steps.wall_ns[measured].sum())


def test_the_verdict_of_a_range(watched: Run) -> None:
    payload = VIEWS["overview"](watched, ViewOptions(from_ns=2_000 * MS, to_ns=6_000 * MS))
    at = watched.ranks[0].steps.start - EPOCH_NS
    inside = (at >= 2_000 * MS) & (at < 6_000 * MS)
    assert payload.verdict.suspect == "data_pipeline"
    assert payload.verdict.step_count == inside.sum()


def test_samples_and_batches_of_a_range(watched: Run) -> None:
    within = watched.within(4_000 * MS, None)
    assert within.metrics["n0"].mean("cpu_busy_ratio") == pytest.approx(0.5)
    (rank,) = within.ranks
    (fetcher,) = within.fetchers_of(rank.process)
    fetches = fetcher.spans.of("fetch")
    assert fetches.start.min() >= EPOCH_NS + 4_000 * MS
    assert rank.making is not None
    assert rank.making.batch_count == len(fetches)
    samples = within.stack_samples(watched.processes[1])
    assert samples.t_ns.min() >= EPOCH_NS + 4_000 * MS
