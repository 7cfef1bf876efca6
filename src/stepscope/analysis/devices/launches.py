"""Kernel launches: cost of the calls, delay, queue depth, and sequences that repeat.

A launch is a runtime call with the device work that it launched: one kernel, copy or set, or
the work of a whole replayed graph.

    delay          max(0, first start on the device - end of the call); unknown for work that starts
                   more than 10 us before the call: the clocks differ
    short          the summed durations on the device are below that of the call
    long call      the call takes more than 50 us
    long delay     the delay is more than 100 us
    queue depth    of a stream: +1 at the start of a call that launches onto it, -1 when the first
                   work of that launch starts there
    blocked        the depth is 1024 or more: the driver blocks the next launch

Sequences of kernels that operators launch again and again: candidates for fusion. A call is an
outermost operator; its sequence is the names of the kernels that it and the operators inside it
launch, by start. Calls of one operator with the same sequence form a row. Fusing the sequence into
one kernel saves at most the gaps between its kernels, and the memory traffic of intermediate
results, which a trace does not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, Strings
from stepscope.analysis.arrays.histograms import Buckets
from stepscope.analysis.arrays.statistics import summarize
from stepscope.analysis.devices.device_work import DeviceWork, RuntimeCalls
from stepscope.analysis.operators.operator_tree import find_outermost


class LaunchThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of long calls, long delays and blocked launches."""

    long_call_ns: int = 50_000
    long_delay_ns: int = 100_000
    blocked_count: int = 1024


DEFAULT_LAUNCH_THRESHOLDS = LaunchThresholds()


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of one trace; arrays have one entry per call and stream."""

    call: intervals.Int
    """Index of the call in `RuntimeCalls`."""
    track: intervals.Int
    """Number of the stream."""
    call_start: intervals.Int
    call_end: intervals.Int
    device_start: intervals.Int
    """Start of the first work on the stream."""
    device_ns: intervals.Int
    """Sum of the durations of the work on the stream."""
    work_count: intervals.Int

    def __len__(self) -> int:
        return len(self.call)

    def known_delays_ns(self, rows: NDArray[np.bool_]) -> intervals.Int:
        """Times from the end of the call to the start on the device, at least 0, of some launches,
        without those on a device whose clock differs."""
        is_timed = rows & (self.device_start >= self.call_start - schema.MAX_EARLY_NS)
        delays: intervals.Int = np.maximum(self.device_start - self.call_end, 0)[is_timed]
        return delays


def find_launches(work: DeviceWork, calls: RuntimeCalls) -> Launches:
    """Join device work with the calls that launched it; work without a call is dropped."""
    call_index = calls.find_rows(work.launch)
    linked = np.flatnonzero(call_index >= 0)
    order = linked[np.lexsort((work.track[linked], call_index[linked]))]
    call, track = call_index[order], work.track[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (call[1:] != call[:-1]) | (track[1:] != track[:-1])
    first = np.flatnonzero(is_first)
    if not len(first):
        empty = np.empty(0, dtype=np.int64)
        return Launches(**dict.fromkeys(Launches.__struct_fields__, empty))
    return Launches(
        call=call[first],
        track=track[first],
        call_start=calls.start[call[first]],
        call_end=calls.end[call[first]],
        device_start=np.minimum.reduceat(work.start[order], first),
        device_ns=np.add.reduceat((work.end - work.start)[order], first),
        work_count=np.diff(np.append(first, len(order))),
    )


class CallLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches by one runtime function, or by all of them."""

    call: str
    launch_count: int
    work_count: Annotated[int, schema.field_label("work")]
    """Kernels, copies and sets; a replayed graph is one launch of many."""
    call_mean_ns: Annotated[float, schema.field_label("mean call")]
    call_p95_ns: Annotated[float, schema.field_label("p95 call")]
    device_mean_ns: Annotated[float, schema.field_label("mean work")]
    delay_p50_ns: Annotated[float | None, schema.field_label("median delay")]
    """Median time from the end of the call to the start on the device, at least 0; null where the
    clocks of host and device differ."""
    delay_p95_ns: Annotated[float | None, schema.field_label("p95 delay")]
    delay_max_ns: Annotated[float | None, schema.field_label("max delay")]
    short_count: Annotated[int, schema.field_label("short work")]
    """Launches whose device work took less time than the call."""
    long_call_count: int
    """Calls longer than `long_call_ns`."""
    long_delay_count: int
    """Delays longer than `long_delay_ns`."""


def summarize_launches(
    name: str,
    launches: Launches,
    rows: NDArray[np.bool_],
    thresholds: LaunchThresholds = DEFAULT_LAUNCH_THRESHOLDS,
) -> CallLaunches | None:
    """Summarize the launches that a mask selects, under a name; None without any."""
    call_ns = (launches.call_end - launches.call_start)[rows]
    device_ns, delay_ns = launches.device_ns[rows], launches.known_delays_ns(rows)
    calls, delays = summarize(call_ns), summarize(delay_ns)
    if calls is None:
        return None
    return CallLaunches(
        call=name,
        launch_count=len(call_ns),
        work_count=int(launches.work_count[rows].sum()),
        call_mean_ns=calls.mean,
        call_p95_ns=calls.p95,
        device_mean_ns=float(device_ns.mean()),
        delay_p50_ns=None if delays is None else delays.p50,
        delay_p95_ns=None if delays is None else delays.p95,
        delay_max_ns=None if delays is None else delays.maximum,
        short_count=int((device_ns < call_ns).sum()),
        long_call_count=int((call_ns > thresholds.long_call_ns).sum()),
        long_delay_count=int((delay_ns > thresholds.long_delay_ns).sum()),
    )


def summarize_launches_by_call(
    launches: Launches, calls: RuntimeCalls, names: Strings
) -> list[CallLaunches]:
    """Summarize the launches together, as `all`, and by runtime function, most used first.

    Args:
        launches: launches of one trace.
        calls: the runtime calls that `launches.call` indexes.
        names: names of the runtime calls, by the row they were read from.
    """
    code = names.codes[calls.row[launches.call]]
    groups = [("all", np.ones(len(code), dtype=np.bool_))]
    for value in np.argsort(-np.bincount(code), kind="stable").tolist():
        groups.append((names.values[value] or "", code == value))
    return [
        statistics
        for name, rows in groups
        if (statistics := summarize_launches(name, launches, rows)) is not None
    ]


def summarize_launches_by_operator(
    launches: Launches,
    calls: RuntimeCalls,
    operator: intervals.Int,
    operators: Columns,
    *,
    top: int = 0,
) -> list[CallLaunches]:
    """Summarize the launches by the operator that made the call, by descending launch count.

    Args:
        launches: launches of one trace.
        calls: the runtime calls that `launches.call` indexes.
        operator: id of the operator of each runtime call, -1 for none, by the row it was read from.
        operators: columns `id` and `name`.
        top: limit of the rows, 0 for none.
    """
    order = np.argsort(operators["id"], kind="stable")
    ids = operators["id"][order]
    launching = operator[calls.row[launches.call]]
    index = np.searchsorted(ids, launching)
    inside = (launching >= 0) & (index < len(ids))
    code = np.full(len(launching), -1, dtype=np.int64)
    code[inside] = operators["name"].codes[order[index[inside]]]
    counts = np.bincount(code[code >= 0], minlength=1)
    rows = []
    for value in np.argsort(-counts, kind="stable")[: top or None].tolist():
        name = operators["name"].values[value] if counts[value] else None
        summary = summarize_launches(name, launches, code == value) if name is not None else None
        if summary is not None:
            rows.append(summary)
    return rows


class StreamQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Launches queued on one stream, from its first launch to its last start."""

    stream: int | None
    launch_count: int
    span_ns: int
    mean_depth: Annotated[float, schema.field_label(unit="count")]
    """Time-weighted mean."""
    largest_depth: Annotated[int, schema.field_label(unit="count")]
    blocked_ns: int
    """Time with at least `blocked_depth` launches queued."""
    depth_curve: Annotated[
        list[int], schema.field_label("depth over time", unit="count", display="curve")
    ]
    """Largest depth in each bucket."""


def measure_queue_depths(
    launches: Launches,
    buckets: Buckets | None,
    thresholds: LaunchThresholds = DEFAULT_LAUNCH_THRESHOLDS,
    *,
    streams: Mapping[int, int | None] = MappingProxyType({}),
) -> list[StreamQueue]:
    """Measure the queue depth of each stream, ordered by stream.

    Args:
        launches: launches of one trace.
        buckets: buckets of the curves; None for no curves.
        thresholds: depth at which launches are blocked.
        streams: number of the stream of each track; None where it has no number.
    """
    if not len(launches.track):
        return []
    order = np.argsort(launches.track, kind="stable")
    tracks, first = np.unique(launches.track[order], return_index=True)
    return [
        _measure_queue(launches, streams.get(track), rows, buckets, thresholds)
        for track, rows in zip(tracks.tolist(), np.split(order, first[1:]), strict=True)
    ]


def _measure_queue(
    launches: Launches,
    stream: int | None,
    rows: intervals.Int,
    buckets: Buckets | None,
    thresholds: LaunchThresholds,
) -> StreamQueue:
    call_start = launches.call_start[rows]
    # Clocks of host and device differ by some microseconds: no work starts before its launch.
    device_start = np.maximum(launches.device_start[rows], call_start)
    times = np.concatenate([call_start, device_start])
    change = np.repeat(np.array([1, -1]), len(rows))
    order = np.lexsort((-change, times))
    times, depth = times[order], np.cumsum(change[order])
    durations = np.diff(times)
    span_ns = int(times[-1] - times[0])
    return StreamQueue(
        stream=stream,
        launch_count=len(rows),
        span_ns=span_ns,
        mean_depth=float((depth[:-1] * durations).sum() / span_ns) if span_ns else 0.0,
        largest_depth=int(depth.max()),
        blocked_ns=int(durations[depth[:-1] >= thresholds.blocked_count].sum()),
        depth_curve=_find_bucket_maxima(buckets, times, depth) if buckets is not None else [],
    )


def _find_bucket_maxima(buckets: Buckets, times: intervals.Int, depth: intervals.Int) -> list[int]:
    """Find the largest depth in each bucket."""
    edges = buckets.edges
    before = np.searchsorted(times, edges[:-1], side="right") - 1
    curve = np.where(before >= 0, depth[np.maximum(before, 0)], 0)
    bucket = np.minimum(np.searchsorted(edges, times, side="right") - 1, buckets.count - 1)
    inside = bucket >= 0
    np.maximum.at(curve, bucket[inside], depth[inside])
    return [int(value) for value in curve]


MIN_KERNELS = 2
MAX_KERNELS = 12
"""Longer sequences are whole parts of the model."""
MIN_REPEATS = 2
SEQUENCE_KERNEL_COLUMNS = ("name", "operator", "start_ns", "duration_ns")
SEQUENCE_OPERATOR_COLUMNS = ("id", "name", "parent")
"""Columns of `kernels` and `operators` that are read here."""


class KernelSequence(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels that an operator launches one after another."""

    operator: str
    kernels: list[str]
    """Names by start."""
    repeat_count: Annotated[int, schema.field_label("times")]
    total_ns: Annotated[int, schema.field_label("kernel time")]
    """Sum of the durations of the kernels."""
    gap_ns: Annotated[int, schema.field_label("gaps")]
    """Time between the kernels of a sequence, summed."""
    share_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of the durations of all kernels."""


class _Sums(msgspec.Struct):
    repeat_count: int = 0
    total_ns: int = 0
    gap_ns: int = 0


def find_kernel_sequences(
    kernels: Columns, operators: Columns, is_range: NDArray[np.bool_], *, top: int = 0
) -> list[KernelSequence]:
    """Find the sequences that repeat, by descending kernel time.

    Args:
        kernels: `SEQUENCE_KERNEL_COLUMNS`.
        operators: `SEQUENCE_OPERATOR_COLUMNS`.
        is_range: mask of the operators that are ranges around others.
        top: limit of the rows, 0 for none.
    """
    owner = find_outermost(operators, is_range, kernels["operator"])
    rows = np.flatnonzero(owner >= 0)
    if not len(rows):
        return []
    start, duration = kernels["start_ns"], kernels["duration_ns"]
    rows = rows[np.lexsort((start[rows], owner[rows]))]
    first = np.flatnonzero(np.diff(owner[rows], prepend=-1))
    sums: dict[tuple[int, tuple[int, ...]], _Sums] = {}
    name_codes, operator_codes = kernels["name"].codes, operators["name"].codes
    for call in np.split(rows, first[1:]):
        if not MIN_KERNELS <= len(call) <= MAX_KERNELS:
            continue
        names = tuple(name_codes[call].tolist())
        key = (int(operator_codes[owner[call[0]]]), names)
        one = sums.setdefault(key, _Sums())
        end = np.maximum.accumulate(start[call] + duration[call])
        one.repeat_count += 1
        one.total_ns += int(duration[call].sum())
        one.gap_ns += int(np.maximum(start[call][1:] - end[:-1], 0).sum())
    all_ns = max(1, int(duration.sum()))
    repeated = [item for item in sums.items() if item[1].repeat_count >= MIN_REPEATS]
    repeated.sort(key=lambda item: -item[1].total_ns)
    return [
        KernelSequence(
            operator=str(operators["name"].values[operator]),
            kernels=[str(kernels["name"].values[name]) for name in names],
            repeat_count=one.repeat_count,
            total_ns=one.total_ns,
            gap_ns=one.gap_ns,
            share_ratio=one.total_ns / all_ns,
        )
        for (operator, names), one in repeated[: top or None]
    ]
