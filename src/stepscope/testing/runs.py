"""Drawn threads become processes, nodes and a run directory.

run = RunBuilder(tmp_path / "run", code={"decode": "fetch > Rows.__getitem__ > decode"})
rank = run.rank(workers=2)
rank.draw("wait 60 | forward 12 | backward 20 | optimizer 8", 100, jitter=0.1)
for worker in rank.workers:
    worker.draw("fetch ( samples ( do:decode 118 ) | collate 2 )", 50)
run.metric("outside_cpu_cores", 0)
verdict = diagnose(run.signals())
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.diagnosis import Signals
from stepscope.importers.kineto import Identity, import_trace
from stepscope.schema import SCHEMA_VERSION, JobState, JobStatus, NodeInfo, ProcessInfo, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run, open_run
from stepscope.testing.drawing import MS, Drawing, stack_text

EPOCH_NS = 1_700_000_000_000_000_000
"""When every run begins."""
METRIC_PERIOD_NS = 500 * MS
ELSEWHERE = "main > train"
"""The stack of a thread in all the time for which none was drawn."""

Series = float | Callable[[float], float]
"""The value of a metric: always the same, or by the seconds since the run began."""


@dataclass(slots=True, kw_only=True)
class Process(Drawing):
    """A process, drawn by its first thread."""

    info: ProcessInfo
    workers: list[Process] = field(default_factory=list)
    others: list[Drawing] = field(default_factory=list)

    def thread(self) -> Drawing:
        """Another thread of it, from the beginning of the run."""
        self.others.append(Drawing(now=EPOCH_NS))
        return self.others[-1]

    def fact(self, fact: str, **fields: Any) -> Process:
        """Let the process say something of itself."""
        self.info.facts.append({"fact": fact, **fields})
        return self

    def ddp(
        self, *, exchange_ms: float, hidden_ms: float, compute_ms: float, **counts: int
    ) -> Process:
        """DDP's account of a backward pass: gradient exchange, how much of it was hidden, and the
        computation that hid it."""
        return self.fact(
            "ddp",
            backward_comm_ns=round(exchange_ms * MS),
            backward_overlap_ns=round(hidden_ms * MS),
            backward_compute_ns=round(compute_ms * MS),
            **counts,
        )

    @property
    def threads(self) -> list[tuple[int, Drawing]]:
        """All of them with their native ids."""
        return [(self.info.pid + n, thread) for n, thread in enumerate([self, *self.others])]


class RunBuilder:
    """Draws a run and writes it through the store.

    Args:
        path: where the run directory shall be.
        code: stacks by the names that `do:` pieces refer to (`stack_text`); after ` # ` the text
            of the line of the user's code that runs there.
        cores: cores available to the job on each node.
        sampling_ms: period of the stack samplers.
    """

    def __init__(
        self,
        path: Path,
        *,
        code: dict[str, str] | None = None,
        cores: float = 8,
        sampling_ms: float = 1,
    ) -> None:
        self.path = path
        self.cores = cores
        self.processes: list[Process] = []
        self.statuses: dict[str, JobStatus] = {}
        self._code = code or {}
        self._period_ns = round(sampling_ms * MS)
        self._metrics: list[tuple[str, str, str, Series]] = []
        self._pids = itertools.count(1000, 100)

    def rank(
        self, rank: int | None = None, *, workers: int | None = None, node: str = "n0", **info: Any
    ) -> Process:
        """A training process.

        Args:
            workers: its DataLoader's; None when it has no DataLoader.
            info: further fields of its `ProcessInfo`.
        """
        process = self._process(node, role="main", rank=rank, parent_pid=1, **info)
        process.inline = not workers
        if workers is not None:
            self._describe_loader(process, workers)
        for number in range(workers or 0):
            worker = self._process(node, role="dataloader_worker", parent_pid=process.info.pid)
            process.workers.append(worker.fact("dataloader_worker", worker=number))
        return process

    def metric(self, name: str, value: Series, *, device: str = "", node: str = "n0") -> RunBuilder:
        """Sample a metric every half second, from the beginning of the run to its end."""
        self._metrics.append((node, name, device, value))
        return self

    def status(self, state: JobState, *, node: str = "n0", **fields: Any) -> RunBuilder:
        """How the job stands on a node; it is `Completed` where nothing else is said."""
        times = {"heartbeat_ns": self.end_ns, "started_ns": EPOCH_NS}
        self.statuses[node] = JobStatus(state=state, **(times | fields))
        return self

    @property
    def end_ns(self) -> int:
        """When the last thread is done."""
        threads = (thread for process in self.processes for _, thread in process.threads)
        return max((thread.now for thread in threads), default=EPOCH_NS)

    def signals(self) -> Signals:
        """The run, written and opened."""
        return Signals(open_run(self.write()))

    def write(self) -> Path:
        """Write the run directory."""
        create_run(self.path, _RUN)
        nodes = [process.info.node for process in self.processes] + [m[0] for m in self._metrics]
        for node in dict.fromkeys(nodes or ["n0"]):
            with RunWriter(self.path, node) as writer:
                self._write_node(writer, node)
        return self.path

    def _process(self, node: str, **info: Any) -> Process:
        pid = next(self._pids)
        fields: dict[str, Any] = {
            "process": f"{pid}-77-0",
            "node": node,
            "pid": pid,
            "started_ns": EPOCH_NS,
        }
        process = Process(now=EPOCH_NS, info=ProcessInfo(**(fields | info)))
        process.fact("stack_sampler", period_ns=self._period_ns)
        self.processes.append(process)
        return process

    @staticmethod
    def _describe_loader(process: Process, workers: int) -> None:
        process.fact(
            "dataloader",
            name="",  # pieces without a name wait for it
            dataset="job.Rows",
            batch_size=32,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
            pin_memory=False,
            persistent_workers=False,
        )

    def _write_node(self, writer: RunWriter, node: str) -> None:
        writer.put_node(_node(node, self.cores))
        done = JobStatus(
            state=JobState.COMPLETED, heartbeat_ns=self.end_ns, started_ns=EPOCH_NS, exit_code=0
        )
        writer.put_status(self.statuses.get(node, done))
        for process in self.processes:
            if process.info.node == node:
                self._add_sources(process)
                writer.put_process(process.info)
                for thread, drawing in process.threads:
                    writer.append("spans", _span_columns(process.info, thread, drawing))
                    _import_events(writer, process.info, thread, drawing)
                    writer.append("stacks", self._stack_columns(process.info, thread, drawing))
        for number, (where, metric, device, value) in enumerate(self._metrics):
            if where == node:
                times = np.arange(EPOCH_NS, self.end_ns, METRIC_PERIOD_NS)
                values = [_at(value, (t - EPOCH_NS) / 1e9) for t in times.tolist()]
                columns = _provenance(node, "1-1-0", f"{number}f", len(times)) | {
                    "t_ns": times,
                    "metric": DictColumn.constant(metric, len(times)),
                    "device": DictColumn.constant(device, len(times)),
                    "value": np.array(values, dtype=np.float64),
                }
                writer.append("metrics", columns)

    def _add_sources(self, process: Process) -> None:
        for line, short in enumerate(self._code.values(), 1):
            stack, _, source = short.partition(" # ")
            user = [f for f in stack_text(stack).split(";") if f.endswith("|")]
            if source and user:
                process.fact("source", file=user[-1].split("|")[1], line=line, text=source)

    def _stack_columns(self, info: ProcessInfo, thread: int, drawing: Drawing) -> dict[str, Any]:
        """Samples at a steady period, in the middle of it, while anything was drawn."""
        doings = sorted(drawing.doings, key=lambda doing: doing.start)
        names = [ELSEWHERE, *(stack.partition(" # ")[0] for stack in self._code.values())]
        codes = {name: place for place, name in enumerate(self._code, 1)}
        begin, end = EPOCH_NS + self._period_ns // 2, drawing.now if doings else 0
        times = np.arange(begin, end, self._period_ns)
        starts = np.array([doing.start for doing in doings], dtype=np.int64)
        place = np.searchsorted(starts, times, side="right") - 1
        seen = np.zeros(len(times), dtype=np.int32)
        if doings:
            which = np.array([codes[doing.code] for doing in doings], dtype=np.int32)
            ends = np.array([doing.end for doing in doings], dtype=np.int64)
            seen = np.where((place >= 0) & (ends[place] > times), which[place], 0).astype(np.int32)
        return _provenance(info.node, info.process, f"{thread}f", len(times)) | {
            "t_ns": times,
            "stack": DictColumn(seen, [stack_text(name) for name in names]),
            "line": seen,
            "user_line": seen,
        }


_RUN = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id="drawn",
    created_ns=EPOCH_NS,
    command=["python", "train.py"],
    working_directory="/job",
    stepscope_version="0",
)


def _node(node: str, cores: float) -> NodeInfo:
    return NodeInfo(
        node=node,
        platform="Linux",
        cpu_model="drawn",
        cores_total=int(cores) or 1,
        cores_available=cores,
        memory_bytes=64 << 30,
        memory_limit_bytes=None,
        sample_interval_ns=METRIC_PERIOD_NS,
        spool="/spool",
        clock_anchor_monotonic_ns=0,
        clock_anchor_epoch_ns=EPOCH_NS,
    )


def _at(value: Series, seconds: float) -> float:
    return value(seconds) if callable(value) else value


def _provenance(node: str, process: str, log: str, count: int) -> dict[str, Any]:
    fixed = {"node": node, "process": process, "log": log}
    columns: dict[str, Any] = {k: DictColumn.constant(v, count) for k, v in fixed.items()}
    return columns | {"seq": np.arange(count)}


def _ints(values: Iterable[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter(values, dtype=np.int64)


def _span_columns(info: ProcessInfo, thread: int, drawing: Drawing) -> dict[str, Any]:
    spans = drawing.spans
    ends = _ints(-1 if span.end is None else span.end for span in spans)
    return _provenance(info.node, info.process, f"{thread}c", len(spans)) | {
        "kind": DictColumn.encode(span.kind for span in spans),
        "name": DictColumn.encode(span.name for span in spans),
        "labels": DictColumn.constant(None, len(spans)),
        "start_ns": _ints(span.start for span in spans),
        "end_ns": np.ma.MaskedArray(ends, mask=ends < 0),
        "depth": _ints(span.depth for span in spans),
        "flags": _ints(span.flags for span in spans),
        "value": _ints(span.value for span in spans),
    }


def _import_events(writer: RunWriter, info: ProcessInfo, thread: int, drawing: Drawing) -> None:
    """What was drawn as a profiler's rows goes the way of a real window: as Kineto's JSON."""
    events = [
        {
            "ph": "X",
            "cat": event.category,
            "name": event.name,
            "pid": 0 if event.category != "cpu_op" else info.pid,
            "tid": 7 if event.category != "cpu_op" else thread,
            "ts": msgspec.Raw(f"{event.start // 1000}.{event.start % 1000:03}".encode()),
            "dur": (event.end - event.start) / 1000,
        }
        for event in drawing.events
    ]
    if not events:
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "window.json")
        path.write_bytes(msgspec.json.encode({"traceEvents": events}))
        identity = Identity(
            name="drawn", node=info.node, process=info.process, window=0, rank=info.rank
        )
        import_trace(path, writer, identity, scratch=Path(directory))
