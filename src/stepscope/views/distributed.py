"""`distributed`: computation, communication and waiting of ranks, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stepscope.analysis import (
    CollectiveTime,
    CommunicationDefinition,
    MatchedCalls,
    Matrix,
    RankCalls,
    break_down_range,
    break_down_ranges,
    build_step_matrix,
    downsample_columns,
    fill_step_matrix,
    find_stragglers,
    group_collectives,
    group_collectives_by_size,
    match_calls,
    measure_collective_time,
    nan_to_none,
)
from stepscope.quantities import count_of
from stepscope.run import RecordedWork, Run, collective_calls, recorded_work
from stepscope.views.collective_arrivals import show_arrivals
from stepscope.views.distributed_payload import (
    DistributedView,
    DividedSteps,
    RankTime,
    RankWindow,
    StepMatrix,
)
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.names import list_names
from stepscope.views.options import COMMUNICATION_OF, DEFAULTS, ViewOptions
from stepscope.views.quality import note_run_quality
from stepscope.views.trace_choice import explain_no_traces

MAX_RANKS = 512
MAX_COLUMNS = 500
MAX_ROWS = 5_000
"""Rows of collectives by rank."""
SHARE_OF = (
    "time of the trace: from the first start to the last end of work on the rank's devices; of "
    "collectives: sum of their durations"
)
TRANSFER_OF = (
    "estimate: of the calls of several ranks that form one collective, the shortest is that of the "
    "rank that arrived last and did not wait; its duration is the transfer, and the rest of a "
    "rank's call is waiting"
)
BANDWIDTH_OF = (
    "algorithm bandwidth: the larger of a rank's input and output, divided by the transfer time, "
    "or by the duration of the call where no other rank was recorded; bus bandwidth: that times "
    "2(n-1)/n for an all-reduce of n ranks, (n-1)/n for all-gather, reduce-scatter and all-to-all, "
    "1 for broadcast, reduce, send and receive"
)
ONE_RANK = (
    "only one rank was recorded, so transfer and waiting cannot be separated: that takes the same "
    "steps of other ranks too"
)


def show_distributed(run: Run, options: ViewOptions = DEFAULTS) -> DistributedView:
    """Show computation, communication and waiting of ranks."""
    recorded = recorded_work(run, options.carry_over, options.communication)
    matrix = _build_run_matrix(run) or _build_trace_matrix(recorded)
    return DistributedView(
        share_of=SHARE_OF,
        communication_of=COMMUNICATION_OF[options.communication],
        transfer_of=TRANSFER_OF,
        bandwidth_of=BANDWIDTH_OF,
        carry_over=options.carry_over,
        windows=[
            _show_window(name, work, options.communication)
            for name, work in _group_by_window(recorded).items()
        ],
        arrivals=show_arrivals(run),
        matrix=matrix,
        missing=None if matrix is not None else explain_no_traces(run, run.traces),
        quality=note_run_quality(run, run.traces),
    )


# --- traces --------------------------------------------------------------------------------------


def _group_by_window(recorded: Sequence[RecordedWork]) -> dict[str, list[RecordedWork]]:
    """Group traces made at the same time: windows of one number, or the n-th file of each rank."""
    windows: dict[str, list[RecordedWork]] = {}
    file_counts: dict[str, int] = {}
    for work in recorded:
        if work.trace.window is not None:
            name = f"window {work.trace.window}"
        else:
            file_counts[work.trace.label] = file_counts.get(work.trace.label, 0) + 1
            name = f"recording {file_counts[work.trace.label]} of each rank"
        windows.setdefault(name, []).append(work)
    return windows


def _show_window(
    name: str, recorded: list[RecordedWork], communication: CommunicationDefinition
) -> RankWindow:
    rank_calls = collective_calls([work.trace.whole for work in recorded], communication)
    # All calls are matched: within the range alone, the n-th calls of two ranks would differ.
    matches = match_calls(rank_calls.calls)
    selected = rank_calls.calls.starting_within([work.trace.within for work in recorded])
    rank_calls, matches = rank_calls.take(selected), matches.take(selected)
    rows = [
        row
        for index, work in enumerate(recorded)
        for row in group_collectives(rank_calls, matches, index=index, rank=work.trace.rank)
    ]
    return RankWindow(
        name=name,
        ranks=[
            _show_rank(work, measure_collective_time(rank_calls.calls, matches, index))
            for index, work in enumerate(recorded)
        ],
        collectives=group_collectives(rank_calls, matches),
        collective_sizes=group_collectives_by_size(
            rank_calls, matches, [work.trace.node for work in recorded]
        ),
        rank_collectives=rows[:MAX_ROWS],
        notes=[*_note_matching(recorded, rank_calls, matches), *_note_omitted_rows(len(rows))],
    )


def _note_matching(
    recorded: Sequence[RecordedWork], rank_calls: RankCalls, matches: MatchedCalls
) -> list[str]:
    if len(recorded) == 1:
        return [ONE_RANK] if len(rank_calls.calls) else []
    notes = []
    for kind, indexes in matches.uneven_kinds.items():
        ranks = list_names([recorded[index].trace.label for index in indexes])
        notes.append(
            f"{kind}: calls cannot be matched, because ranks have different numbers of them and "
            f"the profiler does not number them; fewest on {ranks}"
        )
    return notes


def _note_omitted_rows(count: int) -> list[str]:
    more = count - MAX_ROWS
    return [f"{count_of(more, 'more row')} of collectives by rank"] if more > 0 else []


def _show_rank(work: RecordedWork, collectives: CollectiveTime) -> RankTime:
    extent = work.extent
    times = break_down_range(*(extent or (0, 0)), work.work)
    total_ns = times["total_ns"]
    communicating_ns = times["overlap_ns"] + times["communication_ns"]
    return RankTime(
        rank=work.trace.rank,
        trace=work.trace.name,
        work_on="host" if work.on_host else "devices",
        **times,
        computation_ratio=_divide(times["computation_ns"], total_ns),
        overlap_ratio=_divide(times["overlap_ns"], total_ns),
        communication_ratio=_divide(times["communication_ns"], total_ns),
        other_ratio=_divide(times["other_ns"], total_ns),
        hidden_ratio=_divide(times["overlap_ns"], communicating_ns),
        collective_count=collectives.call_count,
        matched_count=collectives.matched_count,
        transfer_ns=collectives.transfer_ns,
        waiting_ns=collectives.waiting_ns,
        unmatched_ns=collectives.unmatched_ns,
        last_count=collectives.last_count,
        steps=_show_steps(work, collectives) if extent is not None else None,
        missing=None if extent is not None else explain_no_device_work(work.trace),
    )


def _divide(part: int, total: int) -> float | None:
    return part / total if total else None


def _show_steps(work: RecordedWork, collectives: CollectiveTime) -> DividedSteps | None:
    if not work.steps.names:
        return None
    transfer_and_waiting = collectives.break_down(work.steps.extent)
    transfer_ns, waiting_ns = transfer_and_waiting or (None, None)
    return DividedSteps(
        step=work.steps.names,
        **break_down_ranges(work.steps.extent, work.work).to_lists(),
        transfer_ns=transfer_ns,
        waiting_ns=waiting_ns,
    )


# --- steps side by side --------------------------------------------------------------------------


def _build_run_matrix(run: Run) -> StepMatrix | None:
    """Build the matrix of the steps of the run; None without any."""
    ranks = run.ranks
    if not ranks:
        return None
    first, durations = build_step_matrix(
        [rank.steps.first for rank in ranks], [rank.steps.wall_ns for rank in ranks]
    )
    steps = [str(first + column) for column in range(durations.shape[1])]
    return _show_matrix("watched", [rank.name for rank in ranks], steps, durations)


def _build_trace_matrix(recorded: Sequence[RecordedWork]) -> StepMatrix | None:
    """Build the matrix of the steps in traces; None without any."""
    columns: dict[tuple[str, str], int] = {}
    rows: dict[str, int] = {}
    cells = []
    for window, works in _group_by_window(recorded).items():
        for work in works:
            row = rows.setdefault(work.trace.label, len(rows))
            for name, wall_ns in zip(work.steps.names, work.steps.wall_ns.tolist(), strict=True):
                column = columns.setdefault((window, name), len(columns))
                cells.append((row, column, wall_ns))
    if not cells:
        return None
    durations = fill_step_matrix((len(rows), len(columns)), cells)
    return _show_matrix("recorded", list(rows), [name for _, name in columns], durations)


def _show_matrix(
    source: Literal["watched", "recorded"], ranks: list[str], steps: list[str], durations: Matrix
) -> StepMatrix:
    stragglers = find_stragglers(durations)
    steps_per_column, means = downsample_columns(durations[:MAX_RANKS], MAX_COLUMNS)
    notes = []
    if len(ranks) > MAX_RANKS:
        notes.append(f"only the first {MAX_RANKS} of {len(ranks)} ranks are shown")
    return StepMatrix(
        source=source,
        ranks=ranks[:MAX_RANKS],
        steps=steps[::steps_per_column],
        steps_per_column=steps_per_column,
        duration_ns=[nan_to_none(row) for row in means],
        step_count=stragglers.step_count,
        slowest_count=stragglers.slowest_count[:MAX_RANKS].tolist(),
        excess_ns=nan_to_none(stragglers.excess_ns[:MAX_RANKS]),
        notes=notes,
    )
