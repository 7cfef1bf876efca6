"""Contributions to the change of the mean step: its parts, down to single calls.

The changes of the parts sum to that of the mean step, and those of the rows of a part to that of
the part, both exactly: they are whole nanoseconds. The rows depend on the part:

    data_wait   stages of the input pipeline, in proportion to their time
    other       work of the training thread between its phases, by stack samples
    any other   calls of operators and kernels in recorded steps, aligned between the runs, by
                exposed time (`analysis.trace_steps.exposed_time`, `tree_alignment`)

Traces of a monitored job cover a few of its steps, under a profiler that makes them longer. So
their times are scaled, part by part, to the part's time in the measured steps of the ranks that
were traced. The difference of the mean of all ranks is a row of its own.

Parts of the waiting for data and of the time between phases, in nanoseconds of the whole run. Only
the proportions count: callers scale them to the part's time per step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import Annotated, Literal

import msgspec

from stepscope import analysis, schema
from stepscope.comparison.mean_step import EVALUATION, REMAINDER, MeanStep, Phases, build_mean_step
from stepscope.comparison.step_changes import StepDifference
from stepscope.comparison.tree_alignment import ChangeStatus, align_rows, classify_change
from stepscope.run import Rank, RecordedWork, Run

TOP = 20
Kind = Literal["host call", "device work", "input stage", "host cause", "remainder"]
SplitBy = Literal["calls", "input stages", "host causes"]
OUTSIDE = "outside of operators"
IDLE = "nothing recorded on host or device"
NOT_RECORDED = "not in any trace"
OTHER_RANKS = "mean of all ranks, less that of the traced ones"
MAX_RANK_DEVIATION = 0.001
"""Traced ranks that differ by at most this share from the mean of all ranks represent all ranks."""
EXPLANATIONS: dict[SplitBy, str] = {
    "calls": "exposed time of calls: each instant of a step counts for one call, device work "
    "before host work",
    "input stages": "waiting, in proportion to the time of the stages of batch creation",
    "host causes": "by stack samples of the training thread",
}
NO_CALLS = "single calls need profiler traces with steps in both runs"


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """Contribution of one row to the change of its part."""

    name: str
    path: Annotated[list[str], schema.field_label("below")]
    """Names of the callers, outermost first."""
    kind: Kind
    status: ChangeStatus
    base_ns: Annotated[int, schema.field_label("from")]
    other_ns: Annotated[int, schema.field_label("to")]
    change_ns: int
    base_busy_ns: Annotated[float | None, schema.field_label("busy time from")]
    """Duration regardless of overlap; null for rows that are not calls."""
    other_busy_ns: Annotated[float | None, schema.field_label("busy time to")]
    base_calls: Annotated[float | None, schema.field_label("calls from", unit="count")]
    """Calls in the mean step."""
    other_calls: Annotated[float | None, schema.field_label("calls to", unit="count")]


class PartContributions(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the mean step; the changes of `rows` and `rest_ns` sum to `change_ns`."""

    part: str
    base_ns: Annotated[int, schema.field_label("from")]
    other_ns: Annotated[int, schema.field_label("to")]
    change_ns: int
    split_by: SplitBy | None
    """Null where neither traces nor samples split the part."""
    split_of: str | None
    base_scale: Annotated[float | None, schema.field_label("scale from", unit="none")]
    """Factor from recorded to measured steps."""
    other_scale: Annotated[float | None, schema.field_label("scale to", unit="none")]
    rows: list[Contribution]
    """The twenty largest changes."""
    rest_ns: Annotated[int, schema.field_label("change of other rows")]
    rest_count: Annotated[int, schema.field_label("other rows")]


class Contributions(msgspec.Struct, frozen=True, kw_only=True):
    """The change of the mean step; the changes of `parts` sum to `change_ns`."""

    base_ns: Annotated[int, schema.field_label("from")]
    other_ns: Annotated[int, schema.field_label("to")]
    change_ns: int
    parts: list[PartContributions]
    """Largest change first."""
    missing: str | None


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A row before scaling and rounding."""

    name: str
    kind: Kind
    base_ns: float
    other_ns: float
    path: tuple[str, ...] = ()
    status: ChangeStatus | None = None
    busy_ns: tuple[float, float] | None = None
    calls: tuple[float, float] | None = None


class _Split(msgspec.Struct, frozen=True, kw_only=True):
    """Split of a part into lines."""

    split_by: SplitBy
    lines: list[_Line]


def find_contributions(
    difference: StepDifference,
    runs: tuple[Run, Run],
    works: tuple[Sequence[RecordedWork], Sequence[RecordedWork]],
    *,
    is_monitored: bool,
) -> Contributions:
    """Find the contributions to the change of the mean step.

    Args:
        difference: difference of the steps.
        runs: base run and other run.
        works: their traces with steps.
        is_monitored: the compared steps are those of monitored jobs, not those of traces.
    """
    splits: dict[str, _Split] = {}
    traced_ns: list[Mapping[str, float]] = [{}, {}]
    usable = works
    if is_monitored:
        usable = (_select_usable(runs[0], works[0]), _select_usable(runs[1], works[1]))
    if all(usable):
        base_step, other_step = (
            build_mean_step(run_works, _make_phase_finder(run) if is_monitored else None)
            for run, run_works in zip(runs, usable, strict=True)
        )
        splits = _split_by_calls(base_step, other_step)
        if is_monitored:
            traced_ns = [_measure_traced_ranks(r, w) for r, w in zip(runs, usable, strict=True)]
    if is_monitored:
        splits |= _split_by_amounts("data_wait", "input stages", runs, split_data_wait)
        splits |= _split_by_amounts("other", "host causes", runs, split_host_time)
    names = list(difference.parts)
    base_ns, other_ns = round(difference.mean.base_ns), round(difference.mean.other_ns)
    base_parts = apportion([difference.parts[name].base_ns for name in names], base_ns)
    other_parts = apportion([difference.parts[name].other_ns for name in names], other_ns)
    parts = [
        _make_part(
            name,
            (base_part, other_part),
            splits.get(name),
            traced_ns=(traced_ns[0].get(name), traced_ns[1].get(name)),
        )
        for name, base_part, other_part in zip(names, base_parts, other_parts, strict=True)
        if base_part or other_part
    ]
    return Contributions(
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        parts=sorted(parts, key=lambda part: -abs(part.change_ns)),
        missing=None if all(usable) else NO_CALLS,
    )


def _select_usable(run: Run, works: Sequence[RecordedWork]) -> list[RecordedWork]:
    """Select traces of processes whose phases are known."""
    return [work for work in works if run.rank_of(work.trace) is not None]


def _get_rank(run: Run, work: RecordedWork) -> Rank:
    rank = run.rank_of(work.trace)
    assert rank is not None  # noqa: S101 - only usable traces are passed
    return rank


def _measure_traced_ranks(run: Run, works: Sequence[RecordedWork]) -> Mapping[str, float]:
    """Measure each part of the mean step on the traced ranks, in nanoseconds, weighted by their
    recorded steps."""
    steps = [(len(work.steps.names), _get_rank(run, work).steps) for work in works]
    measured = [
        (count, rank_steps, rank_steps.measured())
        for count, rank_steps in steps
        if rank_steps.measured().any()
    ]
    total = sum(count for count, _, _ in measured)
    return {
        phase: sum(
            count * float(rank_steps.phase_ns[phase][rows].mean())
            for count, rank_steps, rows in measured
        )
        / total
        for phase in analysis.PHASES
        if total
    }


def _make_phase_finder(run: Run) -> Callable[[RecordedWork], Phases]:
    def find_phases(work: RecordedWork) -> Phases:
        rank = _get_rank(run, work)
        return [
            (EVALUATION, rank.steps.evaluation),
            *analysis.find_phase_intervals(rank.spans, rank.steps),
        ]

    return find_phases


# --- splits --------------------------------------------------------------------------------------


def _split_by_calls(base_step: MeanStep, other_step: MeanStep) -> dict[str, _Split]:
    lines: dict[str, list[_Line]] = {}
    for row in align_rows(base_step.tree, other_step.tree):
        lines.setdefault(row.part, []).append(
            _Line(
                name=row.name,
                kind="device work" if row.on_device else "host call",
                base_ns=row.base_ns,
                other_ns=row.other_ns,
                path=row.path,
                status=row.status,
                busy_ns=(row.base_busy_ns, row.other_busy_ns),
                calls=(row.base_calls, row.other_calls),
            )
        )
    remainders = (
        (OUTSIDE, base_step.outside, other_step.outside),
        (IDLE, base_step.idle, other_step.idle),
    )
    names = [name for _, *sides in remainders for side in sides for name in side]
    for part in dict.fromkeys([*names, REMAINDER]):
        lines.setdefault(part, []).extend(
            _Line(
                name=name,
                kind="remainder",
                base_ns=base_times.get(part, 0),
                other_ns=other_times.get(part, 0),
            )
            for name, base_times, other_times in remainders
            if base_times.get(part) or other_times.get(part)
        )
    return {part: _Split(split_by="calls", lines=rows) for part, rows in lines.items()}


def _split_by_amounts(
    part: str,
    split_by: Literal["input stages", "host causes"],
    runs: tuple[Run, Run],
    split_run: Callable[[Run], Amounts | None],
) -> dict[str, _Split]:
    """Split a part by amounts that each run has on its own; empty where one run has none."""
    base_amounts, other_amounts = (split_run(run) for run in runs)
    if base_amounts is None or other_amounts is None or not (base_amounts or other_amounts):
        return {}
    kind: Kind = "input stage" if split_by == "input stages" else "host cause"
    lines = [
        _Line(
            name=name,
            kind=kind,
            base_ns=base_amounts.get(name, 0),
            other_ns=other_amounts.get(name, 0),
        )
        for name in dict.fromkeys([*base_amounts, *other_amounts])
    ]
    return {part: _Split(split_by=split_by, lines=lines)}


# --- rows ----------------------------------------------------------------------------------------


def _make_part(
    name: str,
    totals_ns: tuple[int, int],
    split: _Split | None,
    *,
    traced_ns: tuple[float | None, float | None],
) -> PartContributions:
    """Make one part of the mean step.

    Args:
        totals_ns: the part in the base run and in the other run.
        traced_ns: the part on the traced ranks, None where all ranks count.
    """
    base_ns, other_ns = totals_ns
    rows: list[Contribution] = []
    scales: tuple[float | None, float | None] = (None, None)
    is_by_calls = split is not None and split.split_by == "calls"
    if split is not None:
        lines = [*split.lines]
        sums = [sum(line.base_ns for line in lines), sum(line.other_ns for line in lines)]
        if (base_ns and sums[0] <= 0) or (other_ns and sums[1] <= 0):
            lines.append(_make_unrecorded_line(sums, base_ns, other_ns))
        line_sums_ns = [
            _choose_line_sum(total, traced if is_by_calls else None)
            for total, traced in zip(totals_ns, traced_ns, strict=True)
        ]
        rows, scales = _make_rows(lines, totals_ns, line_sums_ns)
        rows.sort(key=lambda row: -abs(row.change_ns))
    return PartContributions(
        part=name,
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        split_by=None if split is None else split.split_by,
        split_of=None if split is None else EXPLANATIONS[split.split_by],
        base_scale=scales[0] if is_by_calls else None,
        other_scale=scales[1] if is_by_calls else None,
        rows=rows[:TOP],
        rest_ns=sum(row.change_ns for row in rows[TOP:]) if rows else other_ns - base_ns,
        rest_count=len(rows[TOP:]),
    )


def _make_unrecorded_line(sums: Sequence[float], base_ns: int, other_ns: int) -> _Line:
    """Make the line for a part of which one run recorded nothing."""
    return _Line(
        name=NOT_RECORDED,
        kind="remainder",
        base_ns=float(base_ns) if sums[0] <= 0 else 0.0,
        other_ns=float(other_ns) if sums[1] <= 0 else 0.0,
    )


def _choose_line_sum(total_ns: int, traced_ns: float | None) -> float:
    """Choose the sum of the lines of a part: that of the traced ranks where it differs."""
    if traced_ns is None or abs(traced_ns - total_ns) <= MAX_RANK_DEVIATION * total_ns:
        return float(total_ns)
    return traced_ns


def _make_rows(
    lines: Sequence[_Line], totals_ns: Sequence[int], line_sums_ns: Sequence[float]
) -> tuple[list[Contribution], tuple[float | None, float | None]]:
    """Make rows in whole nanoseconds that sum to the part; returns them with the factors from
    recorded to measured steps.

    Args:
        lines: one for each row.
        totals_ns: the part in both runs.
        line_sums_ns: sum of the scaled lines; the rest of the part belongs to other ranks.
    """
    scales, columns = [], []
    for total, line_sum, times in (
        (totals_ns[0], line_sums_ns[0], [line.base_ns for line in lines]),
        (totals_ns[1], line_sums_ns[1], [line.other_ns for line in lines]),
    ):
        scale = line_sum / sum(times) if sum(times) > 0 else 1.0
        scales.append(scale)
        rest = [] if line_sum == total else [total - line_sum]
        integers = apportion([*(scale * ns for ns in times), *rest], total)
        columns.append([*integers, *[0] * (1 - len(rest))])
    other_ranks = _Line(name=OTHER_RANKS, kind="remainder", base_ns=0, other_ns=0)
    rows = [
        _make_row(line, base_ns, other_ns, (scales[0], scales[1]))
        for line, base_ns, other_ns in zip([*lines, other_ranks], *columns, strict=True)
        if base_ns or other_ns
    ]
    return rows, (scales[0], scales[1])


def _make_row(
    line: _Line, base_ns: int, other_ns: int, scales: tuple[float, float]
) -> Contribution:
    busy = line.busy_ns
    return Contribution(
        name=line.name,
        path=list(line.path),
        kind=line.kind,
        status=_classify_line(line, base_ns, other_ns, scales),
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        base_busy_ns=None if busy is None else scales[0] * busy[0],
        other_busy_ns=None if busy is None else scales[1] * busy[1],
        base_calls=None if line.calls is None else line.calls[0],
        other_calls=None if line.calls is None else line.calls[1],
    )


def _classify_line(
    line: _Line, base_ns: int, other_ns: int, scales: tuple[float, float]
) -> ChangeStatus:
    """Classify a change by the scaled times that are shown."""
    if line.status in {"added", "removed", "reordered"}:
        return line.status
    if line.busy_ns is None:
        if not base_ns or not other_ns:
            return "added" if other_ns else "removed"
        return classify_change("matched", base_ns, other_ns, other_ns - base_ns)
    busy_change_ns = scales[1] * line.busy_ns[1] - scales[0] * line.busy_ns[0]
    return classify_change("matched", base_ns, other_ns, busy_change_ns)


Amounts = dict[str, float]
"""Nanoseconds by name."""
MAKING = "making batches"
STARTING = "starting the loader"
HANDING_OVER = "handing over"
UNSAMPLED = "not sampled"


def split_data_wait(run: Run) -> Amounts | None:
    """Split the waiting for batches by the stages of the input pipeline, over all ranks; None where
    a rank waited for data without a DataLoader."""
    amounts: Amounts = {}
    for rank in run.ranks:
        waiting, making = rank.late_batches, rank.making
        if not waiting.total_ns and _sum_phase_ns(rank, "data_wait"):
            return None
        stages = making.stages if making is not None else []
        for stage in stages:
            _add_amount(amounts, stage.name, waiting.making_ns * stage.ratio)
        unsampled_ratio = max(0.0, 1 - sum(stage.ratio for stage in stages))
        _add_amount(amounts, MAKING, waiting.making_ns * unsampled_ratio)
        _add_amount(amounts, STARTING, waiting.starting_ns)
        _add_amount(amounts, HANDING_OVER, waiting.handing_over_ns)
    return amounts


def split_host_time(run: Run) -> Amounts | None:
    """Split the time between phases by its causes, over all ranks; None where no rank was
    sampled."""
    if not any(work.sample_count for rank in run.ranks if (work := rank.host_work) is not None):
        return None
    amounts: Amounts = {}
    for rank in run.ranks:
        between_ns = _sum_phase_ns(rank, "other")
        work = rank.host_work
        causes = work.causes if work is not None else {}
        for cause, ratio in causes.items():
            _add_amount(amounts, analysis.HOST_CAUSE_LABELS[cause], between_ns * ratio)
        unsampled_ratio = max(0.0, 1 - sum(causes.values()))
        _add_amount(amounts, UNSAMPLED, between_ns * unsampled_ratio)
    return amounts


def _sum_phase_ns(rank: Rank, phase: str) -> float:
    return float(rank.steps.phase_ns[phase][rank.steps.measured()].sum())


def _add_amount(amounts: Amounts, name: str, ns: float) -> None:
    """Add an amount that is more than a rounding error."""
    if ns >= 1:
        amounts[name] = amounts.get(name, 0.0) + ns


def apportion(parts: Sequence[float], total: int) -> list[int]:
    """Round each part down or up, so that the parts sum to the total.

    The remainder after rounding down goes to the parts with the largest fractions (Hamilton's
    method of apportionment).

    Args:
        parts: numbers that sum to about the total; a difference is spread evenly.
        total: sum of the result.

    >>> apportion([0.5, 1.25, 1.25], 3)
    [1, 1, 1]
    """
    if not parts:
        return []
    integers = [floor(part) for part in parts]
    share, remainder = divmod(total - sum(integers), len(parts))
    by_fraction = sorted(range(len(parts)), key=lambda index: integers[index] - parts[index])
    for index in range(len(parts)):
        integers[index] += share
    for index in by_fraction[:remainder]:
        integers[index] += 1
    return integers
