"""Small Kineto files, and the rows of their import, in memory.

tables = imported(trace(op("aten::mm", 0, 900), launch(100, 50, 1), kernel(400, 800, 1)))
assert tables.one("kernels")["launch"] == 1
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from stepscope.importers import Imported
from stepscope.importers.kineto import Identity, import_trace
from stepscope.importers.kineto.execution_trace import ExecutionTrace
from stepscope.schema import TABLES
from stepscope.store import DictColumn, RunWriter
from stepscope.store.engine import make_batch

BASE_NS = 1_700_000_000_000_000_000
Event = dict[str, Any]
Row = dict[str, Any]


def microseconds(nanoseconds: int) -> msgspec.Raw:
    """Return the exact decimal text of a time."""
    sign = "-" if nanoseconds < 0 else ""
    integer, rest = divmod(abs(nanoseconds), 1000)
    return msgspec.Raw(f"{sign}{integer}.{rest:03}".encode())


def span(
    category: str, name: str, start: int, duration: int, *, pid: Any = 10, tid: Any = 1, **more: Any
) -> Event:
    """Return a range; times are nanoseconds since the base of the file."""
    times = {"ts": microseconds(start), "dur": microseconds(duration)}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, **more}


def op(
    name: str,
    start: int,
    duration: int,
    args: Mapping[str, Any] | None = None,
    *,
    external: int | None = None,
    **more: Any,
) -> Event:
    """Return an operator."""
    return span("cpu_op", name, start, duration, args=_args(args, external), **more)


def launch(
    start: int,
    duration: int,
    correlation: int | None,
    args: Mapping[str, Any] | None = None,
    *,
    external: int | None = None,
    category: str = "cuda_runtime",
    name: str = "cudaLaunchKernel",
    **more: Any,
) -> Event:
    """Return a call of the runtime."""
    linked = {} if correlation is None else {"correlation": correlation}
    args = _args({**linked, **(args or {})}, external)
    return span(category, name, start, duration, args=args, **more)


def kernel(
    start: int,
    duration: int,
    correlation: int | None,
    args: Mapping[str, Any] | None = None,
    *,
    name: str = "gemm",
    category: str = "kernel",
    device: int = 0,
    stream: int = 7,
    **more: Any,
) -> Event:
    """Return work of a device."""
    linked = {} if correlation is None else {"correlation": correlation}
    position = {"pid": device, "tid": stream} | more
    fields = {"device": device, "stream": stream, **linked, **(args or {})}
    return span(category, name, start, duration, args=fields, **position)


def wait(name: str, start: int, duration: int, **args: Any) -> Event:
    """Return the record of a wait for device work."""
    fields = {"cuda_sync_kind": name, **args, "device": 0, "context": 1}
    return span("cuda_sync", name, start, duration, pid=0, tid=args.get("stream", -1), args=fields)


def python(
    name: str,
    start: int,
    duration: int,
    number: int | None = None,
    parent: int | None = None,
    module: int | None = None,
    **more: Any,
) -> Event:
    """Return a call of a Python function or module."""
    numbers = {"Python id": number, "Python parent id": parent, "Python module id": module}
    args = {key: value for key, value in numbers.items() if value is not None}
    return span("python_function", name, start, duration, args=args, **more)


def memory(at: int, size: int, *, tid: Any = 1, **args: Any) -> Event:
    """Return an allocation or, with a negative size, a release."""
    fields = {"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": size, **args}
    position = {"pid": 10, "tid": tid, "ts": microseconds(at), "s": "t"}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", **position, "args": fields}


def training() -> list[Event]:
    """Return a step with modules, nested operators, launches and device work."""
    return [
        {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 1, "args": {"name": "thread 1"}},
        span("user_annotation", "ProfilerStep#3", 0, 9_000, args={"External id": 1}),
        python("nn.Module: Net_0", 100, 8_000, 1, None, 0),
        python("train.py(12): forward", 200, 7_000, 2, 1),
        op("aten::linear", 1_000, 4_000, {"Input Dims": [[8, 4]]}, external=2),
        op("aten::addmm", 1_500, 3_000, {"Sequence number": 5}, external=3),
        launch(2_000, 500, 7, external=3),
        memory(2_600, 512, **{"Total Allocated": 512}),
        launch(5_500, 300, 8, name="cudaMemcpyAsync"),
        span("gpu_user_annotation", "ProfilerStep#3", 2_999, 6_003, pid=0, tid=7),
        kernel(3_000, 2_500, 7, {"grid": [2, 3, 1], "block": [64, 1, 1]}),
        kernel(6_000, 900, 8, {"bytes": 64}, category="gpu_memcpy", name="Memcpy HtoD"),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 10, "tid": 1, "ts": 2},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 0, "tid": 7, "ts": 3, "bp": "e"},
    ]


_COLLECTIVE = {
    "Collective name": "allreduce",
    "dtype": "Float",
    "In msg nelems": 100,
    "Out msg nelems": 100,
    "Group size": 2,
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, ...]",
    "In split size": "[]",
    "Out split size": "[]",
    "Seq": 12,
    "Rank": 1,
    "Comms Id": 4711,
}


def many_kinds() -> list[Event]:
    """Return events of every table, with names and values that are easily corrupted."""
    return [
        *training(),
        op('quo"ted \\ \n☃', 10_001, 999, {"Concrete Inputs": ["1", "", "[2]"]}, external=11),
        op(
            "shy",
            11_111,
            0,
            {"Input type": ["float", ""], "Record function id": 3, "odd": {"a": []}},
        ),
        op("record_param_comms", 12_000, 10, _COLLECTIVE, external=12),
        op("record_param_comms", 13_000, 10, {"dtype": "Float"}, external=13),
        op("fwd", 14_000, 10, {"Sequence number": 9, "Fwd thread id": 0}, external=14),
        op("bwd", 15_000, 10, {"Sequence number": 9, "Fwd thread id": 1}, external=15, tid=2),
        op("old", 15_500, 10, {"Call stack": "a.py(1): f;b.py(2): g", "Module Hierarchy": "N"}),
        launch(16_000, 10, 21, {"cbid": 211}, category="cuda_driver", name="cuLaunchKernel"),
        kernel(
            17_001,
            1_234,
            21,
            {
                "queued": 5,
                "context": 1,
                "registers per thread": 32,
                "shared memory": 0,
                "blocks per SM": 0.075758,
                "warps per SM": 1e-07,
                "grid": [1, 2, 3],
                "block": [128, 1, 1],
                "est. achieved occupancy %": 13,
                "graph id": 3,
                "graph node id": 12884901891,
                "priority": 0,
                **_COLLECTIVE,
            },
        ),
        kernel(19_000, 100, 777, {"bytes": 4096}, category="gpu_memset", name="Memset (Device)"),
        memory(20_000, -512, Addr=2**64 - 4096),
        span("gpu_user_annotation", "step", 17_000, 9, pid=0, tid=7, args={"External id": 77}),
        span("user_annotation", "step", 16_000, 9, args={"External id": 77}),
        span("user_annotation", "step", 16_500, 9, args={"External id": 78}),
        wait(
            "Stream Wait Event",
            21_000,
            7,
            correlation=21,
            stream=7,
            wait_on_stream=20,
            wait_on_cuda_event_record_corr_id=18,
            wait_on_cuda_event_id=3,
        ),
        wait(
            "Event Sync",
            21_500,
            7,
            correlation=22,
            stream=-1,
            wait_on_stream=-1,
            wait_on_cuda_event_record_corr_id=-1,
            wait_on_cuda_event_id=0,
        ),
        wait("Context Sync", 22_000, 7, correlation=23, stream=-1),
        span("Trace", "PyTorch Profiler (0)", 0, 30_000, pid="Spans", tid="PyTorch Profiler"),
        {"ph": "i", "name": "Record Window End", "pid": "Traces", "tid": "t", "ts": 30, "s": "g"},
        {"ph": "C", "name": "power", "pid": 0, "tid": 0, "ts": 1.5, "args": {"watt": 70.25}},
        {"ph": "C", "name": "power", "pid": 0, "tid": 0, "ts": 2.5, "args": {"watt": 80, "x": 1}},
        *(
            {"cat": "fwdbwd", "name": "fwdbwd", "id": 5, "pid": 10, **end}
            for end in ({"ph": "s", "tid": 1, "ts": 14}, {"ph": "f", "tid": 2, "ts": 15, "bp": "e"})
        ),
    ]


MANY_KINDS_HEADER: dict[str, Any] = {
    "deviceProperties": [
        {"id": 0, "name": "GPU", "totalGlobalMem": 2**35, "computeMajor": 9, "sharedMemOptin": 1}
    ],
    "distributedInfo": {
        "backend": "nccl",
        "rank": 1,
        "world_size": 2,
        "pg_count": 1,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}],
        "nccl_version": "2.22.3",
    },
    "record_shapes": 1,
    "displayTimeUnit": "ms",
    "traceName": "x.json",
}


def _args(args: Mapping[str, Any] | None, external: int | None) -> dict[str, Any]:
    return {**({} if external is None else {"External id": external}), **(args or {})}


def trace(*events: Event, base: int | None = BASE_NS, **header: Any) -> bytes:
    """Return a file in one line."""
    based = {} if base is None else {"baseTimeNanoseconds": base}
    return msgspec.json.encode({"schemaVersion": 1, **header, "traceEvents": events, **based})


def pretty(content: bytes, indent: int = 2) -> bytes:
    """Return the same file with whitespace."""
    return msgspec.json.format(content, indent=indent)


class Tables:
    """Rows of one file; a fake writer of a run that checks its input."""

    def __init__(self) -> None:
        self.outcome: Imported | None = None
        self.written: list[str] = []
        """Tables in the order of appends."""
        self._rows: dict[str, list[Row]] = {}

    def prepare(self) -> None:
        """Do nothing."""

    def clone(self) -> AbstractContextManager[Tables]:
        return nullcontext(self)

    def deferring_sync(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sync(self) -> None:
        """Do nothing."""

    def append(self, table: str, columns: Mapping[str, Any]) -> int:
        make_batch(TABLES[table], columns)
        plain = {
            name: (values.decode() if isinstance(values, DictColumn) else values).tolist()
            for name, values in columns.items()
            if name != "trace"
        }
        self.written.append(table)
        rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        self._rows.setdefault(table, []).extend(rows)
        return len(rows)

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table, None for null."""
        return self._rows.get(table, [])

    def one(self, table: str) -> Row:
        """Return its only row."""
        (row,) = self.rows(table)
        return row

    def by_id(self, table: str) -> dict[int, Row]:
        """Return rows by the index of the event in its file."""
        rows = {row["id"]: row for row in self.rows(table)}
        assert len(rows) == len(self.rows(table)), f"{table} holds an event twice"
        return rows

    def names(self, table: str) -> list[str]:
        """Return the names of its rows in the order of their events."""
        return [row["name"] for _, row in sorted(self.by_id(table).items())]

    def levels(self) -> dict[tuple[Any, int], tuple[int, int]]:
        """Return count and total duration by track and level; see `sums_of_levels`."""
        return sums_of_levels(self.rows("timeline"))

    def counts(self) -> dict[str, int]:
        """Count the rows by table."""
        return {table: len(rows) for table, rows in self._rows.items()}

    @property
    def quality(self) -> dict[str, Row]:
        """Rows of the quality record by check."""
        return {row["kind"]: row for row in self.rows("quality")}

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Tables) and self._comparable() == value._comparable()

    __hash__ = None  # type: ignore[assignment]

    def _comparable(self) -> dict[str, Any]:
        """Return rows in any order, with sums of levels of detail: slices may share a bucket."""
        tables = {t: sorted(map(_sortable, rows)) for t, rows in self._rows.items()}
        tables["timeline"] = sorted(self.levels().items())
        return tables


def _sortable(row: Row) -> list[tuple[str, str]]:
    return sorted((name, repr(value)) for name, value in row.items())


def sums_of_levels(timeline: list[Row]) -> dict[tuple[Any, int], tuple[int, int]]:
    """Return count and total duration of events by track and level of detail.

    A level consists of its summaries and of the events that it does not sum up.
    """
    by_track: dict[Any, list[Row]] = {}
    for row in timeline:
        by_track.setdefault(row["track"], []).append(row)
    sums = {}
    for track, rows in by_track.items():
        for level in {row["level"] for row in rows}:
            level_rows = [row for row in rows if _is_in_level(row, level)]
            sums[track, level] = (
                sum(row["count"] for row in level_rows),
                sum(row["busy_ns"] for row in level_rows),
            )
    return sums


def _is_in_level(row: Row, level: int) -> bool:
    return bool(row["level"] == level if row["id"] is None else row["level"] >= level)


def imported(content: bytes, *, name: str = "trace.json", workers: int = 0) -> Tables:
    """Import a file with this content."""
    with tempfile.TemporaryDirectory(prefix="stepscope-test-") as directory:
        path = Path(directory, name)
        path.write_bytes(content)
        return imported_file(path, workers=workers)


def imported_file(
    path: Path, *, workers: int = 0, execution_traces: Sequence[ExecutionTrace] = ()
) -> Tables:
    """Import a file."""
    tables = Tables()
    writer: RunWriter = tables  # type: ignore[assignment]
    identity = Identity(name=path.name)
    scratch = path.parent
    tables.outcome = import_trace(
        path, writer, identity, scratch=scratch, workers=workers, execution_traces=execution_traces
    )
    return tables


def labels(processes: Mapping[Any, str], threads: Mapping[tuple[Any, Any], str]) -> list[Event]:
    """Return the events that name processes and threads."""
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in processes.items()
    ] + [
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        for (pid, tid), name in threads.items()
    ]


def without_category(event: Event) -> Event:
    """Return an event without its category."""
    return {key: value for key, value in event.items() if key != "cat"}
