"""Details of one trace that tell causes apart: fetches, launches, waits, precision, occupancy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, quantities, run
from stepscope.diagnosis.verdict import Evidence

MAX_NAMED_FUNCTIONS = 3
_NUMBER = re.compile(r"\d+")
_HANDOVER_STAGES = frozenset(["Root", "Prefetch", "Model"])
"""Stages of tf.data that hand elements on, and wait for the others."""
SHORT_KERNEL_NS = 10_000
"""Launching a kernel takes the host about as long: 5 to 10 µs."""
_MATRIX_KERNEL = re.compile(
    r"gemm|gemv|conv|wgrad|dgrad|winograd|cijk_|cutlass|cudnn::(cnn|detail)", re.IGNORECASE
)
OPTIMIZER = "Optimizer.step#"
_CLOSURE = re.compile(
    r"autograd::engine::evaluate_function|DistributedDataParallel\.forward|Optimizer\.zero_grad#"
    r"|enumerate\(Data"
)
"""Operators and ranges of a closure that an optimizer step calls."""
MAX_OPERATORS_BETWEEN_READS = 5
"""Reads of values with more outermost operators between them do not follow each other."""
_ISSUERS = {
    "FSDP": re.compile(r"(?i)^fsdp::|FullyShardedDataParallel\."),
    "DDP": re.compile(r"DistributedDataParallel|\.ddp\.reducer::|distributed::reducer::"),
}
"""Names of ranges and operators of the parts of PyTorch that issue collectives themselves."""
_READS = frozenset(["aten::item", "aten::is_nonzero", "aten::_local_scalar_dense"])
"""Operators that read a value from a tensor."""


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """Work that the host calls, on the device or, without one, by itself."""

    count_per_step: float
    """Launches, or outermost operators of a trace without a device."""
    short_ratio: float
    """Share of the kernels, or outermost operators, that are too short to hide their launch."""
    median_ns: float
    """Median duration of a kernel, or of an outermost operator."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting of the host for the device."""

    count_per_step: float
    operators: list[tuple[str, float]]
    """Operators, or runtime calls outside of operators, with their share of the waiting, largest
    first."""


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a host without a device reads from tensors, one after another."""

    count: int
    time_ns: int
    """Time from read to read, without sizeable operators."""


class MatrixKernels(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of matrix products and convolutions."""

    full_precision_ratio: float
    """Share of all kernel time in those that compute in float32 without tensor cores."""
    largest: str
    """Name of the longest-running one of these."""


def measure_launches(divided: run.DividedTrace) -> Launches:
    """Measure the launches inside the steps."""
    if divided.on_host:
        durations = _read_outermost(divided).duration_ns
    else:
        work = divided.work
        inside = intervals.contains(intervals.union(divided.steps.extent), work.start)
        durations = (work.end - work.start)[inside]
    if not len(durations):
        return Launches(count_per_step=0.0, short_ratio=0.0, median_ns=0.0)
    return Launches(
        count_per_step=len(durations) / len(divided.steps.names),
        short_ratio=float((durations < SHORT_KERNEL_NS).mean()),
        median_ns=float(np.median(durations)),
    )


def measure_optimizer_ratio(divided: run.DividedTrace, *parts: str) -> float:
    """Measure the share of some parts of the steps that falls into optimizer steps; 0 where they
    are not marked."""
    ranges = read_optimizer_steps(divided)
    total_ns = sum(int(divided.part_ns[part].sum()) for part in parts)
    if not len(ranges.start) or not total_ns:
        return 0.0
    inside = divided.divide(ranges)
    return min(1.0, sum(int(inside[part].sum()) for part in parts) / total_ns)


def read_optimizer_steps(divided: run.DividedTrace) -> intervals.Intervals:
    """Read the optimizer steps. One that calls a closure starts where the last fetch, forward or
    backward pass inside it ends."""
    steps = _read_named(divided, lambda name: name.startswith(OPTIMIZER))
    inner = _read_named(divided, lambda name: _CLOSURE.match(name) is not None)
    if not len(steps.start) or not len(inner.start):
        return steps
    last = np.searchsorted(inner.start, steps.end) - 1
    has_closure = (last >= 0) & (inner.start[last] >= steps.start)
    start = np.where(has_closure, np.minimum(inner.end[last], steps.end), steps.start)
    return intervals.Intervals(start, steps.end)


def measure_reads(divided: run.DividedTrace) -> Reads:
    """Measure the time in which a host without a device reads values one after another.

    It is the time from the end of a read to that of the next, with the operators that prepare the
    value, if these are at most `MAX_OPERATORS_BETWEEN_READS`. Reads of an optimizer do not count.
    """
    series = find_read_series(divided)
    parts = divided.divide(intervals.union(series))
    time_ns = int(parts["dispatch"].sum() + parts["python"].sum())
    return Reads(count=len(series.start), time_ns=time_ns)


def describe_longest_stage(trace: run.Trace) -> list[Evidence]:
    """Name the stage of tf.data that takes longest; none where none were recorded."""
    for stage in run.measure_tf_data(trace):
        name = stage.name.rpartition("::")[2]
        if name not in _HANDOVER_STAGES:
            mean_ns = stage.total_ns / stage.call_count
            calls = quantities.count_of(stage.call_count, "call")
            text = (
                f"Of its stages {name} takes longest: {calls}, {quantities.duration(mean_ns)} each."
            )
            return [Evidence(text=text, value=mean_ns, unit="ns", source="input-pipeline")]
    return []


def find_read_series(divided: run.DividedTrace) -> intervals.Intervals:
    operators = _read_outermost(divided)
    rows = np.flatnonzero(operators.is_read)
    follows = np.diff(rows) <= MAX_OPERATORS_BETWEEN_READS + 1
    end = (operators.start_ns + operators.duration_ns)[rows]
    optimizer = read_optimizer_steps(divided)
    follows &= ~intervals.contains(optimizer, operators.start_ns[rows[1:]])
    return intervals.Intervals(end[:-1][follows], end[1:][follows])


class _Outermost(NamedTuple):
    """Outermost operators inside the steps of a trace, by start."""

    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    is_read: NDArray[np.bool_]


def _read_outermost(divided: run.DividedTrace) -> _Outermost:
    operators = divided.trace.columns(
        "operators", ("name", "depth", *analysis.TIME_COLUMNS), condition="depth <= 1"
    )
    start = operators["start_ns"]
    rows = ~analysis.match_rows(operators["name"], run.is_range) & intervals.contains(
        intervals.union(divided.steps.extent), start
    )
    rows &= operators["depth"] == operators["depth"][rows].min(initial=1)
    order = np.flatnonzero(rows)[np.argsort(start[rows], kind="stable")]
    is_read = analysis.match_rows(operators["name"], _READS.__contains__)
    return _Outermost(start[order], operators["duration_ns"][order], is_read[order])


def measure_optimizer_work_ratio(divided: run.DividedTrace) -> float:
    """Measure the share of the computation that optimizer steps call; 0 where they are not
    marked."""
    ranges = read_optimizer_steps(divided)
    if not len(ranges.start):
        return 0.0
    if divided.on_host:
        return measure_optimizer_ratio(divided, "compute")
    work, calls = divided.work, run.calls_of(divided.trace)
    row = calls.find_rows(work.launch)
    computes = work.compute & (row >= 0)
    duration = (work.end - work.start)[computes]
    if not duration.any():
        return 0.0
    is_inside = intervals.contains(ranges, calls.start[row[computes]])
    return int(duration[is_inside].sum()) / int(duration.sum())


def measure_waits_for_device(divided: run.DividedTrace) -> Waits:
    """Measure the runtime calls in which the host waits, by the operator that made them."""
    trace, activity = divided.trace, divided.activity
    calls = trace.columns("runtime_calls", ("name", "operator", *analysis.TIME_COLUMNS))
    waits = intervals.union(activity.waits)
    extent = intervals.union(divided.steps.extent)
    rows = intervals.contains(waits, calls["start_ns"]) & intervals.contains(
        extent, calls["start_ns"]
    )
    operators = trace.columns("operators", ("id", "name"))
    names = dict(zip(operators["id"].tolist(), operators["name"].codes.tolist(), strict=True))
    totals: Counter[str] = Counter()
    for row in np.flatnonzero(rows).tolist():
        code = names.get(int(calls["operator"][row]))
        name = (
            calls["name"].values[calls["name"].codes[row]]
            if code is None
            else operators["name"].values[code]
        )
        totals[str(name)] += int(calls["duration_ns"][row])
    total_ns = max(1, sum(totals.values()))
    return Waits(
        # A read of a value copies it and waits for the copy: one wait.
        count_per_step=_count_waits(calls["operator"][rows], names) / len(divided.steps.names),
        operators=[(name, time_ns / total_ns) for name, time_ns in totals.most_common(3)],
    )


def _count_waits(operator: NDArray[np.int64], names: Mapping[int, int]) -> int:
    """Count the waits: calls of one operator are one."""
    inside = np.isin(operator, list(names))
    return len(np.unique(operator[inside])) + int((~inside).sum())


def find_issuer(divided: run.DividedTrace) -> str | None:
    """Find the part of PyTorch whose collectives are in a trace; None for those of the script."""
    tables = ("annotations", "operators", "python_functions")
    names = [name for t in tables for name in divided.trace.columns(t, ("name",))["name"].values]
    issuers = (
        issuer for issuer, sign in _ISSUERS.items() if any(map(sign.search, filter(None, names)))
    )
    return next(issuers, None)


def describe_collectives(divided: run.DividedTrace, exposed_ns: float) -> str:
    """Describe the exposed collectives; of a host by name, since the training thread waits for them
    without an event of its own."""
    time = quantities.duration(exposed_ns)
    if not divided.on_host:
        return f"Collectives take {time} per step in which no other kernel runs."
    totals: Counter[str] = Counter()
    for table in ("annotations", "operators"):
        for total in run.sum_by_name([divided.trace], table):
            if analysis.is_host_communication(total.name):
                totals[total.name] += total.total_ns
    names = ", ".join(name for name, _ in totals.most_common(2))
    return (
        f"Collectives of the host ({names}) take {time} per step in which no sizeable "
        "operator runs: the training thread waits for them."
    )


def count_allocations(divided: run.DividedTrace) -> float:
    """Count the runtime calls per step that allocate or release memory."""
    calls = divided.trace.columns("runtime_calls", ("name", "start_ns"))
    return _count_per_step(
        divided, calls["start_ns"][analysis.match_rows(calls["name"], analysis.allocates_memory)]
    )


def name_long_calls(divided: run.DividedTrace, part: intervals.Intervals, suffix: str = "") -> str:
    """Name the runtime calls of `LONG_CALL_NS` with the time per step that they are in a part of
    the activity without work of the device: the longest `MAX_NAMED_FUNCTIONS`; '' without any.

    Args:
        divided: a trace.
        part: intervals of its activity.
        suffix: text after each time.
    """
    calls = divided.trace.columns(
        "runtime_calls",
        ("name", *analysis.TIME_COLUMNS),
        condition=f"duration_ns >= {analysis.LONG_CALL_NS}",
    )
    between = intervals.find_gaps(intervals.union(divided.steps.extent), divided.trace.extent)
    hidden = intervals.unite(divided.work.intervals, between)
    inside = intervals.subtract(intervals.union(part), hidden)
    times = analysis.make_intervals(calls)
    totals: Counter[str] = Counter()
    for code, time_ns in zip(
        calls["name"].codes.tolist(), intervals.overlap(times, inside).tolist(), strict=True
    ):
        totals[calls["name"].values[code]] += time_ns
    count = len(divided.steps.names)
    return ", ".join(
        f"{name} {quantities.duration(ns / count)}{suffix}"
        for name, ns in totals.most_common(MAX_NAMED_FUNCTIONS)
        if ns
    )


def count_compilations(divided: run.DividedTrace) -> float:
    """Count the separate times per step in which a compiler ran."""
    return _count_per_step(divided, intervals.union(divided.activity.compilation).start)


def measure_pageable_ratio(divided: run.DividedTrace) -> float | None:
    """Measure the share of copies to the device that read pageable memory, by duration; None
    where the profiler did not record the kind of memory."""
    copies = divided.trace.columns("copies", ("name", "duration_ns"))
    route_of = analysis.parse_copy_route
    in_words = analysis.match_rows(
        copies["name"], lambda name: route_of(name).reads_host and route_of(name).source is not None
    )
    pageable = in_words & analysis.match_rows(
        copies["name"], lambda name: "pageable" in (route_of(name).source or "")
    )
    total_ns = int(copies["duration_ns"][in_words].sum())
    return int(copies["duration_ns"][pageable].sum()) / total_ns if total_ns else None


def measure_matrix_kernels(divided: run.DividedTrace) -> MatrixKernels:
    """Measure the kernels of matrix products inside the steps; precision is guessed from names."""
    kernels = divided.trace.columns("kernels", ("name", *analysis.TIME_COLUMNS))
    inside = intervals.contains(intervals.union(divided.steps.extent), kernels["start_ns"])
    inside &= ~analysis.match_rows(kernels["name"], divided.trace.collectives.predicate())
    plain = analysis.match_rows(kernels["name"], _is_full_precision) & inside
    total_ns = int(kernels["duration_ns"][inside].sum())
    plain_ns = kernels["duration_ns"][plain]
    if not plain.any() or not total_ns:
        return MatrixKernels(full_precision_ratio=0.0, largest="")
    sums = np.bincount(kernels["name"].codes[plain], weights=plain_ns)
    return MatrixKernels(
        full_precision_ratio=int(plain_ns.sum()) / total_ns,
        largest=str(kernels["name"].values[int(sums.argmax())]),
    )


def _is_full_precision(name: str) -> bool:
    """Return whether a kernel multiplies float32 matrices without tensor cores."""
    is_matrix = _MATRIX_KERNEL.search(name) is not None
    return (
        is_matrix
        and analysis.classify_precision(name) == "FP32"
        and analysis.uses_tensor_cores(name) is False
    )


def has_tensor_cores(divided: run.DividedTrace) -> bool:
    """Return whether the device has tensor cores (compute capability 7.0) as far as recorded."""
    majors = divided.trace.columns("devices", ("compute_major",))["compute_major"]
    return bool((majors >= 7).any())


def measure_multiprocessor_ratio(divided: run.DividedTrace) -> float | None:
    """Measure the share of the multiprocessors for which kernels have a block, the mean over the
    time of kernels with a known grid; None where the profiler recorded none."""
    kernels = divided.trace.columns(
        "kernels", ("name", "blocks_per_multiprocessor", *analysis.TIME_COLUMNS)
    )
    blocks, duration = kernels["blocks_per_multiprocessor"], kernels["duration_ns"]
    inside = intervals.contains(intervals.union(divided.steps.extent), kernels["start_ns"])
    inside &= ~analysis.match_rows(kernels["name"], divided.trace.collectives.predicate())
    usable = (blocks > 0) & inside
    if not duration[usable].sum() or duration[usable].sum() < 0.5 * duration[inside].sum():
        return None
    return float(np.average(np.minimum(blocks[usable], 1.0), weights=duration[usable]))


def _read_named(divided: run.DividedTrace, test: Callable[[str], bool]) -> intervals.Intervals:
    """Read the ranges inside the steps with a name, without those nested in others."""
    operators = divided.trace.columns("operators", ("name", *analysis.TIME_COLUMNS))
    parts = [run.select_named(part, test) for part in (run.read_marks(divided.trace), operators)]
    merged = intervals.unite(intervals.EMPTY, *parts)
    inside = intervals.overlap(merged, intervals.union(divided.steps.extent)) > 0
    return intervals.Intervals(merged.start[inside], merged.end[inside])


def _count_per_step(divided: run.DividedTrace, start: NDArray[np.int64]) -> float:
    inside = intervals.contains(intervals.union(divided.steps.extent), start)
    return int(inside.sum()) / len(divided.steps.names)
