"""`distributed`: what ranks compute and exchange, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    CollectiveCalls,
    DeviceWork,
    MatchedCalls,
    Matrix,
    TraceSteps,
    build_step_matrix,
    downsample_columns,
    find_stragglers,
    group_rows,
    match_calls,
    measure_bandwidth,
    measure_overlap,
    nan_to_none,
)
from stepscope.intervals import Intervals, overlap, union
from stepscope.run import RankCalls, RecordedWork, Run, Trace, collective_calls, recorded_work
from stepscope.views.distributed_payload import (
    Collective,
    DistributedView,
    DividedSteps,
    RankTime,
    RankWindow,
    StepMatrix,
)
from stepscope.views.lacking import no_device_work
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import notes_across
from stepscope.views.trace_choice import missing_recordings

MOST_RANKS = 512
MOST_COLUMNS = 500
MOST_ROWS = 5_000
"""Rows of collectives rank by rank."""
_ALWAYS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
SHARE_OF = (
    "the recording's time: from the first start to the last end of work on the rank's devices; of "
    "collectives: their durations, summed"
)
TRANSFER_OF = (
    "an estimate: of the calls of several ranks that are one collective, the shortest is that of "
    "the rank that came last and waited for nobody; its duration is the transfer, and what a rank "
    "spends beyond that is waiting"
)
BANDWIDTH_OF = (
    "algorithm bandwidth: the larger of what a rank gives and gets, by the time of the transfer, "
    "or of the whole call where no other rank was recorded; bus bandwidth: that times 2(n-1)/n for "
    "an all-reduce of n ranks, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for "
    "broadcast, reduce, send and receive"
)
ONE_RANK = (
    "one rank was recorded, and transfer cannot be told from waiting: record the same steps on the "
    "others too"
)


def distributed(run: Run, options: ViewOptions = DEFAULTS) -> DistributedView:
    """What ranks compute and exchange, and who waits for whom."""
    recorded = recorded_work(run, options.carry_over)
    matrix = _watched_matrix(run) or _recorded_matrix(recorded)
    return DistributedView(
        share_of=SHARE_OF,
        transfer_of=TRANSFER_OF,
        bandwidth_of=BANDWIDTH_OF,
        carry_over=options.carry_over,
        windows=[_window(name, window) for name, window in _windows(recorded).items()],
        matrix=matrix,
        missing=None if matrix is not None else missing_recordings(run, run.traces),
        quality=notes_across(run, run.traces),
    )


# --- recordings ----------------------------------------------------------------------------------


def _windows(recorded: Sequence[RecordedWork]) -> dict[str, list[RecordedWork]]:
    """Recordings that were made at the same time: windows of one number, and of files the n-th
    of each rank."""
    found: dict[str, list[RecordedWork]] = {}
    files: dict[str, int] = {}
    for one in recorded:
        if one.trace.window is not None:
            name = f"window {one.trace.window}"
        else:
            files[one.label] = files.get(one.label, 0) + 1
            name = f"recording {files[one.label]} of each rank"
        found.setdefault(name, []).append(one)
    return found


def _window(name: str, recorded: list[RecordedWork]) -> RankWindow:
    of_ranks = collective_calls([one.trace.whole for one in recorded])
    # All calls are matched: within the range alone, the n-th of two ranks would differ.
    found = match_calls(of_ranks.calls)
    looked_at = _within(of_ranks.calls, [one.trace for one in recorded])
    of_ranks, found = of_ranks.take(looked_at), found.take(looked_at)
    collectives = _collectives(of_ranks, found, None)
    rows = [
        row
        for place, one in enumerate(recorded)
        for row in _collectives(of_ranks, found, place, rank=one.trace.rank)
    ]
    return RankWindow(
        name=name,
        ranks=[_rank(one, of_ranks.calls, found, place) for place, one in enumerate(recorded)],
        collectives=collectives,
        rank_collectives=rows[:MOST_ROWS],
        notes=[*_window_notes(recorded, of_ranks, found), *_left_out(rows)],
    )


def _within(calls: CollectiveCalls, traces: Sequence[Trace]) -> NDArray[np.bool_]:
    """Calls that begin in the range of time that is looked at."""
    bounds = np.array([trace.within or _ALWAYS for trace in traces], dtype=np.int64)
    begin, end = bounds.T[:, calls.rank]
    chosen: NDArray[np.bool_] = (calls.start >= begin) & (calls.start < end)
    return chosen


def _window_notes(
    recorded: Sequence[RecordedWork], of_ranks: RankCalls, found: MatchedCalls
) -> list[str]:
    if len(recorded) == 1:
        return [ONE_RANK] if len(of_ranks.calls) else []
    notes = []
    for kind, places in found.uneven_kinds.items():
        ranks = ", ".join(recorded[place].label for place in places[:8])
        more = f" and {len(places) - 8} more" if len(places) > 8 else ""
        notes.append(
            f"{kind}: ranks have different numbers of calls and the recorder does not number "
            f"them, so they cannot be matched; fewest on {ranks}{more}"
        )
    return notes


def _left_out(rows: Sequence[Collective]) -> list[str]:
    left = len(rows) - MOST_ROWS
    return [f"{left} rows of collectives rank by rank are left out"] if left > 0 else []


def _rank(one: RecordedWork, calls: CollectiveCalls, found: MatchedCalls, place: int) -> RankTime:
    mine = np.flatnonzero(calls.rank == place)
    own, matched = calls.take(mine), found.matched[mine]
    transfer = Intervals(own.end - found.transfer_ns[mine], own.end)
    moving = union(Intervals(transfer.start[matched], transfer.end[matched]))
    paired = union(Intervals(own.start[matched], own.end[matched]))
    every = union(Intervals(own.start, own.end))
    extent = _extent(one)
    if extent is None:
        return _empty_rank(one)
    divided = _divided(Intervals(*(np.array([t]) for t in extent)), one.work)
    (total,), (computation,), (both,), (communication,), (other,) = (v.tolist() for v in divided)
    known = bool(matched.any())
    collective_ns = both + communication
    return RankTime(
        rank=one.trace.rank,
        trace=one.trace.name,
        work_on="host" if one.on_host else "devices",
        total_ns=total,
        computation_ns=computation,
        overlap_ns=both,
        communication_ns=communication,
        other_ns=other,
        computation_ratio=computation / total if total else None,
        overlap_ratio=both / total if total else None,
        communication_ratio=communication / total if total else None,
        other_ratio=other / total if total else None,
        hidden_ratio=both / collective_ns if collective_ns else None,
        collective_count=len(own),
        matched_count=int(matched.sum()),
        transfer_ns=moving.total_ns if known else None,
        waiting_ns=paired.total_ns - moving.total_ns if known else None,
        unmatched_ns=every.total_ns - paired.total_ns if known else None,
        last_count=int(found.last[mine].sum()),
        steps=_steps(one.steps, one.work, (moving, paired) if known else None),
        missing=None,
    )


def _extent(one: RecordedWork) -> tuple[int, int] | None:
    """First start and last end of its work, as far as they lie in the range."""
    if not len(one.work):
        return None
    begin, end = int(one.work.start.min()), int(one.work.end.max())
    if one.trace.within is not None:
        begin, end = max(begin, one.trace.within[0]), min(end, one.trace.within[1])
    return (begin, end) if begin <= end else None


def _empty_rank(one: RecordedWork) -> RankTime:
    return RankTime(
        rank=one.trace.rank,
        trace=one.trace.name,
        work_on="host" if one.on_host else "devices",
        total_ns=0,
        computation_ns=0,
        overlap_ns=0,
        communication_ns=0,
        other_ns=0,
        computation_ratio=None,
        overlap_ratio=None,
        communication_ratio=None,
        other_ratio=None,
        hidden_ratio=None,
        collective_count=0,
        matched_count=0,
        transfer_ns=None,
        waiting_ns=None,
        unmatched_ns=None,
        last_count=0,
        steps=None,
        missing=no_device_work(one.trace),
    )


def _divided(extent: Intervals, work: DeviceWork) -> tuple[NDArray[np.int64], ...]:
    """Total, computation alone, both, communication alone, and the rest of each range."""
    found = measure_overlap(extent, work)
    total = extent.end - extent.start
    both = found.overlap_ns
    either = found.computation_ns + found.communication_ns - both
    return (
        total,
        found.computation_ns - both,
        both,
        found.communication_ns - both,
        total - either,
    )


def _steps(
    steps: TraceSteps, work: DeviceWork, matched: tuple[Intervals, Intervals] | None
) -> DividedSteps | None:
    if not steps.names:
        return None
    total, computation, both, communication, other = _divided(steps.extent, work)
    moving = overlap(steps.extent, matched[0]) if matched else None
    paired = overlap(steps.extent, matched[1]) if matched else None
    return DividedSteps(
        step=steps.names,
        total_ns=total.tolist(),
        computation_ns=computation.tolist(),
        overlap_ns=both.tolist(),
        communication_ns=communication.tolist(),
        other_ns=other.tolist(),
        transfer_ns=moving.tolist() if moving is not None else None,
        waiting_ns=(paired - moving).tolist()
        if paired is not None and moving is not None
        else None,
    )


def _collectives(
    of_ranks: RankCalls, found: MatchedCalls, place: int | None, rank: int | None = None
) -> list[Collective]:
    """Rows by name and group, of all ranks or of one."""
    calls = of_ranks.calls
    rows = np.arange(len(calls)) if place is None else np.flatnonzero(calls.rank == place)
    if not len(rows):
        return []
    groups = group_rows(calls.kind[rows], calls.group[rows])
    whole = int(calls.duration[rows].sum())
    made = [
        _collective(of_ranks.take(own), found.take(own), whole, rank)
        for number in range(len(groups))
        if len(own := rows[groups.group == number])
    ]
    return sorted(made, key=lambda row: -row.total_ns)


def _collective(of_ranks: RankCalls, own: MatchedCalls, whole: int, rank: int | None) -> Collective:
    calls = of_ranks.calls
    size = int(of_ranks.group_size.max())
    types = np.unique(of_ranks.dtype).tolist()
    group = int(calls.group[0])
    total = int(calls.duration.sum())
    known = bool(own.matched.any())
    transfer = int(own.transfer_ns.sum())
    return Collective(
        name=calls.kinds[int(calls.kind[0])],
        rank=rank,
        group=of_ranks.group_names[group],
        group_description=of_ranks.descriptions.get(group) if group >= 0 else None,
        group_size=size if size > 0 else None,
        dtype=of_ranks.dtypes[types[0]] if len(types) == 1 and types[0] >= 0 else None,
        call_count=len(calls),
        total_ns=total,
        mean_ns=total / len(calls),
        share_ratio=total / whole if whole else None,
        matched_count=int(own.matched.sum()),
        transfer_ns=transfer if known else None,
        waiting_ns=int(calls.duration[own.matched].sum()) - transfer if known else None,
        **asdict(measure_bandwidth(calls, own, size if size > 0 else None)),
    )


# --- steps side by side --------------------------------------------------------------------------


def _watched_matrix(run: Run) -> StepMatrix | None:
    """Of the steps that stepscope watched; None where it watched none."""
    ranks = run.ranks
    if not ranks:
        return None
    first, durations = build_step_matrix(
        [rank.steps.first for rank in ranks], [rank.steps.wall_ns for rank in ranks]
    )
    steps = [str(first + column) for column in range(durations.shape[1])]
    return _matrix("watched", [rank.name for rank in ranks], steps, durations)


def _recorded_matrix(recorded: Sequence[RecordedWork]) -> StepMatrix | None:
    """Of the steps in recordings; None where there are none."""
    columns: dict[tuple[str, str], int] = {}
    rows: dict[str, int] = {}
    cells = []
    for window, of_ranks in _windows(recorded).items():
        for one in of_ranks:
            row = rows.setdefault(one.label, len(rows))
            for name, wall in zip(one.steps.names, one.steps.wall_ns.tolist(), strict=True):
                column = columns.setdefault((window, name), len(columns))
                cells.append((row, column, wall))
    if not cells:
        return None
    durations = np.full((len(rows), len(columns)), np.nan)
    for row, column, wall in cells:
        durations[row, column] = wall
    return _matrix("recorded", list(rows), [name for _, name in columns], durations)


def _matrix(source: str, ranks: list[str], steps: list[str], durations: Matrix) -> StepMatrix:
    found = find_stragglers(durations)
    together, shown = downsample_columns(durations[:MOST_RANKS], MOST_COLUMNS)
    notes = []
    if len(ranks) > MOST_RANKS:
        notes.append(f"{len(ranks) - MOST_RANKS} ranks after the first {MOST_RANKS} are not drawn")
    return StepMatrix(
        source="watched" if source == "watched" else "recorded",
        ranks=ranks[:MOST_RANKS],
        steps=steps[::together],
        steps_per_column=together,
        duration_ns=[nan_to_none(row) for row in shown],
        step_count=found.step_count,
        slowest_count=found.slowest_count[:MOST_RANKS].tolist(),
        excess_ns=nan_to_none(found.excess_ns[:MOST_RANKS]),
        notes=notes,
    )
