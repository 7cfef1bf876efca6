"""Which recordings a view is about, and what to do where there are none."""

from __future__ import annotations

import numpy as np

from stepscope.analysis.device_work import (
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    Calls,
    DeviceWork,
    device_work,
)
from stepscope.analysis.kernel_classes import is_host_communication, rows_where
from stepscope.diagnosis import Signals
from stepscope.diagnosis.traces import Trace, reading_ahead
from stepscope.diagnosis.within import SignalsWithin
from stepscope.errors import UsageError
from stepscope.views.options import CarryOver, ViewOptions

NO_RECORDING = (
    "the run holds no recording of a framework's profiler: bring one in with "
    "`stepscope import FILE -o RUN`, or record a window with `stepscope run --window`"
)
NOT_IN_RANGE = "no recording reaches into this range of time"


def chosen_traces(signals: Signals, options: ViewOptions) -> list[Trace]:
    """The recordings that were asked for, by rank, to be looked at one after the other.

    UsageError when none is of that rank or name.
    """
    found = signals.traces
    if options.rank is not None and found:
        ranks = sorted({trace.rank for trace in found if trace.rank is not None})
        found = [trace for trace in found if trace.rank == options.rank]
        if not found:
            known = f"of ranks {', '.join(map(str, ranks))}" if ranks else "of unknown rank"
            raise UsageError(f"No recording is of rank {options.rank}; those here are {known}.")
    if options.trace is not None and found:
        names = [trace.name for trace in found]
        found = [trace for trace in found if trace.name == options.trace]
        if not found:
            raise UsageError(f"No recording is called {options.trace}; there are {_some(names)}.")
    return reading_ahead(found)


def missing_recordings(signals: Signals, traces: list[Trace]) -> str | None:
    """The sentence that stands in for a view without any recording."""
    if traces:
        return None
    ranged = isinstance(signals, SignalsWithin) and signals.left_out
    return NOT_IN_RANGE if ranged else NO_RECORDING


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def device_work_of(trace: Trace, carry_over: CarryOver) -> DeviceWork:
    """What the devices did in one recording, with or without what was launched before it."""
    where = "carry_over = 0" if carry_over == "drop" else ""
    kernels = trace.columns("kernels", KERNEL_COLUMNS, where=where)
    return device_work(kernels, trace.columns("copies", COPY_COLUMNS, where=where))


def host_work_of(trace: Trace) -> DeviceWork:
    """What the host computed and exchanged, as work of one device: for recordings without any.

    The outermost operators stand for kernels, and calls of collectives that the host carries out
    (gloo, MPI, UCC) for kernels of collectives.
    """
    times = ("name", "start_ns", "duration_ns")
    operators = trace.columns("operators", times, where="depth = 0")
    marks = trace.columns("annotations", times, where="on_device = 0")
    calls = rows_where(marks["name"], is_host_communication)
    start = np.concatenate([operators["start_ns"], marks["start_ns"][calls]])
    lasts = np.concatenate([operators["duration_ns"], marks["duration_ns"][calls]])
    communication = np.ones(len(start), dtype=np.bool_)
    communication[: len(operators["start_ns"])] = rows_where(
        operators["name"], is_host_communication
    )
    nowhere = np.zeros(len(start), dtype=np.int64)
    return DeviceWork(
        track=nowhere,
        device=nowhere,
        start=start,
        end=start + lasts,
        kind=nowhere.astype(np.int8),
        communication=communication,
        carry_over=np.zeros(len(start), dtype=np.bool_),
        launch=nowhere - 1,
    )


def streams_of(trace: Trace) -> dict[int, int | None]:
    """Number of the stream that each track of a device is."""
    tracks = trace.columns("tracks", ("track", "stream"), where="kind = 'device'")
    numbers = zip(tracks["track"].tolist(), tracks["stream"].tolist(), strict=True)
    return {track: stream if stream >= 0 else None for track, stream in numbers}


def calls_of(trace: Trace) -> Calls:
    """When the runtime calls of one recording ran."""
    return Calls.of(trace.columns("runtime_calls", ("id", "start_ns", "duration_ns")))
