"""Importer of samples of GPUs: logs of `nvidia-smi --query-gpu=… --format=csv` and DCGM's fields.

    nvidia-smi    header `timestamp, index, utilization.gpu [%], …`, with or without units in the
                  cells (https://docs.nvidia.com/deploy/nvidia-smi/index.html)
    DCGM          header `timestamp,gpu,DCGM_FI_DEV_GPU_UTIL,…`, as queries of its exporter give

The times of nvidia-smi are local ones without a zone: they are read in that of this machine. A cell
such as `[N/A]` is no sample.
"""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stepscope import intervals, schema, store
from stepscope.importers.content import (
    Format,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
    read_content,
    refuse,
)
from stepscope.quantities import count_of

FORMAT = Format(
    name="GPU samples",
    tables=("metrics",),
    event="row",
    sentence="{files} with samples of GPUs, {samples} in {run}",
    view="system",
)
_NVIDIA_SMI = re.compile(rb"\s*(?:[\w.]+(?: \[[^\]]*\])?, )*timestamp(?:, [\w.]+(?: \[[^\]]*\])?)+")
_DCGM = re.compile(rb"[^\r\n]*\bDCGM_FI_\w+")
_DMON = re.compile(rb"\s*#\s*(?:Entity|gpu\b)")
NO_TIMES = (
    "{path} is the output of {tool}, whose rows have no times. Record `nvidia-smi "
    "--query-gpu=timestamp,index,utilization.gpu,memory.used,power.draw --format=csv -lms 500` "
    "instead."
)
_MIB = float(1 << 20)
_METRICS: dict[str, tuple[str, float]] = {
    "utilization.gpu": ("gpu_busy_ratio", 0.01),
    "utilization.memory": ("gpu_memory_busy_ratio", 0.01),
    "memory.used": ("gpu_memory_used_bytes", _MIB),
    "power.draw": ("gpu_power_watt", 1.0),
    "power.draw.instant": ("gpu_power_watt", 1.0),
    "temperature.gpu": ("gpu_temperature_celsius", 1.0),
    "clocks.sm": ("gpu_sm_clock_megahertz", 1.0),
    "clocks.current.sm": ("gpu_sm_clock_megahertz", 1.0),
    "clocks.mem": ("gpu_memory_clock_megahertz", 1.0),
    "clocks.current.memory": ("gpu_memory_clock_megahertz", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_busy_ratio", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gpu_memory_busy_ratio", 0.01),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gpu_busy_ratio", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gpu_memory_busy_ratio", 1.0),
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_used_bytes", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_watt", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature_celsius", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_sm_clock_megahertz", 1.0),
    "DCGM_FI_DEV_MEM_CLOCK": ("gpu_memory_clock_megahertz", 1.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gpu_pcie_received_bytes_per_s", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gpu_pcie_sent_bytes_per_s", 1.0),
}
"""Metric and factor to its unit by column. DCGM's identifiers:
https://docs.nvidia.com/datacenter/dcgm/latest/reference/field-identifiers.html"""
_DEVICES = ("index", "gpu", "gpu_id", "device", "uuid", "gpu_uuid", "pci.bus_id", "serial")
"""Columns that tell GPUs apart, the best one first."""
_NAMES = {"name": "name", "gpu_name": "name", "modelName": "name", "uuid": "uuid", "UUID": "uuid"}
_TOTAL = "memory.total"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_INDEX = re.compile(r"[0-9]{1,9}")
_RANGES: dict[str, tuple[float, float]] = {
    "gpu_busy_ratio": (0.0, 1.0),
    "gpu_memory_busy_ratio": (0.0, 1.0),
    "gpu_temperature_celsius": (-100.0, 200.0),
}
"""Possible values; those of other metrics are not negative, and below 2^53."""
_MAX_S = 2**33
"""Times beyond are no seconds since 1970, but milliseconds, microseconds or nanoseconds."""


class _Samples(NamedTuple):
    """Samples of one file."""

    t_ns: list[int]
    metrics: list[str]
    devices: list[str]
    values: list[float]
    gpus: dict[str, dict[str, object]]
    """What the file states of each GPU."""
    row_count: int
    damaged_count: int


class GpuSamplesImporter:
    """Importer of samples of GPUs; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins with the header of such a log."""
        line = head.lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0]
        return any(form.match(line) for form in (_NVIDIA_SMI, _DCGM, _DMON))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import logs, each of a node of its own if there are several; see `registry.Importer`."""
        results: list[Result] = []
        with store.RunWriter(run, node) as writer:
            for index, path in enumerate(files):
                name = node if len(files) == 1 else f"{path.name.partition('.')[0]}-{index}"
                results.append(_import_file(path, writer, name))
                progress(index, 1.0)
        return results


def _import_file(path: Path, writer: store.RunWriter, node: str) -> Result:
    try:
        content = read_content(path)
        if _DMON.match(content):
            tool = "dcgmi dmon" if b"Entity" in content[:200] else "nvidia-smi dmon"
            return Refused(path, NO_TIMES.format(path=path, tool=tool))
        samples = _parse(content.decode("utf-8-sig", "replace"))
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        return refuse(path, error)
    if not samples.t_ns:
        return Refused(path, f"{path} has no samples of GPUs that stepscope knows.")
    _store(writer, node, samples)
    lost = count_of(samples.damaged_count, "damaged row") if samples.damaged_count else None
    return Recorded(
        name=path.name,
        form=FORMAT.name,
        sample_count=len(samples.t_ns),
        event_count=samples.row_count,
        lost=lost,
    )


def _parse(text: str) -> _Samples:
    """Parse a log.

    Raises:
        ValueError: it has no column of times, or several GPUs and none that tells them apart.
    """
    is_cut = not text.endswith(("\n", "\r"))
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    header = [name.partition(" [")[0].strip() for name in next(rows, [])]
    time_column = next((n for n, name in enumerate(header) if name.lower() in _TIME_NAMES), None)
    if time_column is None:
        raise ValueError("it has no column with the time of the samples")
    device_column = next((header.index(name) for name in _DEVICES if name in header), None)
    columns = _choose_columns(header)
    samples = _Samples([], [], [], [], {}, 0, 0)
    row_count = damaged_count = 0
    read_device = _number_devices(header, device_column)
    times_by_device: set[tuple[int, str]] = set()
    for row in rows:
        if not row or row[0].strip() == header[0]:  # a log that was appended to
            continue
        t_ns = _read_time(row[time_column]) if len(row) == len(header) else None
        if t_ns is None:
            damaged_count += 1
            continue
        device = read_device(row)
        if (t_ns, device) in times_by_device:
            raise ValueError("it has several GPUs, but neither their index nor their uuid")
        if device_column is None:
            times_by_device.add((t_ns, device))
        row_count += 1
        _note_gpu(samples.gpus.setdefault(device, {}), header, row)
        for column, metric, factor in columns:
            value = _read_number(row[column], metric, factor)
            if value is not None:
                samples.t_ns.append(t_ns)
                samples.metrics.append(metric)
                samples.devices.append(device)
                samples.values.append(value)
    damaged_count += is_cut and not damaged_count
    return samples._replace(row_count=row_count, damaged_count=damaged_count)


def _choose_columns(header: list[str]) -> list[tuple[int, str, float]]:
    """Return number, metric and factor of the columns: of those of one metric, such as DCGM's busy
    shares by two counters, the first one in `_METRICS`, as samples of both would be mixed."""
    columns: dict[str, tuple[int, str, float]] = {}
    for name, (metric, factor) in _METRICS.items():
        if name in header:
            columns.setdefault(metric, (header.index(name), metric, factor))
    return list(columns.values())


_TIME_NAMES = ("timestamp", "time", "ts", "date")


def _number_devices(header: list[str], column: int | None) -> Callable[[list[str]], str]:
    """Return a function that reads the number of a GPU; others than numbers are numbered in the
    order in which they appear."""
    numbers: dict[str, str] = {}

    def read(row: list[str]) -> str:
        if column is None:
            return "0"
        text = row[column].strip()
        if header[column] in {"index", "gpu", "gpu_id"} and _INDEX.fullmatch(text):
            return text
        return numbers.setdefault(text, str(len(numbers)))

    return read


def _read_time(text: str) -> int | None:
    """Read a time as epoch nanoseconds; None for other texts.

    >>> _read_time("1705312345.5"), _read_time("1705312345500"), _read_time("soon")
    (1705312345500000000, 1705312345500000000, None)
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        integer, _, fraction = text.partition(".")
        if not fraction and integer.isdecimal() and int(integer) >= _MAX_S:
            value = int(integer)
            while value < 10**17:
                value *= 1000
            return value if value < 2**62 else None
        seconds = float(text)
        return round(seconds * 1e9) if 0 < seconds < _MAX_S else None
    try:
        moment = datetime.fromisoformat(text.replace("/", "-"))
        if not 1970 < moment.year < 2200:
            return None
        return round(moment.timestamp() * 1e6) * 1000
    except (ValueError, OverflowError):
        return None


def _read_number(text: str, metric: str, factor: float) -> float | None:
    """Read a cell with or without its unit; None for `[N/A]` and impossible values."""
    match = _NUMBER.match(text.strip())
    if match is None:
        return None
    value = float(match[0]) * factor
    low, high = _RANGES.get(metric, (0.0, 2.0**53))
    return value if low <= value <= high * (1 + 1e-9) else None


def _note_gpu(gpu: dict[str, object], header: list[str], row: list[str]) -> None:
    for name, text in zip(header, row, strict=True):
        if name in _NAMES and text.strip():
            gpu.setdefault(_NAMES[name], text.strip())
        elif name == _TOTAL and (total := _read_number(text, _TOTAL, _MIB)) is not None:
            gpu.setdefault("memory_bytes", round(total))


def _store(writer: store.RunWriter, node: str, samples: _Samples) -> None:
    order = np.argsort(np.array(samples.t_ns), kind="stable")
    t_ns = np.array(samples.t_ns, dtype=np.int64)[order]
    count = len(t_ns)
    constants = {"node": node, "process": f"samples-{node}", "log": "0f"}
    columns = {key: store.DictColumn.constant(value, count) for key, value in constants.items()}
    writer.append(
        "metrics",
        {
            **columns,
            "seq": np.arange(count, dtype=np.int64),
            "t_ns": t_ns,
            "metric": store.DictColumn.encode(samples.metrics[n] for n in order.tolist()),
            "device": store.DictColumn.encode(samples.devices[n] for n in order.tolist()),
            "value": np.array(samples.values, dtype=np.float64)[order],
        },
    )
    writer.put_node(_describe_node(node, samples, t_ns))
    writer.put_status(
        schema.JobStatus(
            state=schema.JobState.STOPPED,
            heartbeat_ns=int(t_ns[-1]),
            started_ns=int(t_ns[0]),
            ended_ns=int(t_ns[-1]),
            reason="imported: the samples end here and do not record the outcome of a job",
        )
    )


def _describe_node(node: str, samples: _Samples, t_ns: intervals.Int) -> schema.NodeInfo:
    gaps = np.diff(np.unique(t_ns))
    numbers = sorted(samples.gpus, key=lambda number: (len(number), number))
    return schema.NodeInfo.of_import(
        node,
        sample_interval_ns=int(np.median(gaps)) if len(gaps) else 1_000_000_000,
        gpus=[{"index": int(number), **samples.gpus[number]} for number in numbers],
        metrics_missing={"cpu": "the log has samples of GPUs alone"},
    )
