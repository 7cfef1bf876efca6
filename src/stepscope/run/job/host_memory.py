"""Host memory of the job by node and process: growth, limit and forecast of a recorded run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from stepscope import analysis, schema
from stepscope.run.model.process_names import names_by_pid
from stepscope.run.model.run import Run

MAX_BINS = 2048
MIN_BIN_NS = 500_000_000
PROCESS_METRICS = (
    "process_anonymous_bytes",
    "process_private_bytes",
    "process_shared_bytes",
    "process_file_bytes",
    "process_shared_memory_bytes",
    "process_swap_bytes",
)
"""Memory of processes by kind."""
NODE_METRICS = (
    "job_memory_bytes",
    "job_process_count",
    "shared_memory_used_bytes",
    "shared_memory_limit_bytes",
    "cgroup_oom_kills",
)
NO_MEMORY_SAMPLES = (
    "the memory of the job was not sampled by kind: the run is of an older version, of files of "
    "other tools, or of a kernel that does not count it"
)


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one process by kind."""

    pid: int
    name: str
    """Such as `rank 0` or `DataLoader worker 1 of rank 0`."""
    info: schema.ProcessInfo | None
    """None for a process that recorded nothing."""
    start_ns: int
    end_ns: int
    """Its first and last sample."""
    first_bytes: Mapping[str, float]
    latest_bytes: Mapping[str, float]
    """First and latest sample by metric, those of `PROCESS_METRICS` that it has."""
    peak_bytes: float
    """Of its anonymous memory."""


class NodeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the job on one node."""

    node: str
    growth: analysis.HostGrowth
    processes: list[ProcessMemory]
    """In the order of their memory, largest first."""
    names: Mapping[int, str]
    """Names of the processes by pid."""
    first: Mapping[str, float]
    latest: Mapping[str, float]
    peak: Mapping[str, float]
    """First, latest and largest sample by metric, those of `NODE_METRICS` that it has."""
    has_ended: bool

    @property
    def copied_bytes(self) -> dict[str, float]:
        """Memory that DataLoader workers no longer share with other processes, by name: they, or
        all others, have written to pages that were shared at the fork."""
        copied = {}
        for process in self.processes:
            if process.info is None or process.info.role != "dataloader_worker":
                continue
            metric = "process_shared_bytes"
            if metric in process.latest_bytes:
                copied[process.name] = process.first_bytes[metric] - process.latest_bytes[metric]
        return copied

    @property
    def oom_kill_count(self) -> int | None:
        """Processes that the kernel ended because memory was full while the job ran; None where it
        does not tell."""
        if "cgroup_oom_kills" not in self.latest:
            return None
        return int(self.latest["cgroup_oom_kills"] - self.first["cgroup_oom_kills"])


def read_host_memory(run: Run) -> list[NodeMemory]:
    """Read the memory of the job on each node that has samples of it."""
    statuses = run.reader.statuses()
    return [
        memory
        for name in sorted(run.nodes)
        if (memory := _read_node(run, run.nodes[name], statuses.get(name))) is not None
    ]


def _read_node(
    run: Run, info: schema.NodeInfo, status: schema.JobStatus | None
) -> NodeMemory | None:
    extremes = _read_extremes(run, info.node)
    job = extremes.get("job_memory_bytes", {}).get("")
    if job is None:
        return None
    width_ns = max(MIN_BIN_NS, (job.end_ns - job.start_ns) // MAX_BINS)
    memory = analysis.HostMemory(machine_bytes=info.memory_bytes)
    for rank in run.ranks:
        if rank.process.node == info.node:
            steps = rank.steps
            memory.add_steps(rank.name, steps.end, steps.wall_ns)
    memory.add(_read_bins(run, info.node, width_ns))
    memory.peak_bytes, memory.use_bytes = job.peak, job.latest
    memory.latest_ns = job.end_ns
    growth = memory.measure()
    infos = {process.pid: process for process in run.processes if process.node == info.node}
    numbers = extremes.get("process_anonymous_bytes", {})
    by_pid = names_by_pid(run, info.node)
    names = {int(number): by_pid.get(int(number), f"process {number}") for number in numbers}
    processes = [
        ProcessMemory(
            pid=int(number),
            name=names[int(number)],
            info=infos.get(int(number)),
            start_ns=samples.start_ns,
            end_ns=samples.end_ns,
            first_bytes={name: one.first for name, one in _select(extremes, number).items()},
            latest_bytes={name: one.latest for name, one in _select(extremes, number).items()},
            peak_bytes=samples.peak,
        )
        for number, samples in numbers.items()
    ]
    of_node = {name: extremes[name][""] for name in NODE_METRICS if name in extremes}
    return NodeMemory(
        node=info.node,
        growth=growth,
        processes=sorted(processes, key=lambda process: (-process.peak_bytes, process.pid)),
        names=names,
        first={name: samples.first for name, samples in of_node.items()},
        latest={name: samples.latest for name, samples in of_node.items()},
        peak={name: samples.peak for name, samples in of_node.items()},
        has_ended=status is None or status.state.is_final,
    )


class _Extremes(msgspec.Struct, frozen=True):
    """First, latest and largest sample of one device."""

    first: float
    latest: float
    peak: float
    start_ns: int
    end_ns: int


def _select(extremes: Mapping[str, Mapping[str, _Extremes]], number: str) -> dict[str, _Extremes]:
    """Select the extremes of one process by metric."""
    return {
        metric: extremes[metric][number]
        for metric in PROCESS_METRICS
        if number in extremes.get(metric, {})
    }


def _read_extremes(run: Run, node: str) -> dict[str, dict[str, _Extremes]]:
    """Read the extremes of the metrics of a node and its processes, by metric and device."""
    metrics = (*NODE_METRICS, *PROCESS_METRICS)
    rows = run.reader.sql(
        "SELECT metric, device, arg_min(value, t_ns) AS first, arg_max(value, t_ns) AS latest, "  # noqa: S608 - only question marks and numbers are put in
        "max(value) AS peak, min(t_ns) AS start_ns, max(t_ns) AS end_ns FROM metrics "
        f"WHERE node = ? AND metric IN ({_marks(metrics)}) AND isfinite(value) AND "
        f"{run.period.condition('t_ns')} GROUP BY metric, device ORDER BY metric, device",
        (node, *metrics),
        within=run.period,
        node=node,
    )
    extremes: dict[str, dict[str, _Extremes]] = {}
    columns = ("first", "latest", "peak", "start_ns", "end_ns")
    for row, (metric, device) in enumerate(zip(rows["metric"], rows["device"], strict=True)):
        values = [rows[column][row].item() for column in columns]
        extremes.setdefault(str(metric), {})[str(device)] = _Extremes(*values)
    return extremes


def _read_bins(run: Run, node: str, width_ns: int) -> dict[str, dict[str, analysis.Series]]:
    """Read the least sample of each bin of time, of used memory of a cgroup the largest."""
    metrics = analysis.HOST_MEMORY_METRICS
    rows: Any = run.reader.sql(
        "SELECT metric, device, min(t_ns) AS t_ns, CASE metric WHEN 'cgroup_memory_used_bytes' "  # noqa: S608 - only question marks and numbers are put in
        "THEN max(value) ELSE min(value) END AS value FROM metrics WHERE node = ? AND metric IN "
        f"({_marks(metrics)}) AND isfinite(value) AND {run.period.condition('t_ns')} "
        f"GROUP BY metric, device, t_ns // {width_ns} ORDER BY metric, device, t_ns",
        (node, *metrics),
        within=run.period,
        node=node,
    )
    series: dict[str, dict[str, analysis.Series]] = {metric: {} for metric in metrics}
    if not len(rows["metric"]):
        return series
    names = rows["metric"].astype(str), rows["device"].astype(str)
    changes = (names[0][1:] != names[0][:-1]) | (names[1][1:] != names[1][:-1])
    borders = [0, *(np.flatnonzero(changes) + 1).tolist(), len(names[0])]
    for start, end in pairwise(borders):
        metric, device = str(names[0][start]), str(names[1][start])
        series[metric][device] = analysis.Series(
            rows["t_ns"][start:end].astype(np.int64), rows["value"][start:end].astype(np.float64)
        )
    return series


def _marks(names: Iterable[str]) -> str:
    return ", ".join("?" for _ in names)
