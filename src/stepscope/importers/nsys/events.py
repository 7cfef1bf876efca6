"""Rows of an export as events by kind, process by process.

    CUPTI_ACTIVITY_KIND_KERNEL            kernels
    CUPTI_ACTIVITY_KIND_GRAPH_TRACE       kernels: replays of CUDA graphs that are traced as a whole
    CUPTI_ACTIVITY_KIND_MEMCPY, …_MEMSET  copies and sets
    CUPTI_ACTIVITY_KIND_RUNTIME           calls of the runtime and the driver
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION   waits; …_CUDA_EVENT tells which call recorded the event
    NVTX_EVENTS                           ranges of PyTorch's `emit_nvtx` as operators, other ranges
                                          as annotations, marks as other events

A process is a number that holds hardware, virtual machine and pid: the upper bits of `globalPid`
and of `globalTid`, whose lower 24 bits are the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from stepscope.importers.content import INVALID
from stepscope.importers.kineto import Chunk
from stepscope.importers.nsys import devices, host
from stepscope.importers.nsys.builder import LOW_BITS, Facts, texts_of
from stepscope.importers.nsys.database import ABSENT, Database, Int, Rows

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_RECORDS = f"{_CUPTI}CUDA_EVENT"
_MAX_TIME = 2**62
_CATEGORY, _DOMAIN = 33, 75
"""Types of NVTX events, by ENUM_NSYS_EVENT_TYPE."""


class Source(NamedTuple):
    """Table with events."""

    table: str
    integers: Mapping[str, tuple[str, ...]]
    convert: Callable[[int, Rows, Facts], Chunk]
    """Makes the events of some rows of a process."""
    texts: tuple[str, ...] = ()
    is_work: bool = False
    """True for work of devices."""


def read_facts(database: Database, multiprocessors: Mapping[int, Mapping[int, int]]) -> Facts:
    """Read the facts of the whole file that its events need.

    Args:
        database: the file.
        multiprocessors: of a device, by pid and number.
    """
    work = [source.table for source in SOURCES if source.is_work]
    present = [table for table in work if database.has_columns(table, "start", "end")]
    facts = Facts(
        database=database,
        by_process=all(database.has_columns(table, "globalPid") for table in present),
        multiprocessors=multiprocessors,
        marks={},
        records={},
        contexts={},
    )
    if database.has_columns(_RECORDS, "eventSyncId"):
        columns = _plain("streamId", "correlationId", "eventSyncId", process="globalPid")
        for rows in database.read(_RECORDS, columns):
            names = ("streamId", "correlationId", "eventSyncId")
            values = zip(*(rows[name].tolist() for name in names), strict=True)
            for process, (stream, correlation, number) in zip(
                _process_of(rows, facts).tolist(), values, strict=True
            ):
                facts.records[process, number] = (stream, correlation)
    if database.has_columns("NVTX_EVENTS", "eventType", "domainId"):
        columns = _plain("eventType", "textId", "domainId", "category", thread="globalTid")
        condition = f"eventType IN ({_CATEGORY}, {_DOMAIN})"
        for rows in database.read("NVTX_EVENTS", columns, ("text",), condition):
            numbers = np.where(rows["eventType"] == _DOMAIN, ABSENT, rows["category"])
            parts = (_process_of(rows, facts), rows["domainId"], numbers)
            keys = zip(*(part.tolist() for part in parts), strict=True)
            facts.marks.update(zip(keys, texts_of(rows, database), strict=True))
    return facts


def read_chunks(facts: Facts) -> Iterator[tuple[int, int, Chunk]]:
    """Yield the events of the file in chunks: process, rows and events."""
    for source in SOURCES:
        for rows in facts.database.read(source.table, source.integers, source.texts):
            _check_times(rows)
            process = _process_of(rows, facts)
            for number in (processes := np.unique(process)).tolist():
                part = rows
                if len(processes) > 1:
                    is_of = process == number
                    part = {name: values[is_of] for name, values in rows.items()}
                if source.is_work:
                    contexts, first = np.unique(part["contextId"], return_index=True)
                    devices = part["deviceId"][first].tolist()
                    for context, device in zip(contexts.tolist(), devices, strict=True):
                        facts.contexts[number, context] = device
                yield number, len(part["start"]), source.convert(number, part, facts)


def count_rows(database: Database) -> int:
    """Estimate the number of rows with events."""
    return sum(database.count_rows(source.table) for source in SOURCES)


def _plain(*names: str, **renamed: str) -> dict[str, tuple[str, ...]]:
    columns = {**dict(zip(names, names, strict=True)), **renamed}
    return {name: (column,) for name, column in columns.items()}


def _process_of(rows: Rows, facts: Facts) -> Int:
    """Return the process of each row."""
    numbers: Int = rows["thread" if "thread" in rows else "process"]
    return numbers & ~LOW_BITS if facts.by_process else np.zeros_like(numbers)


def _check_times(rows: Rows) -> None:
    """Replace the ends of rows by durations, and times that cannot be by `INVALID`, -1.

    CUPTI writes 0 for both where it has no time
    (https://docs.nvidia.com/cupti/api/structCUpti__ActivityKernel9.html).
    """
    start, end = rows["start"], rows.pop("end")
    is_start, is_end = ((time > -_MAX_TIME) & (time < _MAX_TIME) for time in (start, end))
    rows["duration"] = np.where(is_end, end - start, -1)
    rows["start"] = np.where(is_start & ((start != 0) | (end != 0)), start, INVALID)


_DEVICE = _plain(
    *("start", "end", "deviceId", "contextId", "streamId", "correlationId"), process="globalPid"
)
_SIZES = _plain(*(f"{name}{axis}" for name in ("grid", "block") for axis in "XYZ"))
SOURCES = (
    Source(
        f"{_CUPTI}KERNEL",
        {
            **_DEVICE,
            "name": ("demangledName", "shortName", "mangledName"),
            **_plain("registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
            **_SIZES,
            **_plain("graphId", "graphNodeId"),
        },
        devices.convert_kernels,
        is_work=True,
    ),
    Source(
        f"{_CUPTI}GRAPH_TRACE",
        {**_DEVICE, "graph": ("graphId", "graphExecId")},
        devices.convert_graphs,
        is_work=True,
    ),
    Source(
        f"{_CUPTI}MEMCPY",
        {**_DEVICE, **_plain("bytes", "copyKind", "srcKind", "dstKind", "graphNodeId")},
        devices.convert_copies,
        is_work=True,
    ),
    Source(
        f"{_CUPTI}MEMSET",
        {**_DEVICE, **_plain("bytes", "memKind", "graphNodeId")},
        devices.convert_sets,
        is_work=True,
    ),
    Source(
        f"{_CUPTI}RUNTIME",
        _plain("start", "end", "eventClass", "correlationId", "nameId", thread="globalTid"),
        host.convert_calls,
    ),
    Source(
        f"{_CUPTI}SYNCHRONIZATION",
        {**_DEVICE, **_plain("syncType", "eventId", "eventSyncId")},
        devices.convert_waits,
    ),
    Source(
        "NVTX_EVENTS",
        _plain("start", "end", "eventType", "textId", "domainId", "category", thread="globalTid"),
        host.convert_ranges,
        texts=("text",),
    ),
)
