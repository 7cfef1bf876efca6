"""Counters of the timeline: mean, minimum and maximum of each time bin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, run, schema, store
from stepscope.intervals import Int, Intervals, covered_until, sort_order, union

Floats = NDArray[np.float64]
MEMORY_COLUMNS = {"allocated": "allocated_bytes", "reserved": "reserved_bytes"}
ESTIMATES = ("utilization", "sm_efficiency")
_GAP_INTERVALS = 4
"""Sampling intervals without a sample that make a gap."""
_BIN_QUERY = """
    SELECT {keys}, (t_ns - $1) // $3 AS bin, favg(value) AS mean, min(value) AS minimum,
        max(value) AS maximum FROM ({rows})
    WHERE t_ns >= $1 - $4 AND t_ns < $2 + $4 AND isfinite(value)
    GROUP BY ALL ORDER BY {keys}, bin
"""


class Bins(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one counter in time order; bins without a value are absent."""

    index: Int
    """Bins since the start of the window; bins just outside of it may be included."""
    mean: Floats
    minimum: Floats
    maximum: Floats

    def mark_gaps(self, max_distance: int | Int) -> Bins:
        """Insert one bin of NaN where neighbours are more than `max_distance` bins apart.

        Args:
            max_distance: one for all pairs of neighbours, or one for each.
        """
        gaps = np.flatnonzero(np.diff(self.index) > max_distance)
        return Bins(
            index=np.insert(self.index, gaps + 1, self.index[gaps] + 1),
            mean=np.insert(self.mean, gaps + 1, np.nan),
            minimum=np.insert(self.minimum, gaps + 1, np.nan),
            maximum=np.insert(self.maximum, gaps + 1, np.nan),
        )


def load_sampled_bins(
    reader: store.RunReader,
    info: schema.NodeInfo,
    series: Sequence[tuple[str, str]],
    extent: tuple[int, int],
    *,
    width: int,
) -> dict[tuple[str, str], Bins]:
    """Load the samples of the monitor in bins, by metric and device, with marked gaps.

    Samples just outside of the window are included: they let curves reach its edges.

    Args:
        reader: reader of the run.
        info: the machine.
        series: metrics and devices.
        extent: epoch nanoseconds.
        width: nanoseconds per bin.
    """
    margin = _GAP_INTERVALS * info.max_interval_ns(*extent)
    source = "SELECT * FROM metrics WHERE node = $5 AND list_contains($6, metric)"
    metrics = sorted({metric for metric, _ in series})
    rows = reader.sql(
        _BIN_QUERY.format(keys="metric, device", rows=source),
        [*extent, width, margin, info.node, metrics],
        within=(extent[0] - margin, extent[1] + margin),
    )
    wanted_series = set(series)
    return {
        key: mark_sampling_gaps(bins, info, start_ns=extent[0], width=width)
        for key, bins in _split(rows, "metric", "device").items()
        if key in wanted_series
    }


def mark_sampling_gaps(bins: Bins, info: schema.NodeInfo, *, start_ns: int, width: int) -> Bins:
    """Insert one bin of NaN where samples of a node are missing.

    Args:
        bins: bins of a metric.
        info: the node.
        start_ns: epoch nanoseconds of the start of the first bin.
        width: nanoseconds per bin.
    """
    changes = info.interval_changes
    intervals = np.array([info.sample_interval_ns, *(change.interval_ns for change in changes)])
    starts = start_ns + bins.index * width
    # A bin may contain samples of both intervals around a change.
    of_start, of_end = (
        intervals[np.searchsorted([change.t_ns for change in changes], edges, side="right")]
        for edges in (starts, starts + width)
    )
    longest = np.maximum(np.maximum(of_start, of_end)[:-1], np.maximum(of_start, of_end)[1:])
    return bins.mark_gaps(np.maximum(1, -(-_GAP_INTERVALS * longest // width)))


def load_sampled_maxima(
    reader: store.RunReader, node: str, metrics: Sequence[str]
) -> dict[tuple[str, str], float]:
    """Load the largest value of the run by metric and device."""
    rows = reader.sql(
        "SELECT metric, device, max(value) AS maximum FROM metrics "
        "WHERE node = ? AND list_contains(?, metric) AND isfinite(value) GROUP BY metric, device",
        [node, list(metrics)],
    )
    columns = (rows[name].tolist() for name in ("metric", "device", "maximum"))
    return {(metric, device): maximum for metric, device, maximum in zip(*columns, strict=True)}


def list_sampled_series(reader: store.RunReader) -> dict[str, list[tuple[str, str]]]:
    """List sampled metrics with their devices, by node."""
    rows = reader.sql("SELECT DISTINCT node, metric, device FROM metrics ORDER BY ALL")
    by_node: dict[str, list[tuple[str, str]]] = {}
    for node, metric, device in zip(*(rows[n].tolist() for n in rows), strict=True):
        by_node.setdefault(node, []).append((metric, device))
    return {
        node: sorted(series, key=lambda item: (item[0], *analysis.numeric_sort_key(item[1])))
        for node, series in by_node.items()
    }


class TraceCounter(msgspec.Struct, frozen=True, kw_only=True):
    """A counter of a trace with the words of its track id; see `tracks`."""

    kind: str
    words: tuple[str, ...]
    name: str
    largest: float


def load_counters(reader: store.RunReader) -> dict[int, list[TraceCounter]]:
    """Load the counters and the memory series of each trace."""
    counters: dict[int, list[TraceCounter]] = {}
    for query in (_COUNTERS, _MEMORY):
        rows = reader.sql(query)
        columns = (rows[name].tolist() for name in ("trace", "words", "name", "largest"))
        kind = "counter" if query == _COUNTERS else "memory"
        for trace, words, name, largest in zip(*columns, strict=True):
            counter = TraceCounter(kind=kind, words=tuple(words), name=name, largest=largest)
            counters.setdefault(trace, []).append(counter)
    return counters


_COUNTERS = """
    SELECT trace, [CAST(track AS VARCHAR), name, series] AS words,
        concat_ws(' ', name, nullif(nullif(series, name), '')) AS name,
        coalesce(max(value) FILTER (isfinite(value)), 0) AS largest
    FROM counters GROUP BY trace, track, counters.name, series ORDER BY ALL
"""
_OF_MEMORY = """
    SELECT trace, device_type, device, max(allocated_bytes) AS allocated,
        max(reserved_bytes) AS reserved
    FROM memory_events GROUP BY trace, device_type, device
"""
_MEMORY = f"""
    SELECT trace, [CAST(device_type AS VARCHAR), CAST(device AS VARCHAR), measure] AS words,
        concat(
            'memory ', measure, if(device_type = 0, ' on the host', concat(' on device ', device))
        ) AS name, CAST(largest AS DOUBLE) AS largest
    FROM (UNPIVOT ({_OF_MEMORY}) ON allocated, reserved INTO NAME measure VALUE largest)
    WHERE largest > 0 ORDER BY trace, words
"""  # noqa: S608 - constants


_DEVICES = """
    SELECT k.trace, k.device,
        bool_or(k.blocks_per_multiprocessor > 0 OR k.grid_x > 0 AND d.multiprocessor_count > 0)
        AS sized
    FROM kernels k LEFT JOIN devices d ON d.trace = k.trace AND d.device = k.device
    GROUP BY k.trace, k.device ORDER BY ALL
"""


class Curve(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A value over time: `value[i]` from `time[i]` to `time[i + 1]`; NaN where unknown."""

    time: Int
    value: Floats

    @property
    def size_bytes(self) -> int:
        """Memory in bytes."""
        return self.time.nbytes + self.value.nbytes

    def bin_values(self, extent: tuple[int, int], width: int) -> Bins:
        """Summarize the curve in bins, weighted by time."""
        count = -(-(extent[1] - extent[0]) // width)
        edges = extent[0] + width * np.arange(count + 1, dtype=np.int64)
        first_change, last_change = np.searchsorted(self.time, [extent[0] + 1, edges[-1]])
        # The value at the start of each bin, and each value that starts inside.
        change_before = np.searchsorted(self.time, edges[:-1], side="right") - 1
        insert_at = np.searchsorted(self.time[first_change:last_change], edges[:-1])
        change_times = np.insert(self.time[first_change:last_change], insert_at, edges[:-1])
        value = np.insert(
            self.value[first_change:last_change],
            insert_at,
            np.append(self.value, np.nan)[change_before],
        )
        first_in_bin = insert_at + np.arange(count)
        is_known = ~np.isnan(value)
        weight = np.where(is_known, np.diff(change_times, append=edges[-1]), 0)
        total = np.add.reduceat(weight, first_in_bin)
        bins = np.flatnonzero(np.logical_or.reduceat(is_known, first_in_bin))
        mean = np.add.reduceat(np.where(is_known, value, 0) * weight, first_in_bin) / np.maximum(
            total, 1
        )
        return Bins(
            index=bins,
            mean=mean[bins],
            minimum=np.fmin.reduceat(value, first_in_bin)[bins],
            maximum=np.fmax.reduceat(value, first_in_bin)[bins],
        )


def load_counter_curve(trace: run.Trace, track: int, name: str, series: str) -> Curve:
    """Load one series of a counter of a trace."""
    rows = trace.reader.sql(
        "SELECT t_ns, value FROM counters WHERE trace = ? AND track = ? AND name = ? "
        "AND series = ? ORDER BY t_ns, id",
        [trace.trace, track, name, series],
        traces=(trace.trace,),
    )
    return Curve(time=rows["t_ns"].astype(np.int64), value=rows["value"].astype(np.float64))


def load_memory_curves(trace: run.Trace) -> dict[tuple[int, int, str], Curve]:
    """Load the memory held by the allocator of the framework.

    Keys are type and number of the device, and a key of `MEMORY_COLUMNS`.
    """
    columns = ("t_ns", "id", "device_type", "device", *MEMORY_COLUMNS.values())
    rows = trace.reader.sql(
        f"SELECT {', '.join(columns)} FROM memory_events WHERE trace = ?",  # noqa: S608 - constants
        [trace.trace],
        traces=(trace.trace,),
    )
    time = rows["t_ns"].astype(np.int64)
    order = sort_order(time, rows["id"])
    devices = analysis.group_rows(rows["device_type"][order], rows["device"][order])
    curves = {}
    for group in range(len(devices)):
        device_rows = order[devices.group == group]
        device = int(rows["device_type"][device_rows[0]]), int(rows["device"][device_rows[0]])
        for measure, column in MEMORY_COLUMNS.items():
            known_rows = device_rows[~np.ma.getmaskarray(rows[column])[device_rows]]
            value = np.ma.getdata(rows[column])[known_rows].astype(np.float64)
            curves[*device, measure] = Curve(time=time[known_rows], value=value)
    return curves


class DeviceLoad(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Load of one device, computed from the kernels of a trace."""

    busy: Intervals
    load: analysis.MultiprocessorLoad | None
    """None if the trace has no kernel sizes."""

    @property
    def size_bytes(self) -> int:
        """Memory in bytes."""
        load = self.load
        columns = (load.time, load.level, load.integral, *load.unknown) if load else ()
        return sum(column.nbytes for column in (*self.busy, *columns))

    def bin_values(self, measure: str, extent: tuple[int, int], width: int) -> Bins:
        """Compute the share of each bin."""
        count = -(-(extent[1] - extent[0]) // width)
        edges = extent[0] + width * np.arange(count + 1, dtype=np.int64)
        if measure == "utilization":
            share = np.diff(covered_until(edges, self.busy)) / width
        else:
            share = (
                np.array(self.load.mean(edges), dtype=np.float64)
                if self.load
                else np.full(count, np.nan)
            )
        inside = (edges[1:] > self.busy.start.min()) & (edges[:-1] < self.busy.end.max())
        indices = np.flatnonzero(inside & ~np.isnan(share))
        return Bins(
            index=indices, mean=share[indices], minimum=share[indices], maximum=share[indices]
        )


def list_estimates(reader: store.RunReader) -> list[tuple[int, int, str]]:
    """List traces, their devices with kernels, and the estimates available for each."""
    columns = reader.sql(_DEVICES)
    rows = list(zip(*(columns[n].tolist() for n in ("trace", "device", "sized")), strict=True))
    return [
        (trace, device, measure)
        for trace, device, sized in rows
        for measure in (ESTIMATES if sized else ESTIMATES[:1])
    ]


def load_device_loads(trace: run.Trace) -> dict[int, DeviceLoad]:
    """Compute the load of each device over a trace."""
    columns = trace.columns("kernels", analysis.METRIC_KERNEL_COLUMNS)
    kernels = analysis.split_by_device(columns, run.count_multiprocessors(run.read_devices(trace)))
    return {
        device: DeviceLoad(
            busy=union(Intervals(device_kernels.start, device_kernels.end)),
            load=analysis.MultiprocessorLoad.from_kernels(device_kernels),
        )
        for device, device_kernels in kernels.items()
    }


def _split(rows: dict[str, Any], *keys: str) -> dict[tuple[str, ...], Bins]:
    """Split rows, which are sorted by their keys, into the bins of each key."""
    key_columns = [rows[key].tolist() for key in keys]
    rows_by_key: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*key_columns, strict=True)):
        rows_by_key.setdefault(key, []).append(row)
    return {
        key: Bins(
            index=rows["bin"][bin_rows].astype(np.int64),
            mean=rows["mean"][bin_rows].astype(np.float64),
            minimum=rows["minimum"][bin_rows].astype(np.float64),
            maximum=rows["maximum"][bin_rows].astype(np.float64),
        )
        for key, bin_rows in rows_by_key.items()
    }
