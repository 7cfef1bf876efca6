"""Reasons for which traces have no verdict, and traces that are left out of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from stepscope import intervals, schema
from stepscope.diagnosis import verdict
from stepscope.diagnosis.traces.trace_details import name_long_calls
from stepscope.diagnosis.traces.trace_shares import TraceShares
from stepscope.quantities import count_of, duration, percent
from stepscope.run import (
    NO_DEVICE_WORK,
    NO_HOST_WORK,
    OTHER_STEPS,
    DividedTrace,
    Run,
    accelerator_of,
    find_time_groups,
    find_unlike_traces,
    name_traces,
    read_marks,
)

MAX_UNEXPLAINED_RATIO = 0.25
"""A trace of the device alone has a verdict only if the device is busy for the rest of the time."""
MIN_START_RATIO = 0.5
"""Share of a trace of one step in long calls of the runtime from which it is start-up."""
BLOCKED = (
    "the device, or the host in a call, waits for something that is not in the trace: another "
    "process or device, or work from before the recording"
)
MIN_TOGETHER_RATIO = 0.7
"""GPUs of one process work in turn if each works for less than this share of the time in which any
of them does."""
MAX_CLOCK_RATIO = 0.1
"""Difference of the clocks of host and device, as a share of a step, without which no step can be
divided."""
MIN_BETWEEN_RATIO = 0.1
"""Share of the time from the first step to the last that is noted if it is between them."""
MIN_INSIDE_RATIO = 0.9
"""Share of a range that is between the steps, unless steps are in it."""
_NUMBER = re.compile(r"\d+")
MAX_NAMED = 3
"""Categories of ranges, and groups of ranks, that are named."""


def leave_out_unlike(
    run: Run, recorded: Sequence[DividedTrace]
) -> tuple[list[DividedTrace], list[str]]:
    """Leave out imported traces that recorded something else than the others, and note it."""
    unlike, notes = find_unlike_traces(run), []
    rest = list(recorded)
    set_back = [trace.trace for trace in run.traces if trace.is_set_back]
    wrong = [one.trace.trace for one in recorded if find_wrong_times(one) is not None]
    for numbers, sentence in (
        (set_back, "the clock was set back during {}"),
        (wrong, "the times of the host and of the device do not agree in {}"),
        (unlike.no_device, NO_DEVICE_WORK),
        (unlike.no_host, NO_HOST_WORK),
        (unlike.other_steps, OTHER_STEPS),
    ):
        alike = [one for one in rest if one.trace.trace not in numbers]
        if alike and len(alike) < len(rest):
            names = name_traces([one.trace for one in rest if one.trace.trace in numbers])
            notes.append(f"Left out of the shares: {sentence.format(names)}.")
            rest = alike
    return rest, notes


def find_wrong_times(one: DividedTrace) -> str | None:
    """Find the reason why device work of a trace belongs to no step: its times are wrong."""
    issues = one.trace.quality_issues
    if "crowded_stream" in issues:
        return f"the durations of device work are wrong ({issues['crowded_stream'].detail})"
    step_ns = float(np.median(one.steps.wall_ns)) if len(one.steps.wall_ns) else 0.0
    for check in ("late_device", "early_device"):
        issue = issues.get(check)
        if issue is None or 2 * issue.count < (issue.of_count or 0):
            continue
        error_ns = issue.worst_ns or 0
        if error_ns > MAX_CLOCK_RATIO * step_ns:
            return (
                f"the times of host and device differ by about {duration(error_ns)}, and a step "
                f"takes {duration(step_ns)}: what the device does during a step is unknown"
            )
    return None


def leave_out_lost_fetches(
    recorded: Sequence[DividedTrace],
) -> tuple[list[DividedTrace], list[str]]:
    """Leave out the steps in which the time of a fetch of a batch was lost, and note it."""
    rest = [one.without_lost_fetches() for one in recorded]
    count, used = (sum(len(one.steps.names) for one in traces) for traces in (recorded, rest))
    if used == count:
        return list(recorded), []
    note = (
        f"Left out of the shares: {count - used} of {count_of(count, 'step')}, in which a fetch of "
        "a batch has no known time."
    )
    return [one for one in rest if len(one.steps.names)], [note]


def note_time_between(recorded: Sequence[DividedTrace]) -> list[str]:
    """Note the time between the steps, which is in no share, with the range that takes most of it,
    such as an evaluation."""
    gaps_of = [
        intervals.subtract(
            intervals.Intervals(extent.start[:1], extent.end[-1:]), intervals.union(extent)
        )
        for extent in (one.steps.extent for one in recorded)
    ]
    between_ns = sum(int((gaps.end - gaps.start).sum()) for gaps in gaps_of)
    steps_ns = sum(int(one.steps.wall_ns.sum()) for one in recorded)
    ratio = between_ns / (between_ns + steps_ns)
    if ratio < MIN_BETWEEN_RATIO:
        return []
    ranges: Counter[str] = Counter()
    for one, gaps in zip(recorded, gaps_of, strict=True):
        ranges.update(_measure_ranges_between(one, gaps))
    ((name, longest_ns),) = ranges.most_common(1) or [("", 0)]
    of_range = f" “{name}” takes {duration(longest_ns)} of it." if longest_ns else ""
    return [
        f"The time between the steps, {duration(between_ns)}, is in no share; it is "
        f"{percent(ratio)} of the time from the first step to the last.{of_range}"
    ]


def _measure_ranges_between(one: DividedTrace, gaps: intervals.Intervals) -> dict[str, int]:
    """Measure the ranges that are between the steps, by name without numbers, in nanoseconds."""
    marks = read_marks(one.trace)
    start, end = marks["start_ns"], marks["start_ns"] + marks["duration_ns"]
    texts = [_NUMBER.sub("*", name or "") for name in marks["name"].values]
    names, codes = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    code = codes[marks["name"].codes]
    order = np.argsort(code, kind="stable")
    parts = np.split(order, np.searchsorted(code[order], np.arange(1, len(names))))
    between = {}
    for name, rows in zip(names.tolist(), parts, strict=False):  # without names, one empty part
        part = intervals.union(intervals.Intervals(start[rows], end[rows]))
        inside_ns = int(intervals.overlap(gaps, part).sum())
        if inside_ns >= MIN_INSIDE_RATIO * int((part.end - part.start).sum()):
            between[name] = inside_ns
    return between


def split_by_time(run: Run, recorded: Sequence[DividedTrace]) -> list[list[DividedTrace]]:
    """Split traces by the ranks that were recorded together."""
    groups = [{trace.trace for trace in group} for group in find_time_groups(run)]
    if len(groups) < 2:
        return [list(recorded)]
    parts = [[one for one in recorded if one.trace.trace in group] for group in groups]
    return [part for part in parts if part]


def find_obstacle(traces: Sequence[DividedTrace], shares: TraceShares) -> str | None:
    """Find the reason why there can be no verdict; None where there can be one."""
    unexplained = shares.parts["dispatch"] + shares.parts["python"]
    obstacle = _find_start_up(traces, shares) or _find_idle_devices(traces)
    if obstacle is not None:
        return obstacle
    blocked = shares.parts["blocked"]
    largest = max(share for suspect, share in shares.suspects.items() if suspect != "model")
    if blocked > max(MAX_UNEXPLAINED_RATIO, largest):
        return f"for {percent(blocked)} of step time {BLOCKED}{_name_blocked_calls(traces)}"
    if unexplained <= MAX_UNEXPLAINED_RATIO:
        return None
    if not any(one.has_host or one.busy_ns.sum() for one in traces):
        unknown = _describe_unknown(traces)
        if unknown is not None:
            return unknown
    if not any(one.has_host for one in traces):
        return (
            f"the device is idle for {percent(unexplained)} of the time, and the trace has no "
            f"operators to tell why ({_advise_operators(traces[0].trace.recorder)})"
        )
    if not any(one.busy_ns.sum() or one.part_ns["compute"].sum() for one in traces):
        return "the trace contains neither device work nor operators that compute"
    return None


def _name_blocked_calls(traces: Sequence[DividedTrace]) -> str:
    first = max(traces, key=lambda one: int(one.part_ns["blocked"].sum()))
    calls = name_long_calls(first, first.activity.blocked, " per step")
    return f" ({calls})" if calls else ""


def _find_start_up(traces: Sequence[DividedTrace], shares: TraceShares) -> str | None:
    """Find traces of one step that is start-up: runtime calls take most of it which are long at
    their first use."""
    share = shares.parts["long_call"]
    if share < MIN_START_RATIO or any(len(one.steps.names) > 1 for one in traces):
        return None
    first = max(traces, key=lambda one: int(one.part_ns["long_call"].sum()))
    calls = name_long_calls(first, first.activity.long_calls)
    return (
        f"runtime calls that take long at their first use have {percent(share)} of the only step "
        f"({calls}): it is start-up; record later steps"
    )


def _advise_operators(recorder: schema.Recorder) -> str:
    if recorder is schema.PYTORCH:
        return "torch.profiler stores them with CPU activities"
    return recorder.advise("operators")


def _describe_unknown(traces: Sequence[DividedTrace]) -> str | None:
    """Say what traces hold that have nothing of which a verdict is made; None for nothing."""
    if all(one.source == "named" and len(one.steps.wall_ns) == 1 for one in traces):
        return (
            "the only step of the trace is empty: the profiler's cycle began after the last "
            "iteration. Train for as many iterations as its cycles have, or export the trace of "
            "an earlier cycle"
        )
    counts: Counter[str] = Counter()
    for one in traces:
        condition = "duration_ns IS NOT NULL"
        category = one.trace.columns("other_events", ("category",), condition=condition)["category"]
        names = [*category.values, None]  # code -1 stands for none
        for code, number in zip(*np.unique(category.codes, return_counts=True), strict=True):
            counts[names[code] or "no category"] += int(number)
    if not counts:
        return None
    categories = ", ".join(
        f"{name} ({count_of(number, 'event')})" for name, number in counts.most_common(MAX_NAMED)
    )
    more = " and others" if len(counts) > MAX_NAMED else ""
    recorder = traces[0].trace.recorder
    fuller = f"; the {recorder.fuller_file} next to it tells more" if recorder.fuller_file else ""
    return (
        "the traces hold neither operators nor device work, but ranges of other categories: "
        f"{categories}{more}; `stepscope show RUN timeline` draws them{fuller}"
    )


def _find_idle_devices(traces: Sequence[DividedTrace]) -> str | None:
    """Find processes whose GPUs work in turn: while one works, the trace tells nothing about the
    reasons for which the others do not."""
    for one in traces:
        work, extent = one.work, intervals.union(one.steps.extent)
        devices = work.kernel_devices
        if len(devices) < 2:
            continue
        busy_ns = [
            int(
                intervals.overlap(
                    extent, intervals.union(work.take(work.device == device).intervals)
                ).sum()
            )
            for device in devices
        ]
        together_ns = int(one.busy_ns.sum())
        mean_ns = sum(busy_ns) / len(busy_ns)
        if mean_ns < MIN_TOGETHER_RATIO * together_ns:
            ratio = percent(mean_ns / int(one.steps.wall_ns.sum()))
            return (
                f"the process uses {len(devices)} GPUs, of which each works for {ratio} of step "
                "time, much of it in turn; the trace does not tell what the others wait for"
            )
    return None


def abstain_from_devices(traces: Sequence[DividedTrace], notes: Sequence[str]) -> verdict.Verdict:
    """Abstain where the work of devices was not recorded; the host alone shows how long it fetches
    batches."""
    first = next(one.trace for one in traces if one.trace.unrecorded_devices)
    advice = accelerator_of(first).adapt(first.recorder.advise("devices"))
    obstacle = f"{first.unknown_devices}, so what the host waits for is unknown; {advice}"
    fetches_ns = sum(int(one.part_ns["data_loader"].sum()) for one in traces)
    share = fetches_ns / sum(int(one.steps.wall_ns.sum()) for one in traces)
    fetching = (
        f"The host fetches batches for {percent(share)} of step time; whether devices compute "
        "meanwhile was not recorded."
    )
    notes = [*notes, fetching] if fetches_ns else notes
    return verdict.make_abstention(obstacle, notes, evidence_kind="traced")


def explain_waiting(share: float, recorder: schema.Recorder) -> str:
    """Explain why idle time of a process may be waiting for requests."""
    idle = f"for {percent(share)} of the time the device has no work and the host runs no operator"
    if recorder.is_torch:
        return (
            f"{idle}, in a trace without a backward pass; record with with_stack=True to see if it "
            "waits for requests"
        )
    return (
        f"{idle}, and no range says that it trains; Python functions would show if it waits for "
        f"requests, and marks of steps that it trains ({recorder.advise('stacks')}; "
        f"{recorder.advise('steps')})"
    )
