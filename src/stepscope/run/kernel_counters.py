"""Hardware counters of the kernels of a trace, with the operators that launched them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    COUNTER_CATEGORY,
    COUNTER_RANGE_COLUMNS,
    Columns,
    NamedGroups,
    find_launching_operators,
    find_outermost,
    find_rows,
    group_rows,
    is_kernel_launch,
    match_rows,
    read_counters,
)
from stepscope.intervals import Int
from stepscope.run.step_activity import is_range
from stepscope.run.traces import Trace

_NO_OPERATOR = "no operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounters:
    """Ranges of hardware counters of one trace."""

    counters: Mapping[str, NDArray[np.float64]]
    """Value of each range by counter; NaN without a value."""
    kernels: NamedGroups
    operators: NamedGroups | None
    """None if ranges and kernels do not match."""
    range_count: int
    kernel_count: int
    """Kernels in the trace."""
    launch_count: int
    """Runtime calls in the trace that launch a kernel."""


def kernel_counters_of(trace: Trace, *, outermost: bool = False) -> KernelCounters:
    """Read the hardware counters of a trace.

    Args:
        trace: the trace.
        outermost: group by the outermost operator around the launch, not by the innermost.
    """
    ranges = trace.columns(
        "other_events", COUNTER_RANGE_COLUMNS, condition=f"category = '{COUNTER_CATEGORY}'"
    )
    kernels = trace.columns("kernels", ("name", "device", "start_ns", "operator"))
    calls = trace.columns("runtime_calls", ("name", "start_ns", "operator"))
    is_launch = match_rows(calls["name"], is_kernel_launch)
    launches = {name: calls[name][is_launch] for name in ("start_ns", "operator")}
    device = _find_devices(trace, ranges)
    operator = find_launching_operators(ranges, device, kernels, launches)
    operators = None
    if operator is not None:
        operators = _group_by_operator(trace, operator, outermost=outermost)
    return KernelCounters(
        counters=read_counters(ranges["args"]),
        kernels=_group_by_name(ranges["name"].codes, ranges["name"].values),
        operators=operators,
        range_count=len(ranges["id"]),
        kernel_count=len(kernels["start_ns"]),
        launch_count=len(launches["start_ns"]),
    )


def _group_by_operator(trace: Trace, ids: Int, *, outermost: bool) -> NamedGroups:
    operators = trace.columns("operators", ("id", "name", "parent"))
    if outermost:
        rows = find_outermost(operators, match_rows(operators["name"], is_range), ids)
    else:
        rows = find_rows(operators["id"], ids)
    codes = np.append(operators["name"].codes, -1)[rows]  # row -1 is the appended one
    return _group_by_name(codes, operators["name"].values)


def _group_by_name(codes: NDArray[Any], names: Sequence[str | None]) -> NamedGroups:
    """Group ranges by the code of a name; -1 is no operator."""
    groups = group_rows(codes)
    first = codes[groups.first].tolist()
    return NamedGroups(groups, [names[c] or "" if c >= 0 else _NO_OPERATOR for c in first])


def _find_devices(trace: Trace, ranges: Columns) -> Int:
    """Find the device of each range: Kineto writes it as process; -1 where that is no number."""
    tracks = trace.columns("tracks", ("track", "pid"))
    texts = [tracks["pid"].values[code] or "" for code in tracks["pid"].codes.tolist()]
    devices = np.array([int(text) if text.isdecimal() else -1 for text in texts], dtype=np.int64)
    rows: Int = find_rows(tracks["track"], ranges["track"])
    return devices[rows]
