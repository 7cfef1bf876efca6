"""Hardware counters of kernels, as the range profiler of CUPTI measures them.

Kineto writes one event per range of the counters of one device. If it measures per kernel, the
ranges come in the order in which the device ran the kernels, and it spreads them evenly over the
window: their times say nothing but this order.

    launch of a range   the n-th range of a device belongs to its n-th recorded kernel, if there are
                        as many and their names agree; else, with one device, to the n-th call that
                        launches a kernel, if there are as many
    total               sum over the ranges of a group, of counters that add up: those that end in
                        `.sum`, not rates, means or percentages
    mean, min, max      over the ranges of a group that have a value
    FLOPs               adds + multiplications + 2 x fused multiply-adds, of each precision whose
                        three counters were measured; instructions of tensor cores are not in them

The weights of the FLOPs are those of HolisticTraceAnalysis (`CUDA_SASS_INSTRUCTION_COUNTER_FLOPS`
in hta/analyzers/cupti_counter_analysis.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, Grouping, Strings, group_rows

Values = NDArray[np.float64]

COUNTER_CATEGORY = "cuda_profiler_range"
"""Category of the ranges in `other_events`."""
COUNTER_RANGE_COLUMNS = ("id", "track", "name", "start_ns", "args")
"""Columns of `other_events` that are read here."""
_KERNEL_LAUNCHES = tuple(
    part for part in schema.WORK_LAUNCHES if part not in {schema.COPY_LAUNCH, schema.SET_LAUNCH}
)
_FLOP_COUNTER = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_FLOPS = {"add": 1, "mul": 1, "fma": 2}
_PRECISIONS = {"h": "half", "f": "single", "d": "double"}


class CounterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One counter of the kernels of one name or of one operator."""

    name: str
    measured_count: Annotated[int, schema.field_label("measured kernels")]
    """Kernels with a value of the counter."""
    total: Annotated[float | None, schema.field_label(unit="inherited")]
    """Null for a counter that does not add up: a rate, a mean or a percentage."""
    mean: float
    min: float
    max: float


class KernelCounter(msgspec.Struct, frozen=True, kw_only=True):
    """One counter of all kernels, and by kernel and operator."""

    name: Annotated[str, schema.field_label("counter")]
    unit: schema.Unit
    measured_count: Annotated[int, schema.field_label("measured kernels")]
    """Kernels with a value of the counter."""
    total: Annotated[float | None, schema.field_label(unit="inherited")]
    """Null for a counter that does not add up: a rate, a mean or a percentage."""
    mean: float
    min: float
    max: float
    kernels: Annotated[list[CounterGroup], schema.field_label("by kernel", unit="inherited")]
    """Largest first. Empty for a counter that is zero for every kernel."""
    operators: Annotated[list[CounterGroup], schema.field_label("by operator", unit="inherited")]
    """By the operator that launched the kernel, or the outermost one around it."""


class CounterFlops(msgspec.Struct, frozen=True, kw_only=True):
    """Floating-point operations of the kernels of one name or of one operator."""

    name: str
    measured_count: Annotated[int, schema.field_label("measured kernels")]
    """Kernels with values of all counters that the sum needs."""
    total_flop: Annotated[float, schema.field_label("FLOPs")]
    mean_flop: Annotated[float, schema.field_label("FLOPs per kernel")]
    share_ratio: float | None


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """Floating-point operations of each range."""

    flop: Values
    """NaN where a counter has no value."""
    precisions: tuple[str, ...]
    """Precisions whose counters were measured: half, single, double."""

    @property
    def total(self) -> float:
        """Sum over the ranges that have a value."""
        return float(np.nansum(self.flop))


def read_counters(args: Strings) -> dict[str, Values]:
    """Read the counters in the arguments of ranges: by name, NaN where a range has no value."""
    counters: dict[str, list[float]] = {}
    by_code = [_read_numbers(text) for text in args.values]
    rows = [by_code[code] if code >= 0 else {} for code in args.codes.tolist()]
    for row, numbers in enumerate(rows):
        for name, value in numbers.items():
            counters.setdefault(name, [np.nan] * len(rows))[row] = value
    return {name: np.array(values) for name, values in counters.items()}


def _read_numbers(text: str | None) -> Mapping[str, float]:
    items = msgspec.json.decode(text) if text is not None else {}
    return {
        name: float(value)
        for name, value in items.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def is_kernel_launch(name: str) -> bool:
    """Return True for a runtime call that launches one kernel."""
    return any(part in name for part in _KERNEL_LAUNCHES)


def find_launching_operators(
    ranges: Columns, range_device: intervals.Int, kernels: Columns, calls: Columns
) -> intervals.Int | None:
    """Find the operator that launched the kernel of each range; None if ranges are not kernels.

    Args:
        ranges: `COUNTER_RANGE_COLUMNS`.
        range_device: device of each range, -1 if unknown.
        kernels: columns `name`, `device`, `start_ns` and `operator` of the table.
        calls: columns `start_ns` and `operator` of the runtime calls that launch kernels.

    Returns:
        Ids of operators, -1 for a kernel that none launched.
    """
    order = np.lexsort((ranges["id"], ranges["start_ns"], range_device))
    by_device = np.lexsort((kernels["start_ns"], kernels["device"]))
    operator = np.full(len(order), -1, dtype=np.int64)
    if len(by_device) == len(order) and _are_same(ranges, order, kernels, by_device, range_device):
        operator[order] = kernels["operator"][by_device]
        return operator
    if len(np.unique(range_device)) == 1 and len(calls["start_ns"]) == len(order):
        operator[order] = calls["operator"][np.argsort(calls["start_ns"], kind="stable")]
        return operator
    return None


def _are_same(
    ranges: Columns,
    order: intervals.Int,
    kernels: Columns,
    by_device: intervals.Int,
    range_device: intervals.Int,
) -> bool:
    """Return True if ranges and kernels agree in devices and names, in these orders."""
    names: Strings = ranges["name"]
    code_of = {name: code for code, name in enumerate(names.values)}
    codes = np.array([code_of.get(name, -1) for name in kernels["name"].values], dtype=np.int64)
    same_device = range_device[order] == kernels["device"][by_device]
    same_name = names.codes[order] == codes[kernels["name"].codes[by_device]]
    return bool((same_device & same_name).all())


def count_flops(counters: Mapping[str, Values]) -> Flops | None:
    """Count the floating-point operations of each range; None without the counters for it."""
    needed = {
        precision: {_FLOP_COUNTER.format(f"{letter}{op}"): w for op, w in _FLOPS.items()}
        for letter, precision in _PRECISIONS.items()
    }
    measured = tuple(p for p, weights in needed.items() if weights.keys() <= counters.keys())
    if not measured:
        return None
    terms = [weight * counters[name] for p in measured for name, weight in needed[p].items()]
    flop: Values = np.sum(terms, axis=0)
    return Flops(flop=flop, precisions=measured)


class NamedGroups(msgspec.Struct, frozen=True):
    """Ranges grouped by a name: of the kernel or of the operator."""

    groups: Grouping
    names: Sequence[str]
    """Name of each group."""


def summarize_counter(
    name: str, values: Values, kernels: NamedGroups, operators: NamedGroups | None, *, top: int = 0
) -> KernelCounter:
    """Summarize a counter over all ranges, and by kernel and operator.

    Args:
        name: the counter.
        values: one per range, at least one of them not NaN.
        kernels: the ranges by kernel.
        operators: the ranges by operator; None if unknown.
        top: limit of the rows by kernel, and of those by operator; 0 for all.
    """
    present = values[~np.isnan(values)]
    groupings = (kernels, operators) if present.any() else (None, None)
    by_kernel, by_operator = (
        [] if groups is None else _summarize_groups(name, values, groups)[: top or None]
        for groups in groupings
    )
    return KernelCounter(
        name=name,
        unit=_unit_of(name),
        measured_count=len(present),
        total=float(present.sum()) if _adds_up(name) else None,
        mean=float(present.mean()),
        min=float(present.min()),
        max=float(present.max()),
        kernels=by_kernel,
        operators=by_operator,
    )


def _summarize_groups(counter: str, values: Values, by_name: NamedGroups) -> list[CounterGroup]:
    """Summarize a counter by group, largest first; a group without a value has no row."""
    rows = np.flatnonzero(~np.isnan(values))
    present, groups = values[rows], group_rows(by_name.groups.group[rows])
    sums, counts = groups.float_sums(present), groups.counts()
    minima, maxima = groups.minima(present), groups.maxima(present)
    adds_up = _adds_up(counter)
    order = np.argsort(-(sums if adds_up else sums / counts), kind="stable")
    return [
        CounterGroup(
            name=by_name.names[by_name.groups.group[rows[groups.first[g]]]],
            measured_count=int(counts[g]),
            total=float(sums[g]) if adds_up else None,
            mean=float(sums[g] / counts[g]),
            min=float(minima[g]),
            max=float(maxima[g]),
        )
        for g in order.tolist()
    ]


def summarize_flops(flop: Values, by_name: NamedGroups, *, top: int = 0) -> list[CounterFlops]:
    """Sum floating-point operations by group, most first.

    Shares are of the operations of all ranges. A group without a value has no row.
    """
    present = ~np.isnan(flop)
    total = float(np.nansum(flop))
    counts = by_name.groups.sums(present)
    sums = by_name.groups.float_sums(np.where(present, flop, 0))
    order = [g for g in np.argsort(-sums, kind="stable").tolist() if counts[g]]
    return [
        CounterFlops(
            name=by_name.names[g],
            measured_count=int(counts[g]),
            total_flop=float(sums[g]),
            mean_flop=float(sums[g] / counts[g]),
            share_ratio=float(sums[g]) / total if total else None,
        )
        for g in order[: top or None]
    ]


def _adds_up(counter: str) -> bool:
    return counter.endswith(".sum")


def _unit_of(counter: str) -> schema.Unit:
    """Tell the unit of a counter from its name.

    The part before the first point is what was counted, the parts after it how units of the device
    were combined and what was derived.
    """
    counted, _, derived = counter.partition(".")
    if "pct" in derived:
        return "percent"
    if "ratio" in derived:
        return "none"
    is_bytes = "__bytes" in counted
    if "per_second" in derived:
        return "bytes_per_s" if is_bytes else "per_s"
    if is_bytes:
        return "bytes"
    if counted.endswith("__time_duration"):
        return "ns"
    return "count"
