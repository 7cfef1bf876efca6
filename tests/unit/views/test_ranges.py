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
from stepscope.run.time_range import RunRange
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views import VIEWS, ViewOptions
from tests.support.drawn_trace import START_US, copy, event, kernel, launch, step, training

Imported = Callable[..., Run]
US = 1_000
MS = 1_000_000
RANGED = [name for name, view in VIEWS.items() if "from_ns" in view.uses and "timeline" not in name]


def drawn(seed: int) -> list[dict[str, Any]]:
    """Kernels, collectives and copies at random, on two streams that overlap."""
    generator = np.random.default_rng(seed)
    events = [step(1, 0, 400), step(2, 400, 600), event("cpu_op", "aten::mm", 5, 300)]
    for number in range(1, 60):
        at, lasts = int(generator.integers(0, 950)), int(generator.integers(0, 60))
        stream = int(generator.choice([7, 20]))
        name = str(generator.choice(["gemm", "relu", "ncclDevKernel_AllReduce_Sum"]))
        events.append(launch(number, max(0, at - 20)))
        if number % 5 == 0:
            events.append(copy("Memcpy HtoD (Pinned -> Device)", at, lasts, number, 10))
        elif number % 7 == 0:
            events.append(copy("Memset (Device)", at, lasts, number, 10))
        else:
            events.append(kernel(name, at, lasts, number, stream=stream))
    return events


def busy(events: list[dict[str, Any]], begin: int, end: int, *names: str) -> int:
    """Microseconds between two that any event of these names covers, counted one by one."""
    covered = np.zeros(2000, dtype=bool)
    for one in events:
        if one["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"} and one["name"].startswith(names):
            at = round(one["ts"] - START_US)
            covered[at : at + round(one["dur"])] = True
    return int(covered[begin:end].sum())


@pytest.mark.parametrize("seed", range(3))
def test_gpu_time(imported: Imported, seed: int) -> None:
    events = drawn(seed)
    signals = imported(a=events)
    for begin, end in [(0, 1000), (100, 450), (333, 334), (700, 990)]:
        check_gpu_time(signals, events, begin, end)


def check_gpu_time(signals: Run, events: list[dict[str, Any]], begin: int, end: int) -> None:
    options = ViewOptions(from_ns=begin * US, to_ns=end * US)
    (found,) = VIEWS["gpu-time"](signals, options).traces
    device = [e for e in events if e["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    first = min(round(e["ts"] - START_US) for e in device)
    last = max(round(e["ts"] - START_US + e["dur"]) for e in device)
    compute = busy(events, begin, end, "gemm", "relu", "Memset")
    with_comm = busy(events, begin, end, "gemm", "relu", "Memset", "nccl")
    everything = busy(events, begin, end, "")
    assert found.total_ns == (min(end, last) - max(begin, first)) * US
    assert found.compute_ns == compute * US
    assert found.comm_ns == busy(events, begin, end, "nccl") * US
    assert found.exposed_comm_ns == (with_comm - compute) * US
    assert found.exposed_memcpy_ns == (everything - with_comm) * US
    assert found.busy_ns == everything * US


@pytest.mark.parametrize("seed", range(3))
def test_tables_hold_what_begins_in_the_range(imported: Imported, seed: int) -> None:
    events, begin, end = drawn(seed), 200, 600
    options = ViewOptions(from_ns=begin * US, to_ns=end * US)
    signals = imported(a=events)
    inside = [e for e in events if begin <= round(e["ts"] - START_US) < end]
    kernels = [e for e in inside if e["cat"] == "kernel"]
    (found,) = VIEWS["kernels"](signals, options).traces
    assert found.call_count == len(kernels)
    assert found.total_ns == sum(round(e["dur"]) for e in kernels) * US
    (activity,) = VIEWS["activity"](signals, options).traces
    assert sum(one.count for one in activity.activities) == len(
        [e for e in inside if e["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    )
    (launches,) = VIEWS["launches"](signals, options).traces
    calls = {e["args"]["correlation"] for e in inside if e["cat"] == "cuda_runtime"}
    work = {e["args"]["correlation"] for e in inside if e["cat"].startswith(("kernel", "gpu_"))}
    assert launches.calls[0].launch_count == len(calls & work)
    (steps,) = VIEWS["steps"](signals, options).traces
    assert [one.step for one in steps.steps] == ["2"]


def test_own_times_of_operators_need_what_begins_later(imported: Imported) -> None:
    """The inner operator begins after the range: the outer one's own time is without it."""
    events = [
        event("cpu_op", "before", 0, 10),
        event("cpu_op", "outer", 20, 60),
        event("cpu_op", "inner", 50, 20),
    ]
    options = ViewOptions(from_ns=15 * US, to_ns=40 * US)
    (found,) = VIEWS["operators"](imported(a=events), options).traces
    assert [(row.name, row.host_self_ns) for row in found.operators] == [("outer", 40 * US)]


def test_ranges_that_follow_one_another_share_nothing(imported: Imported) -> None:
    signals = imported(a=drawn(9))
    whole = VIEWS["kernels"](signals).traces[0].total_ns
    cuts = [0, 130, 250, 600, 2000]
    parts = [
        VIEWS["kernels"](signals, ViewOptions(from_ns=a * US, to_ns=b * US)).traces
        for a, b in itertools.pairwise(cuts)
    ]
    assert sum(trace.total_ns for traces in parts for trace in traces) == whole


def test_recordings_outside_the_range_are_left_out(imported: Imported) -> None:
    later = [{**one, "ts": one["ts"] + 10_000} for one in training()]
    signals = imported(a=training(), b=later)
    found = VIEWS["gpu-time"](signals, ViewOptions(from_ns=5_000 * US))
    assert [trace.trace for trace in found.traces] == ["b.json"]
    assert found.range is not None
    assert found.range.from_after_ns == 5_000 * US
    assert found.range.notes == ["left out, because they do not reach into the range: a.json"]
    nothing = VIEWS["gpu-time"](signals, ViewOptions(from_ns=5_000 * US, to_ns=6_000 * US))
    assert nothing.traces == []
    assert nothing.missing == "no recording reaches into this range of time"
    with pytest.raises(UsageError, match="ends before it starts"):
        VIEWS["gpu-time"](signals, ViewOptions(from_ns=6, to_ns=5))


def test_clocks_without_a_base_are_moved(imported: Imported) -> None:
    """The range counts from where the recording is drawn, not from 1970."""
    elsewhere = [{**one, "ts": one["ts"] - START_US + 5_000} for one in training()]
    based = {"baseTimeNanoseconds": 1_000_000_000, "traceEvents": training()}
    signals = imported(a=based, b={"traceEvents": elsewhere})
    found = VIEWS["kernels"](signals, ViewOptions(to_ns=100 * US))
    assert [trace.call_count for trace in found.traces] == [2, 2]


def test_every_view_takes_a_range(imported: Imported) -> None:
    signals = imported(a=drawn(1), b=training())
    for view in RANGED:
        for begin, end in [(0, 1), (60, 130), (10**9, 2 * 10**9)]:
            found = VIEWS[view](signals, ViewOptions(from_ns=begin * US, to_ns=end * US))
            assert found.range is not None
            assert found.range.to_after_ns == end * US
        assert VIEWS[view](signals).range is None


# --- what stepscope watched ----------------------------------------------------------------------


@pytest.fixture
def watched(tmp_path: Path) -> Run:
    run = RunBuilder(tmp_path / "run", code={"decode": "fetch > Rows.__getitem__ > decode"})
    rank = run.rank(workers=1)
    rank.draw("wait=0 60 | forward 12 | backward 20 | optimizer 8", 60, jitter=0.2)
    rank.draw("wait=0 900 | forward 12 | backward 20 | optimizer 8")
    rank.draw("wait=0 60 | forward 12 | backward 20 | optimizer 8", 39, jitter=0.2)
    rank.workers[0].draw("fetch ( samples ( do:decode 90 ) | collate 2 )", 100)
    run.metric("cpu_busy_ratio", lambda s: 0.1 if s < 4 else 0.5)
    return run.open()


def test_steps_that_begin_in_the_range(watched: Run) -> None:
    every = watched.ranks[0].steps
    begin, end = 500 * MS, 7_000 * MS
    (found,) = VIEWS["steps"](watched, ViewOptions(from_ns=begin, to_ns=end)).ranks
    at = every.start - EPOCH_NS
    inside = (at >= begin) & (at < end)
    # The tenth and last step of the warm-up begins in the range, too.
    measured = inside & (np.arange(len(every)) >= 10)
    assert found.step_count == inside.sum()
    assert found.measured_count == measured.sum()
    assert found.step_ns is not None
    assert found.step_ns.mean == pytest.approx(every.wall_ns[measured].mean())
    assert found.outlier_steps == [60]
    waiting = found.phases[0]
    total = every.phase_ns["data_wait"][measured].sum()
    assert waiting.share_ratio == pytest.approx(total / every.wall_ns[measured].sum())


def test_the_verdict_of_a_range(watched: Run) -> None:
    found = VIEWS["overview"](watched, ViewOptions(from_ns=2_000 * MS, to_ns=6_000 * MS))
    at = watched.ranks[0].steps.start - EPOCH_NS
    inside = (at >= 2_000 * MS) & (at < 6_000 * MS)
    assert found.verdict.suspect == "data_pipeline"
    assert found.verdict.step_count == inside.sum()


def test_samples_and_batches_of_a_range(watched: Run) -> None:
    within = RunRange(watched, 4_000 * MS, None)
    assert within.metrics["n0"].mean("cpu_busy_ratio") == pytest.approx(0.5)
    (rank,) = within.ranks
    (fetcher,) = within.fetchers_of(rank.process)
    fetches = fetcher.spans.of("fetch")
    assert fetches.start.min() >= EPOCH_NS + 4_000 * MS
    assert rank.making is not None
    assert rank.making.batch_count == len(fetches)
    samples = within.stack_samples(watched.processes[1])
    assert samples.t_ns.min() >= EPOCH_NS + 4_000 * MS
