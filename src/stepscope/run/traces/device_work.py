"""Work of devices and of the host in one trace, as the analyses take it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from stepscope import analysis, schema
from stepscope.run.model.traces import Trace

CarryOver = Literal["keep", "drop"]
"""Whether work that was launched before the trace began counts."""


def device_work_of(
    trace: Trace,
    carry_over: CarryOver,
    communication: analysis.CommunicationDefinition = "wide",
    kernels: analysis.Columns | None = None,
) -> analysis.DeviceWork:
    """Read the device work of one trace, with or without work launched before it.

    Args:
        trace: the trace.
        carry_over: whether work launched before the trace counts.
        communication: definition of communication.
        kernels: `KERNEL_COLUMNS` of its kernels, if they have been read already.
    """
    if kernels is None:
        kernels = trace.columns("kernels", analysis.KERNEL_COLUMNS)
    copies = trace.columns("copies", analysis.COPY_COLUMNS)
    work = analysis.combine_device_work(kernels, copies, trace.collectives.predicate(communication))
    return work.take(~work.carry_over) if carry_over == "drop" else work


def host_work_of(trace: Trace) -> analysis.DeviceWork:
    """Read host computation and communication as work of one device, for traces without devices.

    Outermost operators stand for kernels, and calls of collectives that the host carries out
    (gloo, MPI, UCC) for kernels of collectives. Operators that request these are neither.
    """
    times = ("name", *analysis.TIME_COLUMNS)
    operators = trace.columns("operators", times, condition="depth = 0")
    is_work = ~analysis.match_rows(operators["name"], analysis.requests_communication)
    marks = trace.columns("annotations", times, condition="on_device = 0")
    calls = analysis.match_rows(marks["name"], analysis.is_host_communication)
    start = np.concatenate([operators["start_ns"][is_work], marks["start_ns"][calls]])
    duration = np.concatenate([operators["duration_ns"][is_work], marks["duration_ns"][calls]])
    communication = np.ones(len(start), dtype=np.bool_)
    communication[: is_work.sum()] = analysis.match_rows(
        operators["name"], analysis.is_host_communication
    )[is_work]
    no_device = np.zeros(len(start), dtype=np.int64)
    return analysis.DeviceWork(
        track=no_device,
        device=no_device,
        start=start,
        end=start + duration,
        kind=no_device.astype(np.int8),
        communication=communication,
        carry_over=np.zeros(len(start), dtype=np.bool_),
        launch=no_device - 1,
    )


def streams_of(trace: Trace) -> dict[int, int | None]:
    """Read the stream number of each device track."""
    tracks = trace.columns("tracks", ("track", "stream"), condition="kind = 'device'")
    numbers = zip(tracks["track"].tolist(), tracks["stream"].tolist(), strict=True)
    return {track: stream if stream >= 0 else None for track, stream in numbers}


def accelerator_of(trace: Trace) -> schema.Accelerator:
    """Return the maker of the devices of a trace: by its layout, else by the names of the calls of
    its runtime, which are not CUDA's where none of them is, else by a sign of devices; CUDA where
    there is none."""
    layout = trace.quality_issues.get("device_layout")
    if layout is not None and layout.detail:
        return schema.accelerator_named(layout.detail)
    calls = trace.whole.columns("runtime_calls", ("name",))["name"].values
    names = [name for name in calls if name]
    if names:
        unknown = schema.accelerator_named(schema.PRIVATE_BACKEND)
        return schema.accelerator_called(names) or unknown
    sign = trace.unrecorded_devices
    return schema.ACCELERATORS[0] if sign is None else schema.accelerator_signed(sign)


def calls_of(trace: Trace) -> analysis.RuntimeCalls:
    """Read the intervals of the runtime calls of one trace."""
    return analysis.RuntimeCalls.from_columns(
        trace.columns("runtime_calls", ("id", *analysis.TIME_COLUMNS))
    )
