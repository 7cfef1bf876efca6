"""Where the change of the mean step comes from: each of its parts, down to single calls.

The changes of the parts sum to that of the mean step, and those of the rows of a part to that of
the part, both exactly: they are whole nanoseconds. What the rows rest on depends on the part:

    data_wait   the stages of the input pipeline, in proportion to the time they take there
    other       what the training thread does between its phases, by its stack samples
    any other   calls of operators and kernels in recorded steps, aligned between the runs, by their
                exposed time (`analysis.exposed_time`, `analysis.tree_alignment`)

Recordings of a watched job cover a few of its steps, under a profiler that makes them longer. So
their times are scaled, part by part, to what the part takes in the measured steps of the ranks that
were recorded. By how much the mean of all ranks is above or below that is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from stepscope.analysis import PHASES, find_phase_intervals
from stepscope.comparison.differences import StepDifference
from stepscope.comparison.operators import EVALUATION, WHOLE, MeanStep, Phases, mean_step
from stepscope.comparison.stages import Amounts, data_stages, host_causes
from stepscope.comparison.tree_alignment import Status, aligned_rows, status_of
from stepscope.comparison.whole_parts import whole_parts
from stepscope.run import Rank, RecordedWork, Run

TOP = 20
Kind = Literal["host call", "device work", "input stage", "host cause", "remainder"]
SplitBy = Literal["calls", "input stages", "host causes"]
OUTSIDE = "outside of operators"
IDLE = "nothing recorded on host or device"
NOT_RECORDED = "not in any recording"
OTHER_RANKS = "mean of all ranks, less that of the recorded ones"
LEAST_APART = 0.001
"""Recorded ranks that differ by less than this share from all of them stand for all of them."""
REMARKS: dict[SplitBy, str] = {
    "calls": "exposed time of calls: each moment of a step belongs to one of them, device work "
    "before the host",
    "input stages": "waiting, in proportion to the time that the stages of making a batch take",
    "host causes": "by stack samples of the training thread",
}


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """What one row adds to the change of its part."""

    name: str
    path: list[str]
    """Callers by name, the outermost first."""
    kind: Kind
    status: Status
    base_ns: int
    other_ns: int
    change_ns: int
    base_busy_ns: float | None
    """How long it took, whatever ran beside it; null for what is no call."""
    other_busy_ns: float | None
    base_calls: float | None
    """In the mean step."""
    other_calls: float | None


class PartContributions(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the mean step; the changes of `rows` and `rest_ns` sum to `change_ns`."""

    part: str
    base_ns: int
    other_ns: int
    change_ns: int
    split_by: SplitBy | None
    """Null where neither recordings nor samples say what the part consists of."""
    split_of: str | None
    base_scale: float | None
    """What times of recorded steps were multiplied by to be those of measured steps."""
    other_scale: float | None
    rows: list[Contribution]
    """The twenty largest changes."""
    rest_ns: int
    rest_count: int


class Contributions(msgspec.Struct, frozen=True, kw_only=True):
    """The change of the mean step; the changes of `parts` sum to `change_ns`."""

    base_ns: int
    other_ns: int
    change_ns: int
    parts: list[PartContributions]
    """The largest change first."""
    missing: str | None


NO_CALLS = "single calls need recordings of the framework's profiler with steps in both runs"


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A row before rounding."""

    name: str
    kind: Kind
    base_ns: float
    other_ns: float
    path: tuple[str, ...] = ()
    status: Status | None = None
    busy_ns: tuple[float, float] | None = None
    calls: tuple[float, float] | None = None


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """How a part is split."""

    split_by: SplitBy
    lines: list[_Line]


def contributions(
    found: StepDifference,
    runs: tuple[Run, Run],
    recorded: tuple[Sequence[RecordedWork], Sequence[RecordedWork]],
    *,
    watched: bool,
) -> Contributions:
    """Where the change of the mean step comes from.

    Args:
        found: how the steps differ.
        runs: the base and the other.
        recorded: their recordings with steps.
        watched: the steps that are compared are those of watched jobs, not those of recordings.
    """
    splits: dict[str, _Part] = {}
    own: list[Mapping[str, float]] = [{}, {}]
    usable = [_usable(s, r) if watched else list(r) for s, r in zip(runs, recorded, strict=True)]
    if all(usable):
        base, other = (
            mean_step(every, _phases_of(run) if watched else None)
            for run, every in zip(runs, usable, strict=True)
        )
        splits = _by_calls(base, other)
        if watched:
            own = [_parts_of_recorded(s, r) for s, r in zip(runs, usable, strict=True)]
    if watched:
        splits |= _by_amounts("data_wait", "input stages", runs, data_stages)
        splits |= _by_amounts("other", "host causes", runs, host_causes)
    names = list(found.parts)
    base_ns, other_ns = round(found.mean.base_ns), round(found.mean.other_ns)
    before = whole_parts([found.parts[name].base_ns for name in names], base_ns)
    after = whole_parts([found.parts[name].other_ns for name in names], other_ns)
    parts = [
        _part(name, one, two, splits.get(name), own=(own[0].get(name), own[1].get(name)))
        for name, one, two in zip(names, before, after, strict=True)
        if one or two
    ]
    return Contributions(
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        parts=sorted(parts, key=lambda part: -abs(part.change_ns)),
        missing=None if all(usable) else NO_CALLS,
    )


def _usable(run: Run, recorded: Sequence[RecordedWork]) -> list[RecordedWork]:
    """Windows of processes whose phases are known."""
    return [one for one in recorded if run.rank_of(one.trace) is not None]


def _rank_of(run: Run, one: RecordedWork) -> Rank:
    rank = run.rank_of(one.trace)
    assert rank is not None  # noqa: S101 - others are not usable
    return rank


def _parts_of_recorded(run: Run, recorded: Sequence[RecordedWork]) -> Mapping[str, float]:
    """Measured nanoseconds of each part of the mean step of the ranks that were recorded, each as
    much as it has of the recorded steps."""
    steps = [(len(one.steps.names), _rank_of(run, one).steps) for one in recorded]
    known = [(count, own, own.measured()) for count, own in steps if own.measured().any()]
    every = sum(count for count, _, _ in known)
    return {
        phase: sum(count * float(own.phase_ns[phase][rows].mean()) for count, own, rows in known)
        / every
        for phase in PHASES
        if every
    }


def _phases_of(run: Run) -> Callable[[RecordedWork], Phases]:
    def phases(one: RecordedWork) -> Phases:
        rank = _rank_of(run, one)
        return [(EVALUATION, rank.steps.evaluation), *find_phase_intervals(rank.spans, rank.steps)]

    return phases


# --- how parts are split -------------------------------------------------------------------------


def _by_calls(base: MeanStep, other: MeanStep) -> dict[str, _Part]:
    lines: dict[str, list[_Line]] = {}
    for row in aligned_rows(base.tree, other.tree):
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
    for part in dict.fromkeys([*base.outside, *other.outside, *base.idle, *other.idle, WHOLE]):
        lines.setdefault(part, []).extend(
            _Line(name=name, kind="remainder", base_ns=one.get(part, 0), other_ns=two.get(part, 0))
            for name, one, two in (
                (OUTSIDE, base.outside, other.outside),
                (IDLE, base.idle, other.idle),
            )
            if one.get(part) or two.get(part)
        )
    return {part: _Part(split_by="calls", lines=own) for part, own in lines.items()}


def _by_amounts(
    part: str,
    split_by: Literal["input stages", "host causes"],
    runs: tuple[Run, Run],
    amounts_of: Callable[[Run], Amounts | None],
) -> dict[str, _Part]:
    """A part that each run splits by itself; nothing where one that has it cannot."""
    found = [amounts_of(run) for run in runs]
    if found[0] is None or found[1] is None or not (found[0] or found[1]):
        return {}
    base, other = found[0], found[1]
    kind: Kind = "input stage" if split_by == "input stages" else "host cause"
    lines = [
        _Line(name=name, kind=kind, base_ns=base.get(name, 0), other_ns=other.get(name, 0))
        for name in dict.fromkeys([*base, *other])
    ]
    return {part: _Part(split_by=split_by, lines=lines)}


# --- rows ----------------------------------------------------------------------------------------


def _part(
    name: str,
    base_ns: int,
    other_ns: int,
    split: _Part | None,
    *,
    own: tuple[float | None, float | None],
) -> PartContributions:
    """One part of the mean step.

    Args:
        own: what it takes on the ranks that were recorded, where they are not all.
    """
    rows: list[Contribution] = []
    scales: tuple[float | None, float | None] = (None, None)
    if split is not None:
        lines = [*split.lines]
        sums = [sum(line.base_ns for line in lines), sum(line.other_ns for line in lines)]
        if (base_ns and sums[0] <= 0) or (other_ns and sums[1] <= 0):
            lines.append(_unrecorded(sums, base_ns, other_ns))
        by_calls = split.split_by == "calls"
        of_lines = [
            _recorded_share(total, of if by_calls else None)
            for total, of in zip((base_ns, other_ns), own, strict=True)
        ]
        rows, scales = _rows(lines, (base_ns, other_ns), of_lines)
        rows.sort(key=lambda row: -abs(row.change_ns))
    return PartContributions(
        part=name,
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        split_by=None if split is None else split.split_by,
        split_of=None if split is None else REMARKS[split.split_by],
        base_scale=scales[0] if split is not None and split.split_by == "calls" else None,
        other_scale=scales[1] if split is not None and split.split_by == "calls" else None,
        rows=rows[:TOP],
        rest_ns=sum(row.change_ns for row in rows[TOP:]) if rows else other_ns - base_ns,
        rest_count=len(rows[TOP:]),
    )


def _unrecorded(sums: Sequence[float], base_ns: int, other_ns: int) -> _Line:
    """What stands for a part of which one run recorded nothing."""
    return _Line(
        name=NOT_RECORDED,
        kind="remainder",
        base_ns=float(base_ns) if sums[0] <= 0 else 0.0,
        other_ns=float(other_ns) if sums[1] <= 0 else 0.0,
    )


def _recorded_share(total_ns: int, recorded_ns: float | None) -> float:
    """What the lines of a part have to sum to."""
    if recorded_ns is None or abs(recorded_ns - total_ns) <= LEAST_APART * total_ns:
        return float(total_ns)
    return recorded_ns


def _rows(
    lines: Sequence[_Line], totals_ns: Sequence[int], of_lines_ns: Sequence[float]
) -> tuple[list[Contribution], tuple[float | None, float | None]]:
    """Rows in whole nanoseconds that sum to the part, and what they were multiplied by.

    Args:
        lines: what the rows are of.
        totals_ns: of the part, in both runs.
        of_lines_ns: what the lines account for of that; the rest is that of the other ranks.
    """
    scales, whole = [], []
    for total, of_lines, times in (
        (totals_ns[0], of_lines_ns[0], [line.base_ns for line in lines]),
        (totals_ns[1], of_lines_ns[1], [line.other_ns for line in lines]),
    ):
        scale = of_lines / sum(times) if sum(times) > 0 else 1.0
        scales.append(scale)
        apart = [] if of_lines == total else [total - of_lines]
        sums = whole_parts([*(scale * ns for ns in times), *apart], total)
        whole.append([*sums, *[0] * (1 - len(apart))])
    others = _Line(name=OTHER_RANKS, kind="remainder", base_ns=0, other_ns=0)
    rows = [
        _contribution(line, one, two, (scales[0], scales[1]))
        for line, one, two in zip([*lines, others], *whole, strict=True)
        if one or two
    ]
    return rows, (scales[0], scales[1])


def _contribution(
    line: _Line, base_ns: int, other_ns: int, scales: tuple[float, float]
) -> Contribution:
    busy = line.busy_ns
    return Contribution(
        name=line.name,
        path=list(line.path),
        kind=line.kind,
        status=_status(line, base_ns, other_ns, scales),
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        base_busy_ns=None if busy is None else scales[0] * busy[0],
        other_busy_ns=None if busy is None else scales[1] * busy[1],
        base_calls=None if line.calls is None else line.calls[0],
        other_calls=None if line.calls is None else line.calls[1],
    )


def _status(line: _Line, base_ns: int, other_ns: int, scales: tuple[float, float]) -> Status:
    """By the times that are shown: scaled to those of the measured steps."""
    if line.status in {"added", "removed", "reordered"}:
        return line.status
    if line.busy_ns is None:
        if not base_ns or not other_ns:
            return "added" if other_ns else "removed"
        return status_of("matched", base_ns, other_ns, other_ns - base_ns)
    longer = scales[1] * line.busy_ns[1] - scales[0] * line.busy_ns[0]
    return status_of("matched", base_ns, other_ns, longer)
