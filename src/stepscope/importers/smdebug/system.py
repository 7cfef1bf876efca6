"""Samples of the machine: lines of JSON, each one value of one device at one time.

Percentages become ratios, bytes stay bytes. Times are read as decimal text, so that nanoseconds do
not pass through a double.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope import intervals, schema, store
from stepscope.importers.content import INVALID

TICK_NS = 20_000_000
"""Maximum distance between samples of one sampling tick."""
_BY_DIMENSION = {
    "CPUUtilization": "core_busy_ratio",
    "I/OWaitPercentage": "core_iowait_ratio",
    "GPUUtilization": "gpu_busy_ratio",
    "GPUMemoryUtilization": "gpu_memory_used_ratio",
}
_ACROSS_CORES = {
    "core_busy_ratio": ("cpu_busy_ratio", "cpu_busy_max_ratio"),
    "core_iowait_ratio": ("cpu_iowait_ratio", "cpu_iowait_max_ratio"),
}
"""Metrics per core, with the metrics of mean and maximum over the cores."""
_NUMBER = re.compile(r"\D*(\d+)")
_MAX_NS = 2**62


class _Sample(msgspec.Struct, rename="pascal", gc=False):
    """Line of a file."""

    dimension: str
    value: float
    node_id: str
    timestamp: msgspec.Raw
    name: str = ""
    type: str = ""


_DECODER = msgspec.json.Decoder(_Sample, strict=False)


class Lines(msgspec.Struct, kw_only=True):
    """Samples of one file, and its unreadable part."""

    samples: list[_Sample]
    lost: str | None = None
    """The unreadable part, as the rest of a sentence."""


def read_samples(path: Path) -> Lines:
    """Read the samples of a file; OSError if it cannot be read.

    Unreadable lines are left out. The last one is truncated in a file whose writer was stopped.
    """
    data = path.read_bytes()
    try:
        return Lines(samples=_DECODER.decode_lines(data))
    except schema.MALFORMED_JSON:
        pass
    samples, unreadable = [], []
    lines = [line for line in data.split(b"\n") if line.strip(b"\0 \t\r")]
    for number, line in enumerate(lines, 1):
        try:
            samples.append(_DECODER.decode(line))
        except schema.MALFORMED_JSON:
            unreadable.append(number)
    if unreadable == [len(lines)]:
        return Lines(samples=samples, lost="its last line is truncated")
    return Lines(samples=samples, lost=f"{len(unreadable)} of {len(lines)} lines could not be read")


class Series(msgspec.Struct, kw_only=True):
    """Samples of one node, row by row."""

    t_ns: list[int] = msgspec.field(default_factory=list)
    metric: list[str] = msgspec.field(default_factory=list)
    device: list[str] = msgspec.field(default_factory=list)
    value: list[float] = msgspec.field(default_factory=list)

    def extend(self, series: Series) -> None:
        """Append the samples of a series."""
        self.t_ns += series.t_ns
        self.metric += series.metric
        self.device += series.device
        self.value += series.value

    def columns(self) -> tuple[intervals.Int, Mapping[str, Any]]:
        """Return times and the columns of `metrics` without provenance, in order of time.

        Duplicates from copies of a file are removed, and mean and maximum over the cores in each
        sampling tick are added.
        """
        rows = sorted(set(zip(self.t_ns, self.metric, self.device, self.value, strict=True)))
        for metric, names in _ACROSS_CORES.items():
            rows += _across_cores(rows, metric, *names)
        rows.sort()
        times = np.array([row[0] for row in rows], dtype=np.int64)
        return times, {
            "t_ns": times,
            "metric": store.DictColumn.encode(row[1] for row in rows),
            "device": store.DictColumn.encode(row[2] for row in rows),
            "value": np.array([row[3] for row in rows], dtype=np.float64),
        }


class SampleSorter(msgspec.Struct):
    """Sorts samples by node and renames their metrics."""

    unknown: Counter[str] = msgspec.field(default_factory=Counter)
    """Samples of unknown dimensions, by dimension."""
    unreadable_count: int = 0
    """Samples whose time or value is not a number."""
    _times: dict[bytes, int] = msgspec.field(default_factory=dict)

    def by_node(self, samples: Iterable[_Sample]) -> dict[str, Series]:
        """Return the samples by node."""
        by_node: dict[str, Series] = {}
        for sample in samples:
            names = _metric_and_device(sample)
            if names is None:
                self.unknown[sample.dimension] += 1
                continue
            t_ns = self._time(bytes(sample.timestamp))
            if t_ns == INVALID or not np.isfinite(sample.value):
                self.unreadable_count += 1
                continue
            series = by_node.get(sample.node_id)
            if series is None:
                series = by_node[sample.node_id] = Series()
            metric, device = names
            series.t_ns.append(t_ns)
            series.metric.append(metric)
            series.device.append(device)
            series.value.append(sample.value if metric == "network_bytes" else sample.value / 100)
        return by_node

    def _time(self, text: bytes) -> int:
        """Parse a time; most samples of a sampling tick share one."""
        t_ns = self._times.get(text)
        if t_ns is None:
            if len(self._times) > 100_000:
                self._times.clear()
            t_ns = self._times[text] = parse_seconds(text)
        return t_ns


def parse_seconds(text: bytes) -> int:
    """Convert decimal seconds to integer nanoseconds; `times.INVALID` if it is not a number.

    >>> parse_seconds(b"1591160699.4570894")
    1591160699457089400
    """
    try:
        value = Decimal(text.decode().strip().strip('"')) * 10**9
        t_ns = round(value)
    except (InvalidOperation, ValueError, OverflowError, UnicodeDecodeError):
        return int(INVALID)
    return t_ns if abs(t_ns) < _MAX_NS else int(INVALID)


def _metric_and_device(sample: _Sample) -> tuple[str, str] | None:
    """Return metric and device; the type is ignored, because files differ in its spelling."""
    metric = _BY_DIMENSION.get(sample.dimension)
    if metric is not None:
        number = _NUMBER.fullmatch(sample.name)
        return metric, number[1] if number else sample.name
    if sample.name == "MemoryUsedPercent":
        return "memory_used_ratio", ""
    if sample.dimension in {"Algorithm", "Platform"}:
        return "network_bytes", f"{sample.dimension}:{sample.name}"
    return None


_Row = tuple[int, str, str, float]


def _across_cores(rows: Sequence[_Row], metric: str, mean: str, highest: str) -> list[_Row]:
    """Return mean and maximum over the cores of each sampling tick, at its first sample.

    Args:
        rows: samples in order of time.
        metric: metric per core.
        mean, highest: metrics of mean and maximum.
    """
    core_rows = [row for row in rows if row[1] == metric]
    if not core_rows:
        return []
    times = np.array([row[0] for row in core_rows], dtype=np.int64)
    values = np.array([row[3] for row in core_rows])
    first = first_of_ticks(times)
    counts = np.diff(np.append(first, len(times)))
    figures = {
        mean: np.add.reduceat(values, first) / counts,
        highest: np.maximum.reduceat(values, first),
    }
    return [
        (t, name, "", value)
        for name, tick_values in figures.items()
        for t, value in zip(times[first].tolist(), tick_values.tolist(), strict=True)
    ]


def first_of_ticks(times: intervals.Int) -> intervals.Int:
    """Return the indices at which a sampling tick starts, in sorted times."""
    return np.flatnonzero(np.diff(times, prepend=times[:1] - TICK_NS - 1) > TICK_NS)
