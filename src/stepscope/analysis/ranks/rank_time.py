"""Time of one rank: computation, communication, collectives by name and group, steps.

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

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec.structs import fields
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import group_rows
from stepscope.analysis.devices.device_work import DeviceWork
from stepscope.analysis.ranks.collectives import (
    CollectiveCalls,
    MatchedCalls,
    RankCalls,
    measure_bandwidth,
)
from stepscope.analysis.trace_steps.trace_steps import measure_overlap


class RangeTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of ranges in nanoseconds, one entry per range; the last four sum to the total."""

    total_ns: intervals.Int
    computation_ns: intervals.Int
    overlap_ns: intervals.Int
    communication_ns: intervals.Int
    other_ns: intervals.Int

    def to_lists(self) -> dict[str, list[int]]:
        """List times by name, one entry per range."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}


def break_down_ranges(ranges: intervals.Intervals, work: DeviceWork) -> RangeTimes:
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
    extent = intervals.Intervals(np.array([start_ns]), np.array([end_ns]))
    return {name: times[0] for name, times in break_down_ranges(extent, work).to_lists().items()}


class CollectiveTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one rank in collectives."""

    call_count: int
    matched_count: int
    last_count: int
    """Number of matched calls in which the rank arrived last."""
    calls: intervals.Intervals
    """Union of all calls."""
    matched: intervals.Intervals
    """Union of the matched calls."""
    transfer: intervals.Intervals
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

    def break_down(self, ranges: intervals.Intervals) -> tuple[list[int], list[int]] | None:
        """Measure transfer and waiting in each range; None without matched calls."""
        if not self.matched_count:
            return None
        transfer_ns = intervals.overlap(ranges, self.transfer)
        return transfer_ns.tolist(), (
            intervals.overlap(ranges, self.matched) - transfer_ns
        ).tolist()


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
        calls=intervals.union(intervals.Intervals(start, end)),
        matched=intervals.union(intervals.Intervals(start[matched], end[matched])),
        transfer=intervals.union(intervals.Intervals(transfer_start[matched], end[matched])),
    )


class CollectiveFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of some collectives of one name."""

    name: Annotated[str, schema.field_label("collective")]
    group_size: Annotated[int | None, schema.field_label("ranks", unit="count")]
    call_count: int
    total_ns: int
    """Sum of the durations."""
    mean_ns: float
    share_ratio: float | None
    """Share of the durations of all collectives of this rank, or of all ranks."""
    matched_count: int
    transfer_ns: int | None
    """Sum over the matched collectives; see `RankTime`."""
    waiting_ns: int | None
    moved_bytes: Annotated[int | None, schema.field_label("moved")]
    """The larger of a rank's input and output, summed over the calls with a recorded size."""
    mean_bytes: Annotated[float | None, schema.field_label("mean size")]
    algorithm_bytes_per_s: Annotated[float | None, schema.field_label("algorithm bandwidth")]
    """`moved_bytes` divided by the time of these calls: of the transfer, where it is known."""
    bus_bytes_per_s: Annotated[float | None, schema.field_label("bus bandwidth")]
    """Algorithm bandwidth times the part that a link carries; see `bandwidth_of`."""


class Collective(CollectiveFigures, frozen=True, kw_only=True):
    """Collectives of one name within one group of ranks."""

    rank: int | None
    """Null for all ranks together."""
    group: str | None
    """Name of the group of ranks in the trace; null where it is not recorded."""
    group_description: str | None
    dtype: Annotated[str | None, schema.field_label("type")]
    """Data type; null where it is not recorded or several are used."""


Reach = Literal["within a node", "between nodes"]
_REACHES: tuple[Reach, Reach] = ("within a node", "between nodes")


class CollectiveSize(CollectiveFigures, frozen=True, kw_only=True):
    """Collectives of one name, group size and range of sizes, on all ranks."""

    from_bytes: Annotated[int | None, schema.field_label("size from")]
    """Null where the size is not recorded."""
    to_bytes: Annotated[int | None, schema.field_label("size to")]
    """End of the range, exclusive: twice its start."""
    reach: Reach | None
    """Null where the node of a rank of the group is unknown."""


def group_collectives(
    rank_calls: RankCalls,
    matches: MatchedCalls,
    *,
    index: int | None = None,
    rank: int | None = None,
) -> list[Collective]:
    """Group calls by kind and group of ranks, by descending total duration.

    Args:
        rank_calls: calls of all ranks.
        matches: result of matching them.
        index: index of the only rank to include; None for all.
        rank: its number.
    """
    calls = rank_calls.calls
    rows = np.arange(len(calls)) if index is None else np.flatnonzero(calls.rank == index)
    if not len(rows):
        return []
    groups = group_rows(calls.kind[rows], calls.group[rows])
    total_ns = int(calls.duration[rows].sum())
    members = [rows[groups.group == number] for number in range(len(groups))]
    collectives = [
        _measure_group(rank_calls.take(part), matches.take(part), rank, total_ns)
        for part in members
    ]
    return sorted(collectives, key=lambda collective: -collective.total_ns)


def group_collectives_by_size(
    rank_calls: RankCalls, matches: MatchedCalls, nodes: Sequence[str | None]
) -> list[CollectiveSize]:
    """Group calls of all ranks by kind, size, and whether their group spans nodes.

    Args:
        rank_calls: calls of all ranks.
        matches: result of matching them.
        nodes: node by index of the rank; None if unknown.

    Returns:
        By descending total duration.
    """
    calls = rank_calls.calls
    reach = np.array(
        [_find_reach(rank_calls, g, nodes) for g in range(len(rank_calls.group_names))]
    )
    # The exponent e of a size is that of 2^(e-1) <= size < 2^e, 0 for no byte.
    exponent = np.where(calls.size_bytes >= 0, np.frexp(calls.size_bytes)[1], -1)
    groups = group_rows(calls.kind, exponent, reach[calls.group], rank_calls.group_size)
    total_ns = int(calls.duration.sum())
    sizes = []
    for number, first in enumerate(groups.first):
        part = groups.group == number
        measured = _measure_group(rank_calls.take(part), matches.take(part), None, total_ns)
        values = {name: getattr(measured, name) for name in CollectiveFigures.__struct_fields__}
        power, reached = int(exponent[first]), int(reach[calls.group[first]])
        sizes.append(
            CollectiveSize(
                **values,
                from_bytes=None if power < 0 else 2**power // 2,
                to_bytes=None if power < 0 else 2**power,
                reach=_REACHES[reached] if reached >= 0 else None,
            )
        )
    return sorted(sizes, key=lambda size: -size.total_ns)


def _find_reach(rank_calls: RankCalls, group: int, nodes: Sequence[str | None]) -> int:
    """Find whether the ranks of a group are on one node (0) or several (1); -1 if unknown."""
    rows = rank_calls.calls.group == group
    ranks = np.unique(rank_calls.calls.rank[rows]).tolist()
    recorded_nodes = [node for node in (nodes[rank] for rank in ranks) if node is not None]
    if len(set(recorded_nodes)) > 1:
        return 1
    is_complete = len(recorded_nodes) == rank_calls.group_size[rows].max(initial=-1)
    return 0 if is_complete else -1


def _measure_group(
    rank_calls: RankCalls, matches: MatchedCalls, rank: int | None, all_ns: int
) -> Collective:
    calls = rank_calls.calls
    group, size = int(calls.group[0]), int(rank_calls.group_size.max())
    known_size = size if size > 0 else None
    types = np.unique(rank_calls.dtype).tolist()
    total_ns, transfer_ns = int(calls.duration.sum()), int(matches.transfer_ns.sum())
    has_matches = bool(matches.matched.any())
    waiting_ns = int(calls.duration[matches.matched].sum()) - transfer_ns
    bandwidth = measure_bandwidth(calls, matches, known_size)
    return Collective(
        name=calls.kinds[int(calls.kind[0])],
        rank=rank,
        group=rank_calls.group_names[group],
        group_description=rank_calls.descriptions.get(group) if group >= 0 else None,
        group_size=known_size,
        dtype=rank_calls.dtypes[types[0]] if len(types) == 1 and types[0] >= 0 else None,
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


Matrix = NDArray[np.float64]
"""Durations by rank (rows) and step (columns), nanoseconds; NaN where a rank lacks the step."""


class Stragglers(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of ranks relative to each other, one entry per rank."""

    step_count: int
    """Number of shared steps: those that at least two ranks have."""
    slowest_count: intervals.Int
    """Number of shared steps in which the rank was slowest; on a tie the lowest rank counts."""
    excess_ns: Matrix
    """Mean over shared steps of the rank's duration minus the median of all ranks in that step;
    NaN without shared steps."""


def build_step_matrix(
    first: Sequence[int], durations: Sequence[intervals.Int]
) -> tuple[int, Matrix]:
    """Build the matrix of step durations.

    Args:
        first: number of each rank's first step.
        durations: durations of consecutive steps, by rank.

    Returns:
        The step number of the first column, and the matrix.
    """
    start = min(first)
    end = max(f + len(d) for f, d in zip(first, durations, strict=True))
    matrix = np.full((len(first), end - start), np.nan)
    for row, (number, values) in enumerate(zip(first, durations, strict=True)):
        matrix[row, number - start : number - start + len(values)] = values
    return start, matrix


def fill_step_matrix(shape: tuple[int, int], cells: Sequence[tuple[int, int, int]]) -> Matrix:
    """Build the matrix of step durations from single cells.

    Args:
        shape: number of ranks and of steps.
        cells: rank, step and duration of each cell that is known.
    """
    matrix = np.full(shape, np.nan)
    for row, column, duration in cells:
        matrix[row, column] = duration
    return matrix


def find_stragglers(matrix: Matrix) -> Stragglers:
    """Count the steps in which each rank is slowest, and measure its excess."""
    shared = matrix[:, (~np.isnan(matrix)).sum(axis=0) > 1]
    slowest = np.bincount(
        np.argmax(np.where(np.isnan(shared), -1.0, shared), axis=0), minlength=len(matrix)
    )
    excess = np.full(len(matrix), np.nan)
    if shared.shape[1]:
        over = shared - np.nanmedian(shared, axis=0)
        has_steps = ~np.isnan(over).all(axis=1)
        excess[has_steps] = np.nanmean(over[has_steps], axis=1)
    return Stragglers(
        step_count=shared.shape[1], slowest_count=slowest.astype(np.int64), excess_ns=excess
    )


def downsample_columns(values: NDArray[Any], max_columns: int) -> tuple[int, Matrix]:
    """Average groups of consecutive columns so that at most `max_columns` remain.

    Args:
        values: any shape; the last axis has the columns. NaN is missing.
        max_columns: limit of the columns.

    Returns:
        The number of columns per group, and the means; NaN for a group without values.
    """
    numbers = np.asarray(values, dtype=np.float64)
    group_size = max(1, -(-numbers.shape[-1] // max_columns))
    if group_size == 1:
        return 1, numbers
    starts = np.arange(0, numbers.shape[-1], group_size)
    present = ~np.isnan(numbers)
    sums = np.add.reduceat(np.where(present, numbers, 0.0), starts, axis=-1)
    counts = np.add.reduceat(present, starts, axis=-1, dtype=np.int64)
    return group_size, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def downsample_steps(
    start: intervals.Int, end: intervals.Int, values: NDArray[Any], max_points: int
) -> tuple[intervals.Int, NDArray[np.float64]]:
    """Average groups of consecutive steps, and mark where none ran.

    Args:
        start, end: of the steps, in their order.
        values: one per step.
        max_points: limit of the groups.

    Returns:
        The times and values of a line: the start of each group with its mean, and the end of a
        step with NaN where a pause follows that is longer than a group at the median, as in an
        evaluation.
    """
    group_size, means = downsample_columns(values, max_points)
    before_pause = np.flatnonzero(start[1:] - end[:-1] > group_size * np.median(end - start))
    after = before_pause // group_size + 1
    return (
        np.insert(start[::group_size], after, end[before_pause]),
        np.insert(means, after, np.nan),
    )
