"""Steps of a trace, named or inferred, and the exposed time of each by category.

A step starts as a range `ProfilerStep#N` on the host; a trace without any has one step, "0", over
all its host events. The copy of such a range on a device is not a step.

With device work, a step extends to the end of the work that it launched. In order,

    start = max(end of the step before, host start)
    end   = max(host end, last end of device work whose runtime call is inside the host range)

For the first step, "end of the step before" is the later of the first host start and the last end
of device work that no step launched and that ended before the first step's first device work. A
step without device work ends at max(host end, start).

Finally, steps that the profiler cut off are removed: trailing steps without device work, then the
last remaining step if it has less than 0.8 times the device work of the step before it.

Each instant of a step belongs to one category, the first in this order that is active:

    kernel          kernels that do not communicate
    memcpy, memset  copies and sets of device memory
    communication   kernels of collectives, and collectives that the host itself executes
    runtime         calls of the device's runtime or driver
    data_loader     fetches of batches that device work does not hide
    cpu_exec        any other operator, annotation or Python function
    other           none of these

Steps of a trace that names none, from ranges that repeat. An optimizer step ends a training step if
a batch is fetched before the next one, or where no fetches are recorded, so the steps are the times
between the ends of such optimizer steps. Without any, a step is the time from one start of a range
to the next. The range is the one that covers most of that time on its thread, and at least half of
it; numbers in its name do not count.

Frameworks that compile a step into one function: a step is a call of the function that takes most
time, until the next one. A fetch of a batch between two steps belongs to the second of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema
from stepscope.analysis.devices.device_work import MEMCPY, MEMSET, DeviceWork, RuntimeCalls
from stepscope.analysis.kernel_classes import is_data_loader, is_host_communication, is_step
from stepscope.intervals import EMPTY, Int, Intervals, contains, overlap, union, unite

CATEGORIES = (
    "kernel",
    "memcpy",
    "memset",
    "communication",
    "runtime",
    "data_loader",
    "cpu_exec",
    "other",
)
"""Categories by priority."""
SINGLE_STEP = "0"
"""Name of the step of a trace without step ranges."""
MIN_COMPLETE_RATIO = 0.8
"""Device work of a complete last step, at least, relative to the step before it."""


class HostSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Step ranges on the host, by start; names are unique."""

    names: list[str]
    extent: Intervals


class TraceSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that extend to the end of their device work; arrays have one entry per step."""

    names: list[str]
    host: Intervals
    """Ranges on the host."""
    extent: Intervals
    """Ranges including device work."""
    device_work_count: Int
    """Number of pieces of device work whose runtime call is inside the host range."""
    cut_off: list[str]
    """Names of the last steps, removed as incomplete."""

    @property
    def wall_ns(self) -> Int:
        """Duration of each step."""
        return self.extent.end - self.extent.start

    def take(self, rows: Int) -> TraceSteps:
        """Take some steps, given by their positions."""
        return TraceSteps(
            names=[self.names[row] for row in rows.tolist()],
            host=Intervals(self.host.start[rows], self.host.end[rows]),
            extent=Intervals(self.extent.start[rows], self.extent.end[rows]),
            device_work_count=self.device_work_count[rows],
            cut_off=self.cut_off,
        )


def find_host_steps(names: list[str], start: Int, end: Int) -> HostSteps | None:
    """Find the steps among named ranges.

    Of several with one name the last counts: a profiler whose numbers start again has recorded a
    sanity check before the training. Of those that overlap, which are one step recorded twice, the
    first counts.
    """
    order = [int(row) for row in np.argsort(start, kind="stable") if is_step(names[row])]
    last: dict[str, int] = {}
    for row in order:
        name = names[row].removeprefix(schema.STEP_PREFIX)
        if name not in last or start[row] >= end[last[name]]:
            last[name] = row
    if not last:
        return None
    rows = np.array(sorted(last.values(), key=start.__getitem__), dtype=np.int64)
    step_names = [names[row].removeprefix(schema.STEP_PREFIX) for row in rows]
    return HostSteps(names=step_names, extent=Intervals(start[rows], end[rows]))


def make_single_step(start_ns: int, end_ns: int) -> HostSteps:
    """Make one step over the whole trace."""
    return HostSteps(
        names=[SINGLE_STEP], extent=Intervals(np.array([start_ns]), np.array([end_ns]))
    )


def find_trace_steps(host: HostSteps, work: DeviceWork, calls: RuntimeCalls) -> TraceSteps:
    """Extend the steps of the host over their device work and remove those that were cut off."""
    count = len(host.names)
    step = _find_launching_steps(host, work, calls)
    launched = step >= 0
    work_count = np.bincount(step[launched], minlength=count)
    limits = np.iinfo(np.int64)
    first, last = np.full(count, limits.max), np.full(count, limits.min)
    np.minimum.at(first, step[launched], work.start[launched])
    np.maximum.at(last, step[launched], work.end[launched])
    start, end = host.extent.start.copy(), host.extent.end.copy()
    if launched.any():
        before = ~launched & (work.end < first[0]) if work_count[0] else np.zeros_like(launched)
        previous = max(int(start[0]), int(work.end[before].max(initial=start[0])))
        for i in range(count):  # a start depends on the end before it
            start[i] = max(previous, start[i])
            end[i] = max(end[i], start[i], last[i] if work_count[i] else start[i])
            previous = int(end[i])
    complete_count = _count_complete(work_count) if launched.any() else count
    return TraceSteps(
        names=host.names[:complete_count],
        host=Intervals(host.extent.start[:complete_count], host.extent.end[:complete_count]),
        extent=Intervals(start[:complete_count], end[:complete_count]),
        device_work_count=work_count[:complete_count],
        cut_off=host.names[complete_count:],
    )


def _find_launching_steps(host: HostSteps, work: DeviceWork, calls: RuntimeCalls) -> Int:
    """Find the step whose host range contains the launch of each piece of work, -1 for none."""
    call_index = calls.find_rows(work.launch)
    rows = np.flatnonzero(call_index >= 0)
    call_start, call_end = calls.start[call_index[rows]], calls.end[call_index[rows]]
    step = np.searchsorted(host.extent.start, call_start, side="right").astype(np.int64) - 1
    inside = (step >= 0) & (call_end <= host.extent.end[np.maximum(step, 0)])
    launching_step = np.full(len(work), -1, dtype=np.int64)
    launching_step[rows] = np.where(inside, step, -1)
    return launching_step


def _count_complete(work_count: Int) -> int:
    """Count the steps up to the last complete one."""
    count = int(np.flatnonzero(work_count)[-1]) + 1
    if count > 1 and work_count[count - 1] < MIN_COMPLETE_RATIO * work_count[count - 2]:
        count -= 1
    return count


def find_device_categories(work: DeviceWork) -> dict[str, Intervals]:
    """Find the times of device work by category, overlaps included."""
    return {
        "kernel": _select_intervals(work, work.compute),
        "memcpy": _select_intervals(work, work.kind == MEMCPY),
        "memset": _select_intervals(work, work.kind == MEMSET),
        "communication": _select_intervals(work, work.communication),
    }


def merge_categories(
    first: Mapping[str, Intervals], second: Mapping[str, Intervals]
) -> dict[str, Intervals]:
    """Merge the times of two sets of categories."""
    both = {name: unite(first[name], second[name]) for name in first.keys() & second.keys()}
    return {**first, **second, **both}


def break_down_steps(extent: Intervals, categories: Mapping[str, Intervals]) -> dict[str, Int]:
    """Attribute each instant of each step to one category (exposed time).

    Args:
        extent: the steps.
        categories: times of each category, overlaps allowed; a category may be absent.

    Returns:
        Nanoseconds of each category in each step; they sum to the step's duration.
    """
    ordered = {name: categories.get(name, EMPTY) for name in CATEGORIES[:-1]}
    return expose_in_order(extent, ordered, rest=CATEGORIES[-1])


def expose_in_order(
    extent: Intervals, categories: Mapping[str, Intervals], *, rest: str
) -> dict[str, Int]:
    """Attribute each instant of each range to the first category that is active.

    Args:
        extent: ranges of time.
        categories: times of each category by priority, overlaps allowed.
        rest: name of the category of the remaining time.

    Returns:
        Nanoseconds of each category in each range; they sum to the range's duration.
    """
    covered, covered_ns = EMPTY, np.zeros(len(extent.start), dtype=np.int64)
    times: dict[str, Int] = {}
    for category, intervals in categories.items():
        covered = unite(covered, intervals)
        before_ns, covered_ns = covered_ns, overlap(extent, covered)
        times[category] = covered_ns - before_ns
    times[rest] = extent.end - extent.start - covered_ns
    return times


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Computation and communication inside ranges of time; arrays have one entry per range.

    Memory sets do not count as computation. A range is idle for its duration minus
    `computation + communication - overlap`.
    """

    computation_ns: Int
    communication_ns: Int
    overlap_ns: Int


def measure_overlap(extent: Intervals, work: DeviceWork) -> Overlap:
    """Measure the overlap of kernels of collectives with other kernels."""
    compute = union(_select_intervals(work, work.compute))
    communication = union(_select_intervals(work, work.communication))
    computation_ns = overlap(extent, compute)
    communication_ns = overlap(extent, communication)
    either_ns = overlap(extent, unite(compute, communication))
    return Overlap(
        computation_ns=computation_ns,
        communication_ns=communication_ns,
        overlap_ns=computation_ns + communication_ns - either_ns,
    )


def _select_intervals(work: DeviceWork, rows: NDArray[np.bool_]) -> Intervals:
    return Intervals(work.start[rows], work.end[rows])


MIN_RANGES = 3
"""Fewer ranges do not make two steps."""
MIN_COVERED_RATIO = 0.5
MIN_TILED_RATIO = 0.9
"""Ranges that are steps leave less time between them."""
_OPTIMIZER = "Optimizer.step#"
_NUMBER = re.compile(r"\d+")
_COLLECTIVE = re.compile(r"nccl:|rccl:|c10d::|record_param_comms")


class NamedRange(NamedTuple):
    """One range on a thread of the host."""

    name: str
    track: int
    start: int
    end: int


class RepeatedSteps(NamedTuple):
    """Steps, and the name of the ranges that they come from; `*` stands for numbers."""

    steps: HostSteps
    name: str


def find_optimizer_steps(ranges: Sequence[NamedRange]) -> RepeatedSteps | None:
    """Find the steps between the ends of optimizer steps; None with fewer than `MIN_RANGES`.

    Of several optimizers, the one that steps first counts.

    Args:
        ranges: by start.
    """
    steps = [row for row in ranges if row.name.startswith(_OPTIMIZER)]
    if not steps:
        return None
    first = steps[0]
    outermost = _drop_nested(
        row for row in steps if (row.name, row.track) == (first.name, first.track)
    )
    fetches = [row.start for row in ranges if is_data_loader(row.name)]
    if fetches:
        # Several optimizers, or several updates with one batch, make one step.
        ended = [
            row
            for row, following in pairwise(outermost)
            if bisect_left(fetches, row.end) < bisect_left(fetches, following.start)
        ]
        outermost = ended + outermost[-1:]
    if len(outermost) < MIN_RANGES:
        return None
    return RepeatedSteps(_make_steps([row.end for row in outermost]), first.name)


def find_numbered_steps(ranges: Sequence[NamedRange]) -> HostSteps | None:
    """Find the ranges in which the script counts its steps; None without any.

    They have one name, but for a number that rises by one. They follow each other on the thread of
    the optimizer without much time between them, and each has an optimizer step, of which none is
    between them. Of several such names the one with most ranges counts.

    Args:
        ranges: by start.
    """
    updates = [row for row in ranges if row.name.startswith(_OPTIMIZER)]
    groups: dict[str, list[NamedRange]] = defaultdict(list)
    for row in ranges:
        if updates and row.track == updates[0].track and _NUMBER.search(row.name):
            groups[_NUMBER.sub("*", row.name)].append(row)
    best: HostSteps | None = None
    for rows in groups.values():
        if len(rows) < MIN_RANGES or (best is not None and len(rows) <= len(best.names)):
            continue
        extent = Intervals(*(np.array([row[i] for row in rows], dtype=np.int64) for i in (2, 3)))
        numbers = _find_rising_numbers([row.name for row in rows])
        if numbers and _holds_updates(extent, [row.start for row in updates]):
            best = HostSteps(names=numbers, extent=extent)
    return best


def _find_rising_numbers(names: Sequence[str]) -> list[str]:
    """Find the number that rises by one from name to name, while all others stay; empty without."""
    columns = [list(map(int, column)) for column in zip(*map(_NUMBER.findall, names), strict=True)]
    rising = [column for column in columns if all(b - a == 1 for a, b in pairwise(column))]
    constant_count = sum(len(set(column)) == 1 for column in columns)
    is_count = len(rising) == 1 and constant_count == len(columns) - 1
    return list(map(str, rising[0])) if is_count else []


def _holds_updates(extent: Intervals, updates: Sequence[int]) -> bool:
    """Return True for disjoint intervals that leave little time between them, and each of which has
    one of the updates; none is between them."""
    start, end = extent
    covered_ns, total_ns = int((end - start).sum()), int(end[-1] - start[0])
    if (start[1:] < end[:-1]).any() or covered_ns < MIN_TILED_RATIO * total_ns:
        return False
    times = np.array([time for time in updates if start[0] <= time < end[-1]], dtype=np.int64)
    row = np.searchsorted(start, times, side="right") - 1
    return bool((times < end[row]).all()) and len(np.unique(row)) == len(start)


def find_repeated_steps(ranges: Sequence[NamedRange]) -> RepeatedSteps | None:
    """Find the steps between the starts of a range that repeats; None without one.

    Args:
        ranges: by start.
    """
    groups: dict[tuple[int, str], list[NamedRange]] = defaultdict(list)
    for row in ranges:
        if not _is_part_of_step(row.name):
            groups[row.track, _NUMBER.sub("*", row.name)].append(row)
    best, best_ns = None, 0
    for (_, name), rows in groups.items():
        repeated = _drop_nested(rows)
        if len(repeated) < MIN_RANGES:
            continue
        covered_ns = sum(row.end - row.start for row in repeated[:-1])
        total_ns = repeated[-1].start - repeated[0].start
        if covered_ns > best_ns and covered_ns >= MIN_COVERED_RATIO * total_ns:
            steps = _make_steps([row.start for row in repeated])
            best, best_ns = RepeatedSteps(steps, name), covered_ns
    return best


def include_fetches(steps: HostSteps, fetches: Intervals) -> HostSteps:
    """Start each step at the first fetch that begins after the end of the step before it."""
    ends = np.append(np.iinfo(np.int64).min, steps.extent.end[:-1])
    row = np.searchsorted(fetches.start, ends)
    first = np.append(fetches.start, np.iinfo(np.int64).max)[row]
    return HostSteps(
        names=steps.names, extent=Intervals(np.minimum(steps.extent.start, first), steps.extent.end)
    )


class FunctionCall(NamedTuple):
    """Call of one of the functions that a framework compiled."""

    function: str
    """Function of the script; each of its signatures is compiled to one of its own."""
    range: NamedRange


def find_called_steps(
    calls: Sequence[FunctionCall], fetches: Intervals, operators: Int
) -> RepeatedSteps | None:
    """Find the calls of the compiled function that takes most time; None with fewer than
    `MIN_RANGES` of it.

    A step lasts until the next fetch or call of the same function of the script, such as that of
    an evaluation. The last call is a step if it runs as many operators as the others: at the end of
    the data it runs none.

    Args:
        calls: by start.
        fetches: fetches of batches, merged.
        operators: sorted starts of the operators of all threads.
    """
    groups: dict[str, list[FunctionCall]] = defaultdict(list)
    for call in calls:
        groups[call.range.name].append(call)
    frequent = [group for group in groups.values() if len(group) >= MIN_RANGES]
    if not frequent:
        return None
    longest = max(frequent, key=lambda group: sum(row.end - row.start for _, row in group))
    function = longest[0].function
    ranges = _drop_nested(row for _, row in longest)
    start = np.array([row.start for row in ranges], dtype=np.int64)
    end = np.array([row.end for row in ranges], dtype=np.int64)
    operator_count = np.searchsorted(operators, end) - np.searchsorted(operators, start)
    if operator_count[-1] < MIN_COMPLETE_RATIO * np.median(operator_count[:-1]):
        ranges.pop()
    all_calls = np.array([(row.start, row.end) for _, row in calls], dtype=np.int64)
    outside = ~contains(union(Intervals(all_calls[:, 0], all_calls[:, 1])), fetches.start)
    between = Intervals(fetches.start[outside], fetches.end[outside])
    starts = [row.start for name, row in calls if name == function]
    borders = np.sort(np.array([*starts, *between.start.tolist()], dtype=np.int64))
    next_border = np.append(borders, end[-1])[np.searchsorted(borders, end)]
    steps = HostSteps(
        names=[str(number) for number in range(len(ranges))],
        extent=Intervals(start[: len(ranges)], next_border[: len(ranges)]),
    )
    return RepeatedSteps(include_fetches(steps, between), function)


def make_steps_between(borders: Sequence[int]) -> HostSteps | None:
    """Make the steps between some borders; None with fewer than `MIN_RANGES`."""
    return _make_steps(borders) if len(borders) >= MIN_RANGES else None


def _is_part_of_step(name: str) -> bool:
    is_communication = is_host_communication(name) or _COLLECTIVE.match(name) is not None
    return is_communication or is_data_loader(name) or name.startswith("Optimizer.")


def _drop_nested(ranges: Iterable[NamedRange]) -> list[NamedRange]:
    """Drop ranges inside one before."""
    outermost: list[NamedRange] = []
    for row in ranges:
        if not outermost or row.start >= outermost[-1].end:
            outermost.append(row)
    return outermost


def _make_steps(borders: Sequence[int]) -> HostSteps:
    extents = np.array(list(pairwise(borders)), dtype=np.int64)
    return HostSteps(
        names=[str(number) for number in range(len(extents))],
        extent=Intervals(extents[:, 0].copy(), extents[:, 1].copy()),
    )
