"""Samples of the machine: lines of JSON, each one value of one device at one time.

Values become ratios of 1 and stay bytes; times are read as decimal text, so that no nanosecond
passes through a double.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.importers.times import INVALID
from stepscope.intervals import Int
from stepscope.store import DictColumn

SWEEP_NS = 20_000_000
"""Samples of one round of sampling lie no further apart than this."""
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
"""What is sampled per core, and what mean and maximum over the cores are called."""
_NUMBER = re.compile(r"\D*(\d+)")
_LATEST_NS = 2**62


class _Sample(msgspec.Struct, rename="pascal", gc=False):
    """One line."""

    dimension: str
    value: float
    node_id: str
    timestamp: msgspec.Raw
    name: str = ""
    type: str = ""


_DECODER = msgspec.json.Decoder(_Sample, strict=False)


@dataclass(slots=True, kw_only=True)
class Lines:
    """The samples of one file, and what could not be read of it."""

    samples: list[_Sample]
    lost: str | None = None
    """As the rest of a sentence."""


def read_samples(path: Path) -> Lines:
    """The samples of a file; OSError when it cannot be read.

    Lines that cannot be read are left out. The last one is cut short in a file whose writer was
    stopped.
    """
    data = path.read_bytes()
    try:
        return Lines(samples=_DECODER.decode_lines(data))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    samples, unreadable = [], []
    lines = [line for line in data.split(b"\n") if line.strip(b"\0 \t\r")]
    for number, line in enumerate(lines, 1):
        try:
            samples.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            unreadable.append(number)
    if unreadable == [len(lines)]:
        return Lines(samples=samples, lost="its last line is cut short")
    return Lines(samples=samples, lost=f"{len(unreadable)} of {len(lines)} lines could not be read")


@dataclass(slots=True, kw_only=True)
class Series:
    """Samples of one node, row by row."""

    t_ns: list[int] = field(default_factory=list)
    metric: list[str] = field(default_factory=list)
    device: list[str] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def extend(self, other: Series) -> None:
        """Takes the samples of another in."""
        self.t_ns += other.t_ns
        self.metric += other.metric
        self.device += other.device
        self.value += other.value

    def columns(self) -> tuple[Int, Mapping[str, Any]]:
        """Times, and the columns of `metrics` besides provenance: in order of time, what stands
        in two copies of a file once, and with mean and maximum of the cores in each sweep."""
        rows = sorted(set(zip(self.t_ns, self.metric, self.device, self.value, strict=True)))
        for metric, names in _ACROSS_CORES.items():
            rows += _across_cores(rows, metric, *names)
        rows.sort()
        times = np.array([row[0] for row in rows], dtype=np.int64)
        return times, {
            "t_ns": times,
            "metric": DictColumn.encode(row[1] for row in rows),
            "device": DictColumn.encode(row[2] for row in rows),
            "value": np.array([row[3] for row in rows], dtype=np.float64),
        }


@dataclass(slots=True)
class Sorting:
    """Puts samples under their nodes and our names."""

    unknown: Counter[str] = field(default_factory=Counter)
    """Samples of dimensions that nobody knows, by dimension."""
    unreadable_count: int = 0
    """Samples whose time or value is no number."""
    _times: dict[bytes, int] = field(default_factory=dict)

    def by_node(self, samples: Iterable[_Sample]) -> dict[str, Series]:
        """The samples by node."""
        found: dict[str, Series] = {}
        for sample in samples:
            named = _named(sample)
            if named is None:
                self.unknown[sample.dimension] += 1
                continue
            t_ns = self._time(bytes(sample.timestamp))
            if t_ns == INVALID or not np.isfinite(sample.value):
                self.unreadable_count += 1
                continue
            series = found.get(sample.node_id)
            if series is None:
                series = found[sample.node_id] = Series()
            metric, device = named
            series.t_ns.append(t_ns)
            series.metric.append(metric)
            series.device.append(device)
            series.value.append(sample.value if metric == "network_bytes" else sample.value / 100)
        return found

    def _time(self, text: bytes) -> int:
        """Most samples of a sweep share one time."""
        found = self._times.get(text)
        if found is None:
            if len(self._times) > 100_000:
                self._times.clear()
            found = self._times[text] = nanoseconds_of_seconds(text)
        return found


def nanoseconds_of_seconds(text: bytes) -> int:
    """Decimal seconds as integer nanoseconds; `times.INVALID` when it is no number.

    >>> nanoseconds_of_seconds(b"1591160699.4570894")
    1591160699457089400
    """
    try:
        value = Decimal(text.decode().strip().strip('"')) * 10**9
        found = round(value)
    except (InvalidOperation, ValueError, OverflowError, UnicodeDecodeError):
        return int(INVALID)
    return found if abs(found) < _LATEST_NS else int(INVALID)


def _named(sample: _Sample) -> tuple[str, str] | None:
    """Metric and device. Files differ in what they call the type, so that is not looked at."""
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
    """Mean and maximum of each sweep over the cores, at the time of its first sample; `rows` are
    in order of time."""
    own = [row for row in rows if row[1] == metric]
    if not own:
        return []
    times = np.array([row[0] for row in own], dtype=np.int64)
    values = np.array([row[3] for row in own])
    first = first_of_sweeps(times)
    counts = np.diff(np.append(first, len(times)))
    figures = {
        mean: np.add.reduceat(values, first) / counts,
        highest: np.maximum.reduceat(values, first),
    }
    return [
        (t, name, "", value)
        for name, of_sweep in figures.items()
        for t, value in zip(times[first].tolist(), of_sweep.tolist(), strict=True)
    ]


def first_of_sweeps(times: Int) -> Int:
    """Places at which a sweep begins, in sorted times."""
    return np.flatnonzero(np.diff(times, prepend=times[:1] - SWEEP_NS - 1) > SWEEP_NS)
