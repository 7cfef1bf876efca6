"""Steps of ranks and of traces, to jump to."""

from __future__ import annotations

import msgspec

from stepscope.analysis import HostSteps, Steps, summarize
from stepscope.quantities import count
from stepscope.run import Run, RunClock, Trace, named_steps, reading_ahead
from stepscope.schema import ProcessInfo
from stepscope.timeline import find_outlier_steps, find_steps_of_run
from stepscope.views.timeline.groups import process_group_id, trace_group_id
from stepscope.views.timeline.payload import RankSteps

MAX_LISTED = 5_000
"""Steps of one rank."""
MAX_SENT = 50_000
"""Steps of all ranks."""
MAX_TRACES = 200
"""Traces that are searched for steps."""


def list_steps(run: Run) -> tuple[list[RankSteps], list[str]]:
    """List the steps of each training process and of each imported trace.

    Also returns notes on the steps left out.
    """
    clock = run.clock
    steps_by_process, left_out = find_steps_of_run(run)
    process_ids = {process.process for process, _ in steps_by_process}
    traces = [trace for trace in run.traces if trace.process not in process_ids]
    limit = max(1, min(MAX_LISTED, MAX_SENT // max(1, len(steps_by_process) + len(traces))))
    listed = [
        _list_process_steps(process, steps, clock, limit) for process, steps in steps_by_process
    ]
    for trace in reading_ahead(traces[:MAX_TRACES]):
        steps = named_steps(trace)
        if steps is not None:
            listed.append(_list_trace_steps(trace, steps, clock, limit))
    notes = []
    if left_out:
        notes.append(
            f"the steps of {count(len(left_out))} more processes are not listed: the run is too "
            "long to search all of it"
        )
    if len(traces) > MAX_TRACES:
        notes.append(f"only the steps of the first {count(MAX_TRACES)} traces are listed")
    return [steps for steps in listed if steps.numbers], notes


def _list_process_steps(
    process: ProcessInfo, steps: Steps, clock: RunClock, limit: int
) -> RankSteps:
    return _limit_steps(
        RankSteps(
            group=process_group_id(process),
            title=process.title,
            numbers=list(range(len(steps))),
            after_ns=(steps.start - clock.origin_ns).tolist(),
            duration_ns=steps.wall_ns.tolist(),
            outliers=find_outlier_steps(steps),
            left_out_count=0,
        ),
        limit,
    )


def _list_trace_steps(trace: Trace, steps: HostSteps, clock: RunClock, limit: int) -> RankSteps:
    names, (start, end) = steps.names, steps.extent
    numbers = [int(name) for name in names if name.isdecimal() and len(name) < 16]
    if len(numbers) < len(names):
        numbers = list(range(len(names)))
    summary = summarize(end - start) if len(names) else None
    slow = (end - start > summary.outlier_threshold).tolist() if summary else []
    base = clock.origin_in(trace.trace)
    return _limit_steps(
        RankSteps(
            group=trace_group_id(trace),
            title=trace.name,
            numbers=numbers,
            after_ns=(start - base).tolist(),
            duration_ns=(end - start).tolist(),
            outliers=[number for number, is_slow in zip(numbers, slow, strict=True) if is_slow],
            left_out_count=0,
        ),
        limit,
    )


def _limit_steps(steps: RankSteps, limit: int) -> RankSteps:
    """Limit the number of listed steps."""
    numbers = steps.numbers[:limit]
    listed_numbers = set(numbers)
    return msgspec.structs.replace(
        steps,
        numbers=numbers,
        after_ns=steps.after_ns[:limit],
        duration_ns=steps.duration_ns[:limit],
        outliers=[number for number in steps.outliers if number in listed_numbers],
        left_out_count=len(steps.numbers) - len(numbers),
    )
