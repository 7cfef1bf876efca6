"""Counters as the timeline draws them: mean, least and largest value of each piece of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    METRIC_KERNEL_COLUMNS,
    MultiprocessorLoad,
    group_rows,
    numeric_sort_key,
    split_by_device,
)
from stepscope.intervals import Int, Intervals, covered_until, sort_order, union
from stepscope.run import Trace
from stepscope.store import RunReader

Floats = NDArray[np.float64]
MEMORY_COLUMNS = {"allocated": "allocated_bytes", "reserved": "reserved_bytes"}
ESTIMATES = ("utilization", "sm_efficiency")
_PIECES = """
    SELECT {keys}, (t_ns - $1) // $3 AS piece, favg(value) AS mean, min(value) AS least,
        max(value) AS largest FROM ({rows})
    WHERE t_ns >= $1 - $4 AND t_ns < $2 + $4 AND isfinite(value)
    GROUP BY ALL ORDER BY {keys}, piece
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Values of one counter, of the pieces that have any, by time."""

    piece: Int
    """Pieces since the start of the window; those just outside of it may be there too."""
    mean: Floats
    least: Floats
    largest: Floats


def sampled(
    reader: RunReader,
    node: str,
    series: Sequence[tuple[str, str]],
    extent: tuple[int, int],
    *,
    width: int,
    margin: int,
) -> dict[tuple[str, str], Pieces]:
    """What the monitor sampled, by metric and device.

    Args:
        reader: the run.
        node: name of the machine.
        series: metrics and devices.
        extent: epoch nanoseconds.
        width: of a piece.
        margin: how far outside of the window samples are wanted too.
    """
    rows = "SELECT * FROM metrics WHERE node = $5 AND list_contains($6, metric)"
    metrics = sorted({metric for metric, _ in series})
    found = reader.sql(
        _PIECES.format(keys="metric, device", rows=rows),
        [*extent, width, margin, node, metrics],
        within=(extent[0] - margin, extent[1] + margin),
    )
    chosen = set(series)
    return {key: its for key, its in _split(found, "metric", "device").items() if key in chosen}


def largest_sampled(
    reader: RunReader, node: str, metrics: Sequence[str]
) -> dict[tuple[str, str], float]:
    """The largest value of the run by metric and device."""
    found = reader.sql(
        "SELECT metric, device, max(value) AS most FROM metrics "
        "WHERE node = ? AND list_contains(?, metric) AND isfinite(value) GROUP BY metric, device",
        [node, list(metrics)],
    )
    columns = (found[name].tolist() for name in ("metric", "device", "most"))
    return {(metric, device): most for metric, device, most in zip(*columns, strict=True)}


def series_of(reader: RunReader) -> dict[str, list[tuple[str, str]]]:
    """By node, every metric with every device that it was sampled of."""
    found = reader.sql("SELECT DISTINCT node, metric, device FROM metrics ORDER BY ALL")
    by_node: dict[str, list[tuple[str, str]]] = {}
    for node, metric, device in zip(*(found[n].tolist() for n in found), strict=True):
        by_node.setdefault(node, []).append((metric, device))
    return {
        node: sorted(series, key=lambda its: (its[0], *numeric_sort_key(its[1])))
        for node, series in by_node.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCounter:
    """A counter of a recording: words of its track, see `timeline_tracks`."""

    kind: str
    words: tuple[str, ...]
    name: str
    largest: float


def counters_of(reader: RunReader) -> dict[int, list[RecordedCounter]]:
    """What each recording counts, and what its allocator held."""
    found: dict[int, list[RecordedCounter]] = {}
    for query in (_COUNTERS, _MEMORY):
        rows = reader.sql(query)
        columns = (rows[name].tolist() for name in ("trace", "words", "name", "largest"))
        kind = "counter" if query == _COUNTERS else "memory"
        for trace, words, name, largest in zip(*columns, strict=True):
            own = RecordedCounter(kind=kind, words=tuple(words), name=name, largest=largest)
            found.setdefault(trace, []).append(own)
    return found


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
    SELECT trace, [CAST(device_type AS VARCHAR), CAST(device AS VARCHAR), which] AS words,
        concat('memory ', which, if(device_type = 0, ' on the host', concat(' on device ', device)))
        AS name, CAST(largest AS DOUBLE) AS largest
    FROM (UNPIVOT ({_OF_MEMORY}) ON allocated, reserved INTO NAME which VALUE largest)
    WHERE largest > 0 ORDER BY trace, words
"""  # noqa: S608 - constants


_DEVICES = """
    SELECT k.trace, k.device,
        bool_or(k.blocks_per_multiprocessor > 0 OR k.grid_x > 0 AND d.multiprocessor_count > 0)
        AS sized
    FROM kernels k LEFT JOIN devices d ON d.trace = k.trace AND d.device = k.device
    GROUP BY k.trace, k.device ORDER BY ALL
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """A value over time: `value[i]` from `time[i]` to `time[i + 1]`; NaN where none is known."""

    time: Int
    value: Floats

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return self.time.nbytes + self.value.nbytes

    def pieces(self, extent: tuple[int, int], width: int) -> Pieces:
        """Of each piece that the curve reaches into."""
        count = -(-(extent[1] - extent[0]) // width)
        edges = extent[0] + width * np.arange(count + 1, dtype=np.int64)
        begin, end = np.searchsorted(self.time, [extent[0] + 1, edges[-1]])
        # The value at the start of each piece, and every one that begins inside.
        held = np.searchsorted(self.time, edges[:-1], side="right") - 1
        place = np.searchsorted(self.time[begin:end], edges[:-1])
        since = np.insert(self.time[begin:end], place, edges[:-1])
        value = np.insert(self.value[begin:end], place, np.append(self.value, np.nan)[held])
        first = place + np.arange(count)
        known = ~np.isnan(value)
        weight = np.where(known, np.diff(since, append=edges[-1]), 0)
        total = np.add.reduceat(weight, first)
        piece = np.flatnonzero(np.logical_or.reduceat(known, first))
        mean = np.add.reduceat(np.where(known, value, 0) * weight, first) / np.maximum(total, 1)
        return Pieces(
            piece=piece,
            mean=mean[piece],
            least=np.fmin.reduceat(value, first)[piece],
            largest=np.fmax.reduceat(value, first)[piece],
        )


def recorded_curve(trace: Trace, track: int, name: str, series: str) -> Curve:
    """One value of a counter in a recording."""
    found = trace.reader.sql(
        "SELECT t_ns, value FROM counters WHERE trace = ? AND track = ? AND name = ? "
        "AND series = ? ORDER BY t_ns, id",
        [trace.trace, track, name, series],
        traces=(trace.trace,),
    )
    return Curve(time=found["t_ns"].astype(np.int64), value=found["value"].astype(np.float64))


def memory_curves(trace: Trace) -> dict[tuple[int, int, str], Curve]:
    """What the framework's allocator holds: by type and number of a device, and by which of
    `MEMORY_COLUMNS`."""
    columns = ("t_ns", "id", "device_type", "device", *MEMORY_COLUMNS.values())
    rows = trace.reader.sql(
        f"SELECT {', '.join(columns)} FROM memory_events WHERE trace = ?",  # noqa: S608 - constants
        [trace.trace],
        traces=(trace.trace,),
    )
    time = rows["t_ns"].astype(np.int64)
    order = sort_order(time, rows["id"])
    devices = group_rows(rows["device_type"][order], rows["device"][order])
    found = {}
    for place in range(len(devices)):
        own = order[devices.group == place]
        words = int(rows["device_type"][own[0]]), int(rows["device"][own[0]])
        for which, column in MEMORY_COLUMNS.items():
            known = own[~np.ma.getmaskarray(rows[column])[own]]
            value = np.ma.getdata(rows[column])[known].astype(np.float64)
            found[*words, which] = Curve(time=time[known], value=value)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceLoad:
    """How busy one device was, by the kernels of a recording."""

    busy: Intervals
    load: MultiprocessorLoad | None
    """None where the recording does not say how large its kernels are."""

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        load = self.load
        columns = (load.time, load.level, load.integral) if load else ()
        return sum(column.nbytes for column in (*self.busy, *columns))

    def pieces(self, which: str, extent: tuple[int, int], width: int) -> Pieces:
        """Shares of each piece."""
        count = -(-(extent[1] - extent[0]) // width)
        edges = extent[0] + width * np.arange(count + 1, dtype=np.int64)
        if which == "utilization":
            share = np.diff(covered_until(edges, self.busy)) / width
        else:
            share = np.array(self.load.mean(edges)) if self.load else np.full(count, np.nan)
        inside = (edges[1:] > self.busy.start.min()) & (edges[:-1] < self.busy.end.max())
        kept = np.flatnonzero(inside & ~np.isnan(share))
        return Pieces(piece=kept, mean=share[kept], least=share[kept], largest=share[kept])


def estimates_of(reader: RunReader) -> list[tuple[int, int, str]]:
    """Recordings with the devices that kernels ran on, and what can be said of those."""
    found = reader.sql(_DEVICES)
    rows = list(zip(*(found[n].tolist() for n in ("trace", "device", "sized")), strict=True))
    return [
        (trace, device, which)
        for trace, device, sized in rows
        for which in (ESTIMATES if sized else ESTIMATES[:1])
    ]


def device_loads(trace: Trace) -> dict[int, DeviceLoad]:
    """By device, of the whole recording."""
    devices = trace.columns("devices", ("device", "multiprocessor_count"))
    counts = zip(devices["device"].tolist(), devices["multiprocessor_count"].tolist(), strict=True)
    known = {device: count for device, count in counts if count > 0}
    kernels = split_by_device(trace.columns("kernels", METRIC_KERNEL_COLUMNS), known)
    return {
        device: DeviceLoad(
            busy=union(Intervals(own.start, own.end)), load=MultiprocessorLoad.from_kernels(own)
        )
        for device, own in kernels.items()
    }


def _split(found: dict[str, Any], *keys: str) -> dict[tuple[str, ...], Pieces]:
    """Rows by what they are of; they come sorted by that."""
    columns = [found[key].tolist() for key in keys]
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*columns, strict=True)):
        rows.setdefault(key, []).append(row)
    return {
        key: Pieces(
            piece=found["piece"][own].astype(np.int64),
            mean=found["mean"][own].astype(np.float64),
            least=found["least"][own].astype(np.float64),
            largest=found["largest"][own].astype(np.float64),
        )
        for key, own in rows.items()
    }
