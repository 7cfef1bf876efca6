"""Builder of run directories from drawn threads.

run = RunBuilder(tmp_path / "run", code={"decode": "fetch > Rows.__getitem__ > decode"})
rank = run.rank(workers=2)
rank.draw("wait 60 | forward 12 | backward 20 | optimizer 8", 100, jitter=0.1)
for worker in rank.workers:
    worker.draw("fetch ( samples ( do:decode 118 ) | collate 2 )", 50)
run.metric("outside_cpu_cores", 0)
verdict = diagnose(run.open())
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.importers import RecordedCall, make_call_columns
from stepscope.importers.kineto import Identity, import_trace
from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, JobState, JobStatus, NodeInfo, ProcessInfo, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run, open_run
from stepscope.testing.drawing import MS, Drawing, DrawnSpan, stack_text

EPOCH_NS = 1_700_000_000_000_000_000
"""Start of every run."""
METRIC_PERIOD_NS = 500 * MS
ELSEWHERE = "main > train"
"""Stack of a thread while it has no drawn activity."""

MetricValue = float | Callable[[float], float]
"""Value of a metric: a constant, or a function of the seconds since the start of the run."""


class DrawnProcess(Drawing, kw_only=True):
    """Process under construction, which is also its first thread."""

    info: ProcessInfo
    workers: list[DrawnProcess] = msgspec.field(default_factory=list)
    more_threads: list[Drawing] = msgspec.field(default_factory=list)
    calls: list[RecordedCall] = msgspec.field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Ranks of process groups by name."""

    def thread(self) -> Drawing:
        """Add a thread, from the start of the run."""
        self.more_threads.append(Drawing(now=EPOCH_NS))
        return self.more_threads[-1]

    def fact(self, fact: str, **fields: Any) -> DrawnProcess:
        """Add a fact to the description of the process."""
        self.info.facts.append({"fact": fact, **fields})
        return self

    def ddp(
        self, *, exchange_ms: float, hidden_ms: float, compute_ms: float, **counts: int
    ) -> DrawnProcess:
        """Add DDP's statistics of a backward pass: the gradient exchange, its overlapped time, and
        the computation."""
        return self.fact(
            "ddp",
            backward_comm_ns=round(exchange_ms * MS),
            backward_overlap_ns=round(hidden_ms * MS),
            backward_compute_ns=round(compute_ms * MS),
            **counts,
        )

    def collective(
        self,
        before_ms: float = 0,
        *,
        group: str = "0",
        purpose: str = "default_pg",
        ranks: tuple[int, ...] = (),
        name: str = "gloo:all_reduce",
    ) -> DrawnProcess:
        """Add a collective as the recorder of PyTorch has it.

        Args:
            before_ms: time from the call to the end of what is drawn.
            group: name of the process group.
            purpose: description of the group.
            ranks: ranks of the group.
            name: backend and kind of call.
        """
        if not self.calls:
            self.fact("flight_recorder", is_available=True, ring_size=2000)
        number = 1 + sum(call.process_group[0] == group for call in self.calls)
        self.groups[group] = ranks
        self.calls.append(
            RecordedCall(
                record_id=len(self.calls),
                process_group=(group, purpose),
                collective_seq_id=number,
                profiling_name=name,
                time_created_ns=self.now - round(before_ms * MS),
                retired=True,
            )
        )
        return self

    @property
    def threads(self) -> list[tuple[int, Drawing]]:
        """All threads with their native ids."""
        threads = [self, *self.more_threads]
        return [(self.info.pid + number, thread) for number, thread in enumerate(threads)]


class RunBuilder:
    """Builder of a run, which is written through the store.

    Args:
        path: the run directory to create.
        code: stacks by the names that `do:` pieces refer to (`stack_text`); after ` # ` the source
            line of the innermost frame in user code.
        cores: number of cores available to the job on a node.
        sampling_ms: period of the stack samplers.
        spool: spool of the monitors.
    """

    def __init__(
        self,
        path: Path,
        *,
        code: dict[str, str] | None = None,
        cores: float = 8,
        sampling_ms: float = 1,
        spool: str = "/spool",
    ) -> None:
        self.path = path
        self.cores = cores
        self.spool = spool
        self.processes: list[DrawnProcess] = []
        self.statuses: dict[str, JobStatus] = {}
        self._code = code or {}
        self._period_ns = round(sampling_ms * MS)
        self._metrics: list[tuple[str, str, str, MetricValue]] = []
        self._pids = itertools.count(1000, 100)

    def rank(
        self, rank: int | None = None, *, workers: int | None = None, node: str = "n0", **info: Any
    ) -> DrawnProcess:
        """Add a training process.

        Args:
            workers: number of DataLoader workers; None without a DataLoader.
            info: further fields of its `ProcessInfo`.
        """
        process = self._add_process(node, role="main", rank=rank, parent_pid=1, **info)
        process.inline = not workers
        if workers is not None:
            self._describe_loader(process, workers)
        for number in range(workers or 0):
            worker = self._add_process(node, role="dataloader_worker", parent_pid=process.info.pid)
            process.workers.append(worker.fact("dataloader_worker", worker=number))
        return process

    def metric(
        self, name: str, value: MetricValue, *, device: str = "", node: str = "n0"
    ) -> RunBuilder:
        """Add samples of a metric, every half second from the start of the run to its end."""
        self._metrics.append((node, name, device, value))
        return self

    def status(self, state: JobState, *, node: str = "n0", **fields: Any) -> RunBuilder:
        """Set the status of the job on a node; the default is `Completed`."""
        times = {"heartbeat_ns": self.end_ns, "started_ns": EPOCH_NS}
        self.statuses[node] = JobStatus(state=state, **(times | fields))
        return self

    @property
    def end_ns(self) -> int:
        """End of the last thread."""
        threads = (thread for process in self.processes for _, thread in process.threads)
        return max((thread.now for thread in threads), default=EPOCH_NS)

    def open(self) -> Run:
        """Write and open the run."""
        return Run(open_run(self.write()))

    def write(self) -> Path:
        """Write the run directory."""
        create_run(self.path, _RUN)
        nodes = [process.info.node for process in self.processes]
        nodes += [node for node, *_ in self._metrics]
        for node in dict.fromkeys(nodes or ["n0"]):
            with RunWriter(self.path, node) as writer:
                self._write_node(writer, node)
        return self.path

    def _add_process(self, node: str, **info: Any) -> DrawnProcess:
        pid = next(self._pids)
        fields: dict[str, Any] = {
            "process": f"{pid}-77-0",
            "node": node,
            "pid": pid,
            "started_ns": EPOCH_NS,
        }
        process = DrawnProcess(now=EPOCH_NS, info=ProcessInfo(**(fields | info)))
        process.fact("stack_sampler", period_ns=self._period_ns)
        self.processes.append(process)
        return process

    @staticmethod
    def _describe_loader(process: DrawnProcess, workers: int) -> None:
        process.fact(
            "dataloader",
            name="",  # `wait` without a name waits for this loader
            dataset="job.Rows",
            batch_size=32,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
            pin_memory=False,
            persistent_workers=False,
        )

    def _write_node(self, writer: RunWriter, node: str) -> None:
        writer.put_node(_node(node, self.cores, self.spool))
        completed = JobStatus(
            state=JobState.COMPLETED, heartbeat_ns=self.end_ns, started_ns=EPOCH_NS, exit_code=0
        )
        writer.put_status(self.statuses.get(node, completed))
        for process in self.processes:
            if process.info.node == node:
                self._add_sources(process)
                writer.put_process(process.info)
                if process.calls:
                    writer.append("collective_calls", _call_columns(process))
                for thread, drawing in process.threads:
                    writer.append("spans", _span_columns(process.info, thread, drawing))
                    _import_events(writer, process.info, thread, drawing)
                    writer.append("stacks", self._stack_columns(process.info, thread, drawing))
        for number, (metric_node, metric, device, value) in enumerate(self._metrics):
            if metric_node == node:
                times = np.arange(EPOCH_NS, self.end_ns, METRIC_PERIOD_NS)
                values = [_evaluate(value, (t_ns - EPOCH_NS) / 1e9) for t_ns in times.tolist()]
                columns = _provenance(node, "1-1-0", f"{number}f", len(times)) | {
                    "t_ns": times,
                    "metric": DictColumn.constant(metric, len(times)),
                    "device": DictColumn.constant(device, len(times)),
                    "value": np.array(values, dtype=np.float64),
                }
                writer.append("metrics", columns)

    def _add_sources(self, process: DrawnProcess) -> None:
        for line, short in enumerate(self._code.values(), 1):
            stack, _, source = short.partition(" # ")
            user_frames = [frame for frame in stack_text(stack).split(";") if frame.endswith("|")]
            if source and user_frames:
                file = user_frames[-1].split("|")[1]
                _, _, call = user_frames[-1].split("|")[0].partition("<call ")
                number = int(call.rstrip(">") or 0)
                process.fact("source", file=file, line=line, text=source, call=number)

    def _stack_columns(self, info: ProcessInfo, thread: int, drawing: Drawing) -> dict[str, Any]:
        """Sample at the middle of every period of a thread that has activities."""
        activities = sorted(drawing.activities, key=lambda activity: activity.start)
        names = [ELSEWHERE, *(stack.partition(" # ")[0] for stack in self._code.values())]
        codes = {name: code for code, name in enumerate(self._code, 1)}
        start, end = EPOCH_NS + self._period_ns // 2, drawing.now if activities else 0
        times = np.arange(start, end, self._period_ns)
        starts = np.array([activity.start for activity in activities], dtype=np.int64)
        index = np.searchsorted(starts, times, side="right") - 1
        stack = np.zeros(len(times), dtype=np.int32)
        if activities:
            code = np.array([codes[activity.code] for activity in activities], dtype=np.int32)
            ends = np.array([activity.end for activity in activities], dtype=np.int64)
            is_active = (index >= 0) & (ends[index] > times)
            stack = np.where(is_active, code[index], 0).astype(np.int32)
        return _provenance(info.node, info.process, f"{thread}f", len(times)) | {
            "t_ns": times,
            "stack": DictColumn(stack, [stack_text(name) for name in names]),
            "line": stack,
            "user_line": stack,
        }


_RUN = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id="drawn",
    created_ns=EPOCH_NS,
    command=["python", "train.py"],
    working_directory="/job",
    stepscope_version="0",
)


def _node(node: str, cores: float, spool: str) -> NodeInfo:
    return NodeInfo(
        node=node,
        platform="Linux",
        cpu_model="drawn",
        cores_total=int(cores) or 1,
        cores_available=cores,
        memory_bytes=64 << 30,
        memory_limit_bytes=None,
        sample_interval_ns=METRIC_PERIOD_NS,
        spool=spool,
        clock_anchor_monotonic_ns=0,
        clock_anchor_epoch_ns=EPOCH_NS,
    )


def _evaluate(value: MetricValue, seconds: float) -> float:
    return value(seconds) if callable(value) else value


def _provenance(node: str, process: str, log: str, count: int) -> dict[str, Any]:
    constants = {"node": node, "process": process, "log": log}
    columns: dict[str, Any] = {
        name: DictColumn.constant(value, count) for name, value in constants.items()
    }
    return columns | {"seq": np.arange(count)}


def _call_columns(process: DrawnProcess) -> dict[str, Any]:
    info, calls = process.info, process.calls
    columns = make_call_columns(calls, rank=info.rank, groups=process.groups)
    return _provenance(info.node, info.process, "fr", len(calls)) | columns


def _ints(values: Iterable[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter(values, dtype=np.int64)


def _span_columns(info: ProcessInfo, thread: int, drawing: Drawing) -> dict[str, Any]:
    spans = drawing.spans
    ends = _ints(-1 if span.end is None else span.end for span in spans)
    return _provenance(info.node, info.process, f"{thread}c", len(spans)) | {
        "kind": DictColumn.encode(span.kind for span in spans),
        "name": DictColumn.encode(span.name for span in spans),
        "labels": DictColumn.encode(map(_label, spans)),
        "start_ns": _ints(span.start for span in spans),
        "end_ns": np.ma.MaskedArray(ends, mask=ends < 0),
        "depth": _ints(span.depth for span in spans),
        "flags": _ints(span.flags for span in spans),
        "value": _ints(span.value for span in spans),
    }


def _label(span: DrawnSpan) -> str | None:
    """Return the labels of a span: the path of a checkpoint."""
    is_checkpoint = span.kind in {"checkpoint", "checkpoint_load"}
    return json.dumps({"path": span.name}) if is_checkpoint and span.name else None


def _import_events(writer: RunWriter, info: ProcessInfo, thread: int, drawing: Drawing) -> None:
    """Import the drawn events as Kineto JSON, in the same way as a real window."""
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
