"""`distributed`: computation, communication and waiting of ranks, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stepscope import analysis
from stepscope.quantities import count, percent
from stepscope.run import (
    MeasuredTrace,
    Run,
    Trace,
    TraceCommunication,
    combine_calls,
    group_by_time,
    measure_traces,
    number_recordings,
)
from stepscope.views.options import COMMUNICATION_OF, DEFAULTS, ViewOptions, list_names
from stepscope.views.steps import arrivals
from stepscope.views.trace_data import explain_no_device_work, explain_no_traces, note_run_quality

MAX_RANKS = 512
"""Rows of the matrix."""
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

OTHER_TIMES = (
    "ranks were recorded at different times: collectives of one time are not matched with those of "
    "another"
)
NO_GROUPS = (
    "the traces name no process groups: the n-th calls of a kind are taken as one collective of "
    "all ranks, which is wrong for ranks of different groups"
)


def show_distributed(run: Run, options: ViewOptions = DEFAULTS) -> arrivals.DistributedView:
    """Show computation, communication and waiting of ranks."""
    measured = measure_traces(run, options.carry_over, options.communication)
    matrix = _build_run_matrix(run) or _build_trace_matrix(run, measured)
    windows = [
        _show_window(name, traces, group_by_time(run, [one.trace for one in traces]))
        for name, traces in _group_by_window(run, measured).items()
    ]
    return arrivals.DistributedView(
        sentence=_write_sentence([rank for window in windows for rank in window.ranks]),
        share_of=SHARE_OF,
        communication_of=COMMUNICATION_OF[options.communication],
        transfer_of=TRANSFER_OF,
        bandwidth_of=BANDWIDTH_OF,
        carry_over=options.carry_over,
        windows=windows,
        arrivals=arrivals.show_arrivals(run),
        matrix=matrix,
        missing=None if matrix is not None else explain_no_traces(run, run.traces),
        quality=note_run_quality(run, run.traces),
    )


def _write_sentence(ranks: Sequence[arrivals.RankTime]) -> str | None:
    total_ns = sum(rank.total_ns for rank in ranks)
    if not total_ns:
        return None
    exposed_ns = sum(rank.communication_ns for rank in ranks)
    hidden_ns = sum(rank.overlap_ns for rank in ranks)
    if not exposed_ns + hidden_ns:
        return "The traces have no communication between ranks."
    numbers = {rank.rank for rank in ranks}
    of_ranks = f"{count(len(numbers))} ranks" if len(numbers) > 1 else f"rank {ranks[0].rank}"
    return (
        f"Exposed communication takes {percent(exposed_ns / total_ns)} of the trace time"
        f"{'' if numbers == {None} else f' of {of_ranks}'}. Computation hides "
        f"{percent(hidden_ns / (exposed_ns + hidden_ns))} of the communication."
    )


# --- traces --------------------------------------------------------------------------------------


def _group_by_window(run: Run, measured: Sequence[MeasuredTrace]) -> dict[str, list[MeasuredTrace]]:
    """Group traces made at the same time; see `number_recordings`."""
    numbers = number_recordings(run, [one.trace for one in measured])
    groups: dict[int, list[MeasuredTrace]] = {}
    for one, number in zip(measured, numbers, strict=True):
        groups.setdefault(number, []).append(one)
    windows = [{one.trace.window for one in group} for group in groups.values()]
    labels = [{one.trace.label for one in group} for group in groups.values()]
    if all(len(window) == 1 and None not in window for window in windows):
        names = [f"window {number}" for (number,) in windows]
    else:
        ending = " of each rank" if all(of_one == labels[0] for of_one in labels) else ""
        names = [f"recording {count}{ending}" for count in range(1, len(groups) + 1)]
    return dict(zip(names, groups.values(), strict=True))


def _show_window(
    name: str, measured: list[MeasuredTrace], time_group: list[int]
) -> arrivals.RankWindow:
    rank_calls = combine_calls([one.communication.calls for one in measured])
    # All calls are matched: within the range alone, the n-th calls of two ranks would differ.
    matches = analysis.match_calls(rank_calls.calls, time_group)
    traces = [one.trace for one in measured]
    selected = rank_calls.calls.starting_within([trace.within for trace in traces])
    rank_calls, matches = rank_calls.take(selected), matches.take(selected)
    rows = [
        row
        for index, trace in enumerate(traces)
        for row in analysis.group_collectives(rank_calls, matches, index=index, rank=trace.rank)
    ]
    return arrivals.RankWindow(
        name=name,
        ranks=[
            _show_rank(*one, analysis.measure_collective_time(rank_calls.calls, matches, index))
            for index, one in enumerate(measured)
        ],
        collectives=analysis.group_collectives(rank_calls, matches),
        collective_sizes=analysis.group_collectives_by_size(
            rank_calls, matches, [trace.node for trace in traces]
        ),
        rank_collectives=rows[:MAX_ROWS],
        notes=[
            *([OTHER_TIMES] if len(set(time_group)) > 1 else ()),
            *_note_matching(traces, rank_calls, matches),
            *_note_omitted_rows(len(rows)),
        ],
    )


def _note_matching(
    traces: Sequence[Trace], rank_calls: analysis.RankCalls, matches: analysis.MatchedCalls
) -> list[str]:
    if len(traces) == 1:
        return [ONE_RANK] if len(rank_calls.calls) else []
    notes = []
    has_groups = any(trace.world_size != len(traces) or trace.world_size > 2 for trace in traces)
    if has_groups and (matches.matched & (rank_calls.calls.group < 0)).any():
        notes.append(NO_GROUPS)
    for kind, indexes in matches.uneven_kinds.items():
        ranks = list_names([traces[index].label for index in indexes])
        notes.append(
            f"{kind}: calls cannot be matched, because ranks have different numbers of them and "
            f"the profiler does not number them; fewest on {ranks}"
        )
    return notes


def _note_omitted_rows(row_count: int) -> list[str]:
    if row_count <= MAX_ROWS:
        return []
    return [
        f"collectives by rank: the first {count(MAX_ROWS)} of {count(row_count)} rows are listed; "
        "those of all ranks together count every one"
    ]


def _show_rank(
    trace: Trace, measured: TraceCommunication, collectives: analysis.CollectiveTime
) -> arrivals.RankTime:
    times, extent = measured.total, measured.extent
    total_ns = times["total_ns"]
    communicating_ns = times["overlap_ns"] + times["communication_ns"]
    return arrivals.RankTime(
        rank=trace.rank,
        trace=trace.name,
        work_on="host" if measured.on_host else "devices",
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
        steps=_show_steps(measured, collectives) if extent is not None else None,
        missing=None if extent is not None else explain_no_device_work(trace),
    )


def _divide(part: int, total: int) -> float | None:
    return part / total if total else None


def _show_steps(
    measured: TraceCommunication, collectives: analysis.CollectiveTime
) -> arrivals.DividedSteps | None:
    if not measured.steps.names:
        return None
    transfer_and_waiting = collectives.break_down(measured.steps.extent)
    transfer_ns, waiting_ns = transfer_and_waiting or (None, None)
    return arrivals.DividedSteps(
        step=measured.steps.names,
        **measured.step_times.to_lists(),
        transfer_ns=transfer_ns,
        waiting_ns=waiting_ns,
    )


# --- steps side by side --------------------------------------------------------------------------


def _build_run_matrix(run: Run) -> arrivals.StepMatrix | None:
    """Build the matrix of the steps of the run; None without any."""
    ranks = run.ranks
    if not ranks:
        return None
    first, durations = analysis.build_step_matrix(
        [rank.steps.first for rank in ranks], [rank.steps.wall_ns for rank in ranks]
    )
    steps = [str(first + column) for column in range(durations.shape[1])]
    return _show_matrix("watched", [rank.name for rank in ranks], steps, durations)


def _build_trace_matrix(run: Run, measured: Sequence[MeasuredTrace]) -> arrivals.StepMatrix | None:
    """Build the matrix of the steps in traces; None without any."""
    columns: dict[tuple[str, int, str], int] = {}
    rows: dict[str, int] = {}
    cells = []
    has_work = any(communication.extent is not None for _, communication in measured)
    for window, traces in _group_by_window(run, measured).items():
        time_group = group_by_time(run, [one.trace for one in traces])
        for group, (trace, communication) in zip(time_group, traces, strict=True):
            if communication.extent is None and has_work:
                continue  # its steps end when the host is done
            row = rows.setdefault(trace.label, len(rows))
            steps = communication.steps
            for name, wall_ns in zip(steps.names, steps.wall_ns.tolist(), strict=True):
                column = columns.setdefault((window, group, name), len(columns))
                cells.append((row, column, wall_ns))
    if not cells:
        return None
    durations = analysis.fill_step_matrix((len(rows), len(columns)), cells)
    return _show_matrix("recorded", list(rows), [name for *_, name in columns], durations)


def _show_matrix(
    source: Literal["watched", "recorded"],
    ranks: list[str],
    steps: list[str],
    durations: analysis.Matrix,
) -> arrivals.StepMatrix:
    stragglers = analysis.find_stragglers(durations)
    excess_ns = analysis.nan_to_none(stragglers.excess_ns)
    order = sorted(range(len(ranks)), key=lambda row: -(excess_ns[row] or 0.0))
    rows = sorted(order[:MAX_RANKS])
    steps_per_column, means = analysis.downsample_columns(durations[rows], MAX_COLUMNS)
    notes = []
    if len(ranks) > MAX_RANKS:
        notes.append(
            f"{count(MAX_RANKS)} of {count(len(ranks))} ranks are drawn, those whose steps exceed "
            "the median rank's most"
        )
    return arrivals.StepMatrix(
        source=source,
        ranks=[ranks[row] for row in rows],
        steps=steps[::steps_per_column],
        steps_per_column=steps_per_column,
        duration_ns=[analysis.nan_to_none(row) for row in means],
        step_count=stragglers.step_count,
        slowest_count=stragglers.slowest_count[rows].tolist(),
        excess_ns=[excess_ns[row] for row in rows],
        notes=notes,
    )
