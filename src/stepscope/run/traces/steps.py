"""Steps of a trace, fetches of batches, and work of devices and of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from stepscope import analysis, intervals, schema
from stepscope.run.model.run import Run
from stepscope.run.model.trace_records import OPERATOR_SIGN
from stepscope.run.model.traces import Trace, reading_ahead

_STEPS = "name LIKE 'ProfilerStep#%'"
_RANGES = " OR ".join(
    f"name LIKE '{start}%'"
    for start in ("Optimizer.step#", "##", "[pl]", "DistributedDataPar", "enumerate(Data")
)
"""Ranges that older profilers wrote as operators."""
_MARKS = ("ProfilerStep#", "enumerate(Data", "gloo:", "mpi:", "ucc:")
"""Beginnings of the names of annotations, which older profilers wrote as operators."""


CarryOver = Literal["keep", "drop"]
"""Whether work that was launched before the trace began counts."""
StepSource = Literal["named", "job", "optimizer", "ranges", "whole"]
"""Source of the steps of a trace: ranges named as steps, the steps that were recorded meanwhile,
ends of optimizer steps, starts of a range that repeats, or none, so that one step is all of it."""


class MarkedSteps(NamedTuple):
    """Steps as marked by the host."""

    steps: analysis.HostSteps
    source: StepSource
    range_name: str = ""
    """Name of the ranges that they come from, where it is not that of a step."""

    @property
    def marked(self) -> bool:
        """False for a trace without steps: one step covers all of it."""
        return self.source != "whole"


def marked_steps(run: Run, trace: Trace) -> MarkedSteps:
    """Find the steps of one trace: its named steps, or the steps recorded meanwhile, or else those
    that its ranges show."""
    steps = _find_marked(trace)
    if steps is not None:
        return MarkedSteps(steps, "named")
    watched = run.steps_in(trace)
    if watched.numbers:
        names = [str(number) for number in watched.numbers]
        return MarkedSteps(analysis.HostSteps(names=names, extent=watched.extent), "job")
    return _make_whole_step(trace) if run.rank_of(trace) is not None else _find_ranges(trace)


def find_marked_steps(trace: Trace) -> MarkedSteps:
    """Find the steps of one trace from its own events: its named steps; else, unless it is a window
    of a watched job, those that its ranges show."""
    steps = _find_marked(trace)
    if steps is not None:
        return MarkedSteps(steps, "named")
    return _make_whole_step(trace) if trace.process is not None else _find_ranges(trace)


def _find_marked(trace: Trace) -> analysis.HostSteps | None:
    """Find the named steps of a trace; of other frameworks than PyTorch with the fetches between
    them, each of which belongs to the step after it."""
    steps = named_steps(trace)
    if steps is None or trace.recorder.is_torch:
        return steps
    return analysis.include_fetches(steps, find_fetches([read_marks(trace)]))


def _find_calls(trace: Trace, ranges: Sequence[analysis.NamedRange]) -> MarkedSteps | None:
    """Find the steps of a framework whose functions compute a step each; else the times from one
    fetch of a batch to the next. None without them."""
    fetches = find_fetches([read_marks(trace)])
    calls = [
        analysis.FunctionCall(function, row)
        for row in ranges
        if (function := trace.recorder.name_step_call(row.name)) is not None
    ]
    operators = trace.columns("operators", ("start_ns",))["start_ns"]
    steps = analysis.find_called_steps(calls, fetches, np.sort(operators))
    if steps is not None:
        return MarkedSteps(steps.steps, "ranges", steps.name)
    borders = analysis.make_steps_between(fetches.start.tolist())
    return None if borders is None else MarkedSteps(borders, "ranges", schema.TF_DATA_FETCH)


def _find_ranges(trace: Trace) -> MarkedSteps:
    """Find the steps that the script counts, those between the ends of optimizer steps, or those
    between the starts of another range that repeats; without any, one step covers the trace."""
    ranges = _read_ranges(trace)
    if not trace.recorder.is_torch:
        called = _find_calls(trace, ranges)
        if called is not None:
            return called
        ranges = [row for row in ranges if not trace.recorder.is_part(row.name)]
    numbered = analysis.find_numbered_steps(ranges)
    if numbered is not None:
        return MarkedSteps(numbered, "named")
    optimizer = analysis.find_optimizer_steps(ranges)
    if optimizer is not None:
        return MarkedSteps(optimizer.steps, "optimizer", optimizer.name)
    repeated = analysis.find_repeated_steps(ranges)
    if repeated is not None:
        return MarkedSteps(repeated.steps, "ranges", repeated.name)
    return _make_whole_step(trace)


def _make_whole_step(trace: Trace) -> MarkedSteps:
    """Make one step from the first host event to the last."""
    tables = ("operators", "python_functions")
    host = _concatenate(
        [analysis.make_intervals(trace.columns(table, analysis.TIME_COLUMNS)) for table in tables]
    )
    if not len(host.start):
        return MarkedSteps(analysis.make_single_step(*trace.extent), "whole")
    return MarkedSteps(
        analysis.make_single_step(int(host.start.min()), int(host.end.max())), "whole"
    )


def _read_ranges(trace: Trace) -> list[analysis.NamedRange]:
    """Read the ranges of frameworks and of the script on the host, by start."""
    columns = ("name", "track", *analysis.TIME_COLUMNS)
    marks = [read_marks(trace), trace.columns("operators", columns, condition=_RANGES)]
    rows = [
        analysis.NamedRange(part["name"].values[code], track, start, start + duration)
        for part in marks
        for code, track, start, duration in zip(
            part["name"].codes.tolist(), *(part[name].tolist() for name in columns[1:]), strict=True
        )
    ]
    return sorted(rows, key=lambda row: (row.start, -row.end))


def named_steps(trace: Trace) -> analysis.HostSteps | None:
    """Find the named steps of a trace; None without any."""
    columns = ("name", *analysis.TIME_COLUMNS)
    rows = trace.columns("annotations", columns, condition=f"on_device = 0 AND {_STEPS}")
    if not len(rows["start_ns"]):  # older versions of PyTorch write them as operators
        rows = trace.columns("operators", columns, condition=_STEPS)
    names = [rows["name"].values[code] for code in rows["name"].codes.tolist()]
    return analysis.find_host_steps(names, *analysis.make_intervals(rows))


def read_marks(trace: Trace) -> analysis.Columns:
    """Read name, track, start and duration of the annotations on the host."""
    return trace.columns(
        "annotations", ("name", "track", *analysis.TIME_COLUMNS), condition="on_device = 0"
    )


def host_categories(
    trace: Trace, calls: analysis.RuntimeCalls, marks: analysis.Columns
) -> dict[str, intervals.Intervals]:
    """Find when the host was in each category of a step that is not device work.

    Args:
        trace: a trace.
        calls: its runtime calls.
        marks: `read_marks` of it.
    """
    operators = trace.columns("operators", ("name", *analysis.TIME_COLUMNS))
    functions = trace.columns("python_functions", analysis.TIME_COLUMNS)

    def select(test: Callable[[str], bool]) -> intervals.Intervals:
        of_operators = select_named(operators, lambda name: name.startswith(_MARKS) and test(name))
        return _concatenate([select_named(marks, test), of_operators])

    return {
        "runtime": intervals.Intervals(calls.start, calls.end),
        "data_loader": select(analysis.is_data_loader),
        "communication": select(analysis.is_host_communication),
        "cpu_exec": _concatenate(
            [
                select(_is_plain),
                select_named(operators, lambda name: not name.startswith(_MARKS)),
                analysis.make_intervals(functions),
            ]
        ),
    }


def _is_plain(name: str) -> bool:
    return not (
        analysis.is_step(name)
        or analysis.is_data_loader(name)
        or analysis.is_host_communication(name)
    )


def select_named(columns: analysis.Columns, test: Callable[[str], bool]) -> intervals.Intervals:
    """Select the intervals of the rows whose name satisfies a test."""
    return analysis.make_intervals(columns, analysis.match_rows(columns["name"], test))


def _concatenate(parts: list[intervals.Intervals]) -> intervals.Intervals:
    return intervals.Intervals(
        np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])
    )


class RecordedWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work and steps of one trace."""

    trace: Trace
    work: analysis.DeviceWork
    """All device work, also outside the selected range."""
    on_host: bool
    """True without devices: operators stand for kernels."""
    steps: analysis.TraceSteps
    source: StepSource

    @property
    def marked(self) -> bool:
        """False for a trace without steps: one step covers all of it."""
        return self.source != "whole"

    @property
    def extent(self) -> tuple[int, int] | None:
        """First start and last end of the work, clipped to the selected range; None if empty."""
        extent = self.work.extent
        if extent is None or self.trace.within is None:
            return extent
        start, end = max(extent[0], self.trace.within[0]), min(extent[1], self.trace.within[1])
        return (start, end) if start <= end else None


def recorded_work(
    run: Run, carry_over: CarryOver, communication: analysis.CommunicationDefinition = "wide"
) -> list[RecordedWork]:
    """Read work and steps of every trace; arguments are those of `device_work_of`."""
    return [
        record_work(run, trace, carry_over, communication) for trace in reading_ahead(run.traces)
    ]


class WithSteps(Protocol):
    """Anything with the steps of one trace."""

    @property
    def steps(self) -> analysis.TraceSteps:
        """The steps."""

    @property
    def marked(self) -> bool:
        """False for a trace without steps."""


def join_step_durations(recorded: Sequence[WithSteps]) -> intervals.Int:
    """Join the durations of the marked steps of several traces, in nanoseconds."""
    durations = [part.steps.wall_ns for part in recorded if part.marked]
    return np.concatenate([*durations, np.empty(0, dtype=np.int64)])


def record_work(
    run: Run,
    trace: Trace,
    carry_over: CarryOver,
    communication: analysis.CommunicationDefinition,
    kernels: analysis.Columns | None = None,
) -> RecordedWork:
    """Read work and steps of one trace; see `recorded_work` and `device_work_of`."""
    work = device_work_of(trace.whole, carry_over, communication, kernels)
    on_host = not len(work)
    marked = marked_steps(run, trace)
    return RecordedWork(
        trace=trace,
        work=host_work_of(trace.whole) if on_host else work,
        on_host=on_host,
        steps=analysis.find_trace_steps(marked.steps, work, calls_of(trace.whole)),
        source=marked.source,
    )


class TracedFetches(msgspec.Struct, frozen=True, kw_only=True):
    """Fetches of batches in one trace, by the training thread; arrays have one entry per fetch."""

    start_ns: intervals.Int
    duration_ns: intervals.Int
    has_workers: bool
    """True if DataLoader workers prepare the batches, or threads of tf.data."""


class Fetches(msgspec.Struct, frozen=True, kw_only=True):
    """Fetches of batches by the training thread."""

    has_workers: bool
    """True if workers prepare the batches."""
    ns_per_step: float
    count_per_step: float


def measure_fetches(trace: Trace, steps: analysis.TraceSteps) -> Fetches | None:
    """Measure the fetches inside the steps; None without any."""
    fetches = read_fetches(trace)
    inside = intervals.contains(intervals.union(steps.extent), fetches.start_ns)
    if not inside.any():
        return None
    return Fetches(
        has_workers=fetches.has_workers,
        ns_per_step=float(fetches.duration_ns[inside].sum()) / len(steps.names),
        count_per_step=int(inside.sum()) / len(steps.names),
    )


def read_fetches(trace: Trace) -> TracedFetches:
    """Read the fetches of batches in a trace; of nested fetches the outermost."""
    ranges = [
        read_marks(trace),
        trace.columns("operators", ("name", "track", *analysis.TIME_COLUMNS)),
    ]
    fetches = find_fetches(ranges)
    return TracedFetches(
        start_ns=fetches.start,
        duration_ns=fetches.end - fetches.start,
        has_workers=not trace.recorder.is_torch
        or any(bool(analysis.match_rows(part["name"], _has_workers).any()) for part in ranges),
    )


def _has_workers(name: str) -> bool:
    return "MultiProcessing" in name


def find_fetches(ranges: Sequence[analysis.Columns]) -> intervals.Intervals:
    """Find the fetches of batches by the training thread: the one with the steps and optimizer
    steps, where these are marked. Other threads may fetch ahead, but those of TensorFlow fetch for
    the function that the training thread calls.

    Args:
        ranges: operators and annotations of the host, with `name`, `track` and times.
    """
    tracks = [part["track"][analysis.match_rows(part["name"], _is_of_training)] for part in ranges]
    training = np.unique(np.concatenate(tracks))
    fetches = []
    for part in ranges:
        rows = analysis.match_rows(part["name"], analysis.is_data_loader)
        if len(training):
            rows &= np.isin(part["track"], training) | analysis.match_rows(
                part["name"], lambda name: name.startswith(schema.TF_DATA_FETCH)
            )
        fetches.append(analysis.make_intervals(part, rows))
    return intervals.unite(intervals.EMPTY, *fetches)


def _is_of_training(name: str) -> bool:
    return analysis.is_step(name) or name.startswith("Optimizer.")


def device_work_of(
    trace: Trace,
    carry_over: CarryOver,
    communication: analysis.CommunicationDefinition = "wide",
    kernels: analysis.Columns | None = None,
) -> analysis.DeviceWork:
    """Read the device work of one trace, with or without work launched before it.

    Args:
        trace: the trace.
        carry_over: whether work launched before the trace counts.
        communication: definition of communication.
        kernels: `KERNEL_COLUMNS` of its kernels, if they have been read already.
    """
    if kernels is None:
        kernels = trace.columns("kernels", analysis.KERNEL_COLUMNS)
    copies = trace.columns("copies", analysis.COPY_COLUMNS)
    work = analysis.combine_device_work(kernels, copies, trace.collectives.predicate(communication))
    return work.take(~work.carry_over) if carry_over == "drop" else work


def host_work_of(trace: Trace) -> analysis.DeviceWork:
    """Read host computation and communication as work of one device, for traces without devices.

    Outermost operators stand for kernels, and calls of collectives that the host carries out
    (gloo, MPI, UCC) for kernels of collectives. Operators that request these are neither.
    """
    times = ("name", *analysis.TIME_COLUMNS)
    operators = trace.columns("operators", times, condition="depth = 0")
    is_work = ~analysis.match_rows(operators["name"], analysis.requests_communication)
    marks = trace.columns("annotations", times, condition="on_device = 0")
    calls = analysis.match_rows(marks["name"], analysis.is_host_communication)
    start = np.concatenate([operators["start_ns"][is_work], marks["start_ns"][calls]])
    duration = np.concatenate([operators["duration_ns"][is_work], marks["duration_ns"][calls]])
    communication = np.ones(len(start), dtype=np.bool_)
    communication[: is_work.sum()] = analysis.match_rows(
        operators["name"], analysis.is_host_communication
    )[is_work]
    no_device = np.zeros(len(start), dtype=np.int64)
    return analysis.DeviceWork(
        track=no_device,
        device=no_device,
        start=start,
        end=start + duration,
        kind=no_device.astype(np.int8),
        communication=communication,
        carry_over=np.zeros(len(start), dtype=np.bool_),
        launch=no_device - 1,
    )


def streams_of(trace: Trace) -> dict[int, int | None]:
    """Read the stream number of each device track."""
    tracks = trace.columns("tracks", ("track", "stream"), condition="kind = 'device'")
    numbers = zip(tracks["track"].tolist(), tracks["stream"].tolist(), strict=True)
    return {track: stream if stream >= 0 else None for track, stream in numbers}


def accelerator_of(trace: Trace) -> schema.Accelerator:
    """Return the maker of the devices of a trace: by its layout, else by the names of the calls of
    its runtime, which are not CUDA's where none of them is, else by a sign of devices; CUDA where
    there is none."""
    layout = trace.quality_issues.get("device_layout")
    if layout is not None and layout.detail:
        return schema.accelerator_named(layout.detail)
    calls = trace.whole.columns("runtime_calls", ("name",))["name"].values
    names = [name for name in calls if name]
    if names:
        unknown = schema.accelerator_named(schema.PRIVATE_BACKEND)
        return schema.accelerator_called(names) or unknown
    sign = (trace.unrecorded_devices or "").removeprefix(OPERATOR_SIGN)
    return schema.accelerator_signed(sign) if sign else schema.ACCELERATORS[0]


def calls_of(trace: Trace) -> analysis.RuntimeCalls:
    """Read the intervals of the runtime calls of one trace."""
    return analysis.RuntimeCalls.from_columns(
        trace.columns("runtime_calls", ("id", *analysis.TIME_COLUMNS))
    )
