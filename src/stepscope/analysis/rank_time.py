"""Time of one rank: computation, communication, and the collectives of one name and group.

Over a range of time, with U(x) for the time covered by any of x:

    overlap        |U(kernels) intersected with U(kernels of collectives)|
    computation    |U(kernels)| - overlap
    communication  |U(kernels of collectives)| - overlap
    other          duration of the range - computation - overlap - communication

The transfer of a matched collective is at the end of its call (`collectives`); the rest of the
call is waiting:

    transfer       |U(transfers of the matched calls)|
    waiting        |U(matched calls)| - transfer
    unmatched      |U(all calls)| - |U(matched calls)|
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from stepscope.analysis.collectives import CollectiveCalls, MatchedCalls, measure_bandwidth
from stepscope.analysis.device_work import DeviceWork
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.trace_steps import measure_overlap
from stepscope.intervals import Int, Intervals, overlap, union


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTimes:
    """Times of ranges in nanoseconds, one entry per range; the last four sum to the total."""

    total_ns: Int
    computation_ns: Int
    overlap_ns: Int
    communication_ns: Int
    other_ns: Int

    def to_lists(self) -> dict[str, list[int]]:
        """Times by name, one entry per range."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}


def break_down_ranges(ranges: Intervals, work: DeviceWork) -> RangeTimes:
    """Break down the time of each range."""
    times = measure_overlap(ranges, work)
    total_ns = ranges.end - ranges.start
    either_ns = times.computation_ns + times.communication_ns - times.overlap_ns
    return RangeTimes(
        total_ns=total_ns,
        computation_ns=times.computation_ns - times.overlap_ns,
        overlap_ns=times.overlap_ns,
        communication_ns=times.communication_ns - times.overlap_ns,
        other_ns=total_ns - either_ns,
    )


def break_down_range(start_ns: int, end_ns: int, work: DeviceWork) -> dict[str, int]:
    """Break down the time of one range; the keys are the fields of `RangeTimes`."""
    extent = Intervals(np.array([start_ns]), np.array([end_ns]))
    return {name: times[0] for name, times in break_down_ranges(extent, work).to_lists().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """Time of one rank in collectives."""

    call_count: int
    matched_count: int
    last_count: int
    """Number of matched calls in which the rank arrived last."""
    calls: Intervals
    """Union of all calls."""
    matched: Intervals
    """Union of the matched calls."""
    transfer: Intervals
    """Union of the transfers of the matched calls."""

    @property
    def transfer_ns(self) -> int | None:
        """Transfer time; None without matched calls."""
        return self.transfer.total_ns if self.matched_count else None

    @property
    def waiting_ns(self) -> int | None:
        """Waiting time; None without matched calls."""
        return self.matched.total_ns - self.transfer.total_ns if self.matched_count else None

    @property
    def unmatched_ns(self) -> int | None:
        """Time in unmatched calls only; None without matched calls."""
        return self.calls.total_ns - self.matched.total_ns if self.matched_count else None

    def break_down(self, ranges: Intervals) -> tuple[list[int], list[int]] | None:
        """Measure transfer and waiting in each range; None without matched calls."""
        if not self.matched_count:
            return None
        transfer_ns = overlap(ranges, self.transfer)
        return transfer_ns.tolist(), (overlap(ranges, self.matched) - transfer_ns).tolist()


def measure_collective_time(
    calls: CollectiveCalls, matches: MatchedCalls, rank: int
) -> CollectiveTime:
    """Measure the time of one rank in collectives.

    Args:
        calls: calls of all ranks.
        matches: result of matching them.
        rank: index of the rank.
    """
    rows = np.flatnonzero(calls.rank == rank)
    rank_calls, matched = calls.take(rows), matches.matched[rows]
    start, end = rank_calls.start, rank_calls.end
    transfer_start = end - matches.transfer_ns[rows]
    return CollectiveTime(
        call_count=len(rows),
        matched_count=int(matched.sum()),
        last_count=int(matches.last[rows].sum()),
        calls=union(Intervals(start, end)),
        matched=union(Intervals(start[matched], end[matched])),
        transfer=union(Intervals(transfer_start[matched], end[matched])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveGroup:
    """Calls of one kind within one group of ranks."""

    kind: str
    group: int
    """Index of the group of ranks, -1 if unknown."""
    group_size: int | None
    dtype: int | None
    """Index of the data type; None if unknown or if there are several."""
    call_count: int
    total_ns: int
    """Sum of the durations."""
    mean_ns: float
    share_ratio: float | None
    """Share of the durations of all calls, summed."""
    matched_count: int
    transfer_ns: int | None
    """Sum over the matched calls; None without any."""
    waiting_ns: int | None
    moved_bytes: int | None
    mean_bytes: float | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


def group_collectives(
    calls: CollectiveCalls,
    matches: MatchedCalls,
    *,
    group_size: Int,
    dtype: Int,
    rank: int | None = None,
) -> list[CollectiveGroup]:
    """Group calls by kind and group of ranks, by descending total duration.

    Args:
        calls: calls of all ranks.
        matches: result of matching them.
        group_size, dtype: number of ranks and index of the data type of each call, -1 if unknown.
        rank: index of the only rank to include; None for all.
    """
    rows = np.arange(len(calls)) if rank is None else np.flatnonzero(calls.rank == rank)
    if not len(rows):
        return []
    groups = group_rows(calls.kind[rows], calls.group[rows])
    total_ns = int(calls.duration[rows].sum())
    members = [rows[groups.group == number] for number in range(len(groups))]
    rows_of_groups = [
        _measure_group(
            calls.take(part), matches.take(part), group_size[part], dtype[part], total_ns
        )
        for part in members
    ]
    return sorted(rows_of_groups, key=lambda group: -group.total_ns)


def _measure_group(
    calls: CollectiveCalls, matches: MatchedCalls, group_size: Int, dtype: Int, all_ns: int
) -> CollectiveGroup:
    size = int(group_size.max())
    known_size = size if size > 0 else None
    types = np.unique(dtype).tolist()
    total_ns, transfer_ns = int(calls.duration.sum()), int(matches.transfer_ns.sum())
    has_matches = bool(matches.matched.any())
    waiting_ns = int(calls.duration[matches.matched].sum()) - transfer_ns
    bandwidth = measure_bandwidth(calls, matches, known_size)
    return CollectiveGroup(
        kind=calls.kinds[int(calls.kind[0])],
        group=int(calls.group[0]),
        group_size=known_size,
        dtype=types[0] if len(types) == 1 and types[0] >= 0 else None,
        call_count=len(calls),
        total_ns=total_ns,
        mean_ns=total_ns / len(calls),
        share_ratio=total_ns / all_ns if all_ns else None,
        matched_count=int(matches.matched.sum()),
        transfer_ns=transfer_ns if has_matches else None,
        waiting_ns=waiting_ns if has_matches else None,
        moved_bytes=bandwidth.moved_bytes,
        mean_bytes=bandwidth.mean_bytes,
        algorithm_bytes_per_s=bandwidth.algorithm_bytes_per_s,
        bus_bytes_per_s=bandwidth.bus_bytes_per_s,
    )
