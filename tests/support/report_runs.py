"""Run directories with everything that a report shows: one with the numbers of a known report, one
with many GPUs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.importers.kineto import Identity, import_trace
from stepscope.schema import SCHEMA_VERSION, JobState, JobStatus, NodeInfo, ProcessInfo, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run
from tests.support.known_statistics import (
    OPERATORS,
    TABLE,
    batch_durations,
    shuffled,
    step_durations,
    with_quantiles,
)

SECOND_NS = 1_000_000_000
START_NS = int(datetime(2021, 12, 26, 2, 26, 57, tzinfo=UTC).timestamp()) * SECOND_NS
JOB_S = 1802
FIRST_STEP_S = 100
LAST_OUTLIER = 860
"""Number of the last of the outliers: fifteen scans see all eleven of them."""


class RunFiles:
    """Writes nodes, processes, samples and spans of a run as they are given."""

    def __init__(self, path: Path, *, run_id: str = "known", start_ns: int = START_NS) -> None:
        self.path = path
        self.start_ns = start_ns
        self._logs = 0
        create_run(
            path,
            RunInfo(
                schema_version=SCHEMA_VERSION,
                run_id=run_id,
                created_ns=start_ns,
                command=["python", "train.py"],
                working_directory="/job",
                stepscope_version="0",
            ),
        )

    def node(
        self,
        name: str,
        *,
        cores: int,
        seconds: float,
        gpus: int = 0,
        done: bool = True,
        **facts: Any,
    ) -> None:
        end_ns = self.start_ns + round(seconds * SECOND_NS)
        fields: dict[str, Any] = {"memory_bytes": 100, "sample_interval_ns": SECOND_NS // 2}
        with RunWriter(self.path, name) as writer:
            writer.put_node(
                NodeInfo(
                    node=name,
                    platform="Linux",
                    cpu_model="drawn",
                    cores_total=cores,
                    cores_available=cores,
                    memory_limit_bytes=None,
                    spool="/spool",
                    clock_anchor_monotonic_ns=0,
                    clock_anchor_epoch_ns=self.start_ns,
                    gpus=[{"index": n, "memory_bytes": 100} for n in range(gpus)],
                    **(fields | facts),
                )
            )
            writer.put_status(
                JobStatus(
                    state=JobState.COMPLETED if done else JobState.IN_PROGRESS,
                    heartbeat_ns=end_ns,
                    started_ns=self.start_ns,
                    ended_ns=end_ns if done else None,
                    exit_code=0 if done else None,
                )
            )

    def process(self, name: str, node: str, pid: int, **facts: Any) -> ProcessInfo:
        fields: dict[str, Any] = {"role": "main", "parent_pid": 1, "started_ns": self.start_ns}
        info = ProcessInfo(process=name, node=node, pid=pid, **(fields | facts))
        with RunWriter(self.path, node) as writer:
            writer.put_process(info)
        return info

    def samples(
        self, node: str, series: Mapping[tuple[str, str], np.ndarray], *, every_s: float = 0.5
    ) -> None:
        """Return samples of a node by metric and device, from the start of the run."""
        with RunWriter(self.path, node) as writer:
            for (metric, device), value in series.items():
                times = self.start_ns + np.rint(np.arange(len(value)) * every_s * 1e9).astype(int)
                writer.append(
                    "metrics",
                    self._provenance(node, "1-1-0", len(value))
                    | {
                        "t_ns": times,
                        "metric": DictColumn.constant(metric, len(value)),
                        "device": DictColumn.constant(device, len(value)),
                        "value": np.asarray(value, dtype=np.float64),
                    },
                )

    def spans(
        self, process: ProcessInfo, kind: str, start_s: np.ndarray, length_s: np.ndarray
    ) -> None:
        """Return spans of one kind; times are seconds since the job began."""
        start = self.start_ns + np.rint(start_s * 1e9).astype(np.int64)
        end = self.start_ns + np.rint((start_s + length_s) * 1e9).astype(np.int64)
        count = len(start)
        columns = self._provenance(process.node, process.process, count, log=f"{process.pid}c") | {
            "kind": DictColumn.constant(kind, count),
            "name": DictColumn.constant("", count),
            "labels": DictColumn.constant(None, count),
            "start_ns": start,
            "end_ns": np.ma.MaskedArray(end, mask=np.zeros(count, dtype=np.bool_)),
            "depth": np.zeros(count, dtype=np.int64),
            "flags": np.zeros(count, dtype=np.int64),
            "value": np.ones(count, dtype=np.int64),
        }
        with RunWriter(self.path, process.node) as writer:
            writer.append("spans", columns)

    def steps(self, process: ProcessInfo, first_s: float, **phases: np.ndarray) -> None:
        """Draw consecutive steps of these phases."""
        begin = first_s + np.concatenate([[0], np.cumsum(sum(phases.values()))[:-1]])
        for kind, length in phases.items():
            self.spans(process, kind, begin, length)
            begin = begin + length

    def operators(self, process: ProcessInfo, time_us: Mapping[str, int]) -> None:
        """Make a trace of consecutive operators."""
        start, events = self.start_ns // 1000 + 200 * 1_000_000, []
        for name, us in time_us.items():
            fields = {"ph": "X", "cat": "cpu_op", "pid": process.pid, "tid": process.pid}
            events.append({**fields, "name": name, "ts": start, "dur": us})
            start += us
        with tempfile.TemporaryDirectory() as directory, RunWriter(self.path, process.node) as out:
            path = Path(directory, "window.json")
            path.write_bytes(msgspec.json.encode({"traceEvents": events}))
            identity = Identity(
                name="window", node=process.node, process=process.process, window=0, rank=None
            )
            import_trace(path, out, identity, scratch=Path(directory))

    def _provenance(self, node: str, process: str, count: int, *, log: str = "") -> dict[str, Any]:
        self._logs += 1
        fixed = {"node": node, "process": process, "log": log or f"{self._logs}f"}
        columns: dict[str, Any] = {k: DictColumn.constant(v, count) for k, v in fixed.items()}
        return columns | {"seq": np.arange(count) + 10_000_000 * self._logs}


def known_job(path: Path) -> Path:
    """Make a run of 1802 s on eight cores without a GPU, with the statistics of a known report."""
    run = RunFiles(path)
    run.node("algo-1", cores=8, seconds=JOB_S)
    positions = (1, 0.99, 0.95, 0.5, 0)

    def values(row: str, count: int) -> np.ndarray:
        return shuffled(with_quantiles(count, list(zip(positions, TABLE[row], strict=True))))

    per_core = {("core_busy_ratio", str(core)): np.full(3608, 0.6) for core in range(8)}
    per_core |= {("core_iowait_ratio", str(core)): np.zeros(3608) for core in range(8)}
    per_core |= {("cpu_busy_max_ratio", ""): np.full(3608, 0.6)}
    per_core |= {("cpu_iowait_max_ratio", ""): np.zeros(3608)}
    run.samples(
        "algo-1",
        {
            ("cpu_busy_ratio", ""): values("cpu_percent", 3605) / 100,
            ("cpu_iowait_ratio", ""): values("io_wait_percent", 3605) / 100,
            ("memory_used_bytes", ""): values("memory_percent", 3605),
            ("network_received_bytes_per_s", "eth0"): np.zeros(3605),
            ("network_sent_bytes_per_s", "eth0"): np.zeros(3605),
        },
    )
    run.samples("algo-1", per_core, every_s=JOB_S / 3608)
    loader = {"fact": "dataloader", "name": "", "num_workers": 4, "pin_memory": False}
    trainer = run.process("100-1-0", "algo-1", 100, facts=[loader])
    durations = _in_order(step_durations())
    run.steps(
        trainer,
        FIRST_STEP_S,
        forward=0.3 * durations,
        backward=0.6 * durations,
        optimizer=0.1 * durations,
    )
    making = batch_durations()
    for number in range(4):
        pid = 200 + number
        worker = run.process(f"{pid}-1-0", "algo-1", pid, role="dataloader_worker", parent_pid=100)
        worker_durations = making[number::4]
        begins = FIRST_STEP_S + np.arange(len(worker_durations)) * (1500 / len(worker_durations))
        run.spans(worker, "fetch", begins, worker_durations)
    small = {f"aten::small_{n}": 300_000 for n in range(20)}  # each 1.2 % of the sum
    run.operators(trainer, {name: us for name, (us, _) in OPERATORS.items()} | small)
    return path


def _in_order(durations: np.ndarray) -> np.ndarray:
    """Normal steps shuffled, the outliers spread over the first part of the run."""
    normal, outliers = shuffled(durations[:-11]), durations[-11:]
    positions = np.linspace(100, LAST_OUTLIER, 11).astype(int) - np.arange(11)
    return np.insert(normal, positions, outliers)


def two_gpus(path: Path) -> Path:
    """Make ten minutes of `many_gpus` on one node."""
    return many_gpus(path, nodes=1, gpus=2, seconds=600)


def many_gpus(
    path: Path, *, nodes: int = 2, gpus: int = 4, seconds: float = 1500, every_s: float = 0.5
) -> Path:
    """Make nodes whose last GPU is used less than the others; CPUs are busy while GPUs wait."""
    run = RunFiles(path, run_id="many-gpus", start_ns=1_700_000_000 * SECOND_NS)
    random = np.random.default_rng(1)
    count = round(seconds / every_s)
    wave = np.sin(np.arange(count) * every_s / 40)

    def noisy(mean: float, spread: float) -> np.ndarray:
        return np.clip(mean + 0.1 * wave + spread * random.standard_normal(count), 0, 1)

    for number in range(nodes):
        name = f"node-{number}"
        run.node(name, cores=16, seconds=seconds, gpus=gpus)
        series = {
            ("cpu_busy_ratio", ""): noisy(0.8, 0.05),
            ("cpu_iowait_ratio", ""): noisy(0, 0.02),
        }
        series[("memory_used_bytes", "")] = 100 * noisy(0.5, 0.02)
        for core in range(16):
            series[("core_busy_ratio", str(core))] = noisy(0.85, 0.1)
            series[("core_iowait_ratio", str(core))] = noisy(0.0, 0.05)
        for kind in ("busy", "iowait"):
            cores = [series[(f"core_{kind}_ratio", str(core))] for core in range(16)]
            series[(f"cpu_{kind}_max_ratio", "")] = np.max(cores, axis=0)
        for gpu in range(gpus):
            series[("gpu_busy_ratio", str(gpu))] = noisy(0.3 if gpu == gpus - 1 else 0.45, 0.25)
            series[("gpu_memory_used_bytes", str(gpu))] = 100 * noisy(0.4, 0.02)
        series[("network_received_bytes_per_s", "eth0")] = 1e8 * noisy(0.5, 0.1)
        run.samples(name, series, every_s=every_s)
        for gpu in range(gpus):
            rank = number * gpus + gpu
            process = run.process(f"{1000 + rank}-1-0", name, 1000 + rank, rank=rank)
            steps = 600
            slow = np.where(np.arange(steps) % 45 == 44, 3.0, 1.0)
            step_s = (
                (seconds - 60) / steps / 1.1 * (1 + 0.02 * random.standard_normal(steps)) * slow
            )
            run.steps(
                process,
                20,
                data_wait=0.5 * step_s,
                forward=0.15 * step_s,
                backward=0.25 * step_s,
                optimizer=0.1 * step_s,
            )
    return path
