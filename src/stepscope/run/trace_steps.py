"""The steps of a recording and what the host did, for every view that divides time by steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepscope.analysis import (
    Columns,
    DeviceWork,
    HostSteps,
    RuntimeCalls,
    TraceSteps,
    find_host_steps,
    find_trace_steps,
    is_data_loader,
    is_host_communication,
    is_step,
    make_single_step,
    match_rows,
)
from stepscope.intervals import Intervals
from stepscope.run import Run
from stepscope.run.device_work import CarryOver, calls_of, device_work_of, host_work_of
from stepscope.run.traces import Trace, reading_ahead

_TIMES = ("start_ns", "duration_ns")
_STEPS = "name LIKE 'ProfilerStep#%'"
_NAMED = " OR ".join(
    f"name LIKE '{start}%'"
    for start in ("ProfilerStep#", "enumerate(Data", "gloo:", "mpi:", "ucc:")
)
"""Operators that are looked at by name: older recorders wrote annotations as operators."""


class MarkedSteps(NamedTuple):
    """Steps as the host marked them."""

    steps: HostSteps
    marked: bool
    """False where the recording has no steps: then there is one, over all of it."""


def marked_steps(run: Run, trace: Trace) -> MarkedSteps:
    """The steps of one recording: those it names, or those that were watched while it was made;
    without any, one from the first host event to the last."""
    named = named_steps(trace)
    if named is not None:
        return MarkedSteps(named, True)
    watched = run.steps_in(trace)
    if watched.numbers:
        names = [str(number) for number in watched.numbers]
        return MarkedSteps(HostSteps(names=names, extent=watched.extent), True)
    tables = ("operators", "python_functions")
    host = _together([_extent(trace.columns(table, _TIMES)) for table in tables])
    if not len(host.start):
        return MarkedSteps(make_single_step(*trace.extent), False)
    return MarkedSteps(make_single_step(int(host.start.min()), int(host.end.max())), False)


def named_steps(trace: Trace) -> HostSteps | None:
    """The steps that a recording names; None where it names none."""
    found = [
        trace.columns("annotations", ("name", *_TIMES), where=f"on_device = 0 AND {_STEPS}"),
        trace.columns("operators", ("name", *_TIMES), where=_STEPS),
    ]
    names = [one["name"].values[code] for one in found for code in one["name"].codes.tolist()]
    return find_host_steps(names, *_together([_extent(one) for one in found]))


def host_categories(trace: Trace, calls: RuntimeCalls) -> dict[str, Intervals]:
    """When the host was in each category of a step that is no device's.

    Args:
        trace: a recording.
        calls: its runtime calls.
    """
    named = [
        trace.columns("annotations", ("name", *_TIMES), where="on_device = 0"),
        trace.columns("operators", ("name", *_TIMES), where=_NAMED),
    ]
    unnamed = [
        trace.columns("operators", _TIMES, where=f"NOT ({_NAMED})"),
        trace.columns("python_functions", _TIMES),
    ]
    others = [_some(one, _is_plain) for one in named]
    return {
        "runtime": Intervals(calls.start, calls.end),
        "data_loader": _together([_some(one, is_data_loader) for one in named]),
        "communication": _together([_some(one, is_host_communication) for one in named]),
        "cpu_exec": _together([*others, *map(_extent, unnamed)]),
    }


def _is_plain(name: str) -> bool:
    return not (is_step(name) or is_data_loader(name) or is_host_communication(name))


def _extent(columns: Columns) -> Intervals:
    return Intervals(columns["start_ns"], columns["start_ns"] + columns["duration_ns"])


def _some(columns: Columns, test: Callable[[str], bool]) -> Intervals:
    rows, every = match_rows(columns["name"], test), _extent(columns)
    return Intervals(every.start[rows], every.end[rows])


def _together(parts: list[Intervals]) -> Intervals:
    return Intervals(
        np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWork:
    """What one recording says of work and steps."""

    trace: Trace
    work: DeviceWork
    """All of it, also what lies outside the range of time that is looked at."""
    on_host: bool
    """Without any device: operators stand for kernels."""
    steps: TraceSteps
    marked: bool
    """False where the recording has no steps: then there is one, over all of it."""

    @property
    def label(self) -> str:
        """The rank; the recording's name where that is not known."""
        return self.trace.name if self.trace.rank is None else f"rank {self.trace.rank}"


def recorded_work(run: Run, carry_over: CarryOver) -> list[RecordedWork]:
    """Work and steps of every recording."""
    return [_recorded_work(run, each, carry_over) for each in reading_ahead(run.traces)]


def _recorded_work(run: Run, trace: Trace, carry_over: CarryOver) -> RecordedWork:
    work = device_work_of(trace.whole, carry_over)
    on_host = not len(work)
    marked = marked_steps(run, trace)
    return RecordedWork(
        trace=trace,
        work=host_work_of(trace.whole) if on_host else work,
        on_host=on_host,
        steps=find_trace_steps(marked.steps, work, calls_of(trace.whole)),
        marked=marked.marked,
    )
