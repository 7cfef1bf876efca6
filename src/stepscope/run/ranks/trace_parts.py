"""Communication of the traces of several ranks, measured where the traces are read.

A trace of a hundred thousand events becomes a table of its totals, of its steps and of its calls of
collectives, a few kilobytes, with which those of the other ranks are matched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import analysis, intervals
from stepscope.run.model.clock import Period
from stepscope.run.model.run import Run
from stepscope.run.model.trace_records import CollectiveKernels
from stepscope.run.model.traces import Trace, reading_ahead
from stepscope.run.ranks.figures import RankPart, detach_ranks
from stepscope.run.traces.steps import CarryOver, record_work
from stepscope.run.traces.unlike import find_unlike_traces

_NUMBERS = (
    "id",
    "on_device",
    "in_elements",
    "out_elements",
    "group_size",
    "sequence",
    "peer_source",
    "peer_destination",
)
_WORDS = ("name", "dtype", "group", "group_description")
_OPERATORS = "name LIKE 'c10d::%' OR name = 'record_param_comms' OR name LIKE 'nccl:%'"
_ANNOTATIONS = "on_device = 0 AND name LIKE 'nccl:%'"
_HOST = "name LIKE 'gloo:%' OR name LIKE 'mpi:%' OR name LIKE 'ucc:%'"


CALL_COLUMNS = ("id", "operator", "name", *analysis.TIME_COLUMNS)
"""Columns of `kernels` that `read_calls` needs."""


def read_calls(
    trace: Trace,
    kernels: analysis.Columns,
    communication: analysis.CommunicationDefinition = "wide",
) -> TraceCalls:
    """Read the collective calls of a trace.

    Calls are kernels of collectives, or for a rank without any the calls of its host. Facts belong
    to the kernel itself or to the operator that launched it. Versions of PyTorch before 2.1 write
    none: there the operators around a kernel name the collective, and their inputs tell its size.

    Args:
        trace: the trace.
        kernels: `CALL_COLUMNS` of its kernels.
        communication: definition of communication.
    """
    facts = trace.columns("collectives", (*_NUMBERS, *_WORDS))
    rows = analysis.match_rows(kernels["name"], trace.collectives.predicate(communication))
    if not rows.any():
        return _read_host(trace)
    calls = _join_facts(kernels, np.flatnonzero(rows), facts)
    return calls if len(facts["id"]) else _add_operators(trace, calls, kernels["operator"][rows])


class TraceCalls(msgspec.Struct, kw_only=True):
    """Collective calls of one trace; unknown values are None or -1."""

    start: intervals.Int
    end: intervals.Int
    kind: list[str]
    words: dict[str, list[str | None]]
    numbers: dict[str, intervals.Int]


def _join_facts(
    kernels: analysis.Columns, rows: intervals.Int, facts: analysis.Columns
) -> TraceCalls:
    start, names = kernels["start_ns"][rows], kernels["name"]
    is_kernel = facts["on_device"] == 1
    fact_rows = _find_rows(facts["id"], is_kernel, kernels["id"][rows])
    operator_rows = _find_rows(facts["id"], ~is_kernel, kernels["operator"][rows])
    fact_rows = np.where(fact_rows >= 0, fact_rows, operator_rows)
    words = {word: _words(facts, word, fact_rows) for word in _WORDS}
    return TraceCalls(
        start=start,
        end=start + kernels["duration_ns"][rows],
        kind=[
            analysis.classify_collective(fact or names.values[code] or "")
            for fact, code in zip(words["name"], names.codes[rows].tolist(), strict=True)
        ],
        words=words,
        numbers={n: np.append(facts[n], -1)[fact_rows].astype(np.int64) for n in _NUMBERS},
    )


def _add_operators(trace: Trace, calls: TraceCalls, launched_by: intervals.Int) -> TraceCalls:
    """Add what the operators around the calls tell: their kind, type and elements.

    Args:
        trace: a trace whose events do not describe collectives.
        calls: its calls.
        launched_by: operator that launched each call, -1 for none.
    """
    requests = _read_requests(trace)
    sizes = {request.group_size for request in requests.values()} - {None}
    # A trace with a smaller group does not tell which collectives are of all ranks.
    world_size = trace.world_size if sizes <= {trace.world_size} else None
    for row, operator in enumerate(launched_by.tolist()):
        request = requests.get(operator)
        if request is None:
            continue
        calls.kind[row] = request.kind or calls.kind[row]
        group_size = request.group_size or world_size or -1
        elements = request.count_elements(group_size)
        if elements is not None:
            calls.words["dtype"][row] = request.dtype
            calls.numbers["in_elements"][row] = elements
            calls.numbers["group_size"][row] = group_size
    return calls


class _Request(msgspec.Struct):
    """Request of a collective, as the operators around it describe it."""

    kind: str = ""
    tensors: list[tuple[int, str | None]] = msgspec.field(default_factory=list)
    ratio: int | None = None
    """Ratio of the larger to the smaller of output and input, of an operator that has both."""

    @property
    def group_size(self) -> int | None:
        """Ranks that gather or scatter: output and input differ by this factor."""
        return self.ratio if self.kind in {"all_gather", "reduce_scatter"} else None

    @property
    def dtype(self) -> str | None:
        """Type of the elements."""
        return next((name for _, name in self.tensors if name is not None), None)

    def add(self, name: str, tensors: list[tuple[int, str | None]]) -> None:
        """Add an operator."""
        kind = analysis.classify_collective(name)
        if kind != name and not self.kind:
            self.kind = kind
        self.tensors += tensors
        if len(tensors) > 1:
            sizes = [elements for elements, _ in tensors]
            self.ratio = max(sizes) // min(sizes)

    def count_elements(self, group_size: int) -> int | None:
        """Count the elements of the larger of input and output; None if that is unknown."""
        largest = max((elements for elements, _ in self.tensors), default=None)
        if largest is None or self.kind != "all_gather" or self.ratio is not None:
            return largest
        return largest * group_size if group_size > 0 else None


def _read_requests(trace: Trace) -> dict[int, _Request]:
    """Read the requests of collectives by each operator in them.

    A request is an operator `c10d::…` with `record_param_comms` inside, and in that an operator or
    annotation `nccl:…`, which has the type of lists of tensors.
    """
    operators = trace.columns(
        "operators",
        ("id", "parent", "track", "name", "input_dims", "input_types", *analysis.TIME_COLUMNS),
        condition=_OPERATORS,
    )
    numbers, parents = operators["id"].tolist(), operators["parent"].tolist()
    names, dims, types = (operators[key].decode() for key in ("name", "input_dims", "input_types"))
    measure, read_tensors = cache(analysis.measure_tensors), cache(_read_tensors)  # steps repeat
    requests: dict[int, _Request] = {}
    for row in np.argsort(operators["start_ns"], kind="stable").tolist():
        request = requests.get(parents[row]) or _Request()
        requests[numbers[row]] = request
        request.add(names[row] or "", measure(dims[row], types[row]))
    marks = trace.columns(
        "annotations", ("name", "track", "args", *analysis.TIME_COLUMNS), condition=_ANNOTATIONS
    )
    mark_names, arguments = marks["name"].decode(), marks["args"].decode()
    for track in np.unique(marks["track"]):
        inside = np.flatnonzero(operators["track"] == track)
        extent = analysis.make_intervals(operators, operators["track"] == track)
        order = intervals.nesting_order(*extent)
        extent = intervals.Intervals(extent.start[order], extent.end[order])
        of_track = np.flatnonzero(marks["track"] == track)
        around = intervals.innermost_at(
            marks["start_ns"][of_track], *extent, intervals.parents(*extent)
        )
        for mark, index in zip(of_track.tolist(), around.tolist(), strict=True):
            if index >= 0:
                request = requests[numbers[inside[order[index]]]]
                request.add(mark_names[mark] or "", read_tensors(arguments[mark]))
    return requests


def _read_tensors(arguments: str | None) -> list[tuple[int, str | None]]:
    """Read the tensors of an annotation of a library of collectives from its arguments."""
    try:
        values = json.loads(arguments or "{}")
        dims, types = (values.get(key) for key in ("Input Dims", "Input type"))
    except (ValueError, AttributeError, RecursionError):  # of a damaged trace
        dims = types = None
    return analysis.measure_tensors(dims and json.dumps(dims), types and json.dumps(types))


def _read_host(trace: Trace) -> TraceCalls:
    """Read collectives of the host: annotations of the library, else its operators.

    The library may carry out another collective than the one that was asked for: gloo reduces the
    whole tensor for a reduce-scatter (https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp).
    """
    columns = ("name", *analysis.TIME_COLUMNS)
    calls = trace.columns("annotations", columns, condition=f"on_device = 0 AND ({_HOST})")
    if not len(calls["start_ns"]):
        calls = trace.columns("operators", columns, condition=_HOST)
    part = _host_part(calls)
    requests = trace.columns("operators", ("name", "start_ns"), condition="name LIKE 'c10d::%'")
    requested = analysis.match_requests(
        [analysis.classify_collective(name) for name in requests["name"].decode()],
        requests["start_ns"],
        part.kind,
        part.start,
    )
    part.kind = [
        kind if request in {kind, None} else f"{request}, carried out as {kind}"
        for request, kind in zip(requested, part.kind, strict=True)
    ]
    return part


def _host_part(columns: analysis.Columns) -> TraceCalls:
    count = len(columns["start_ns"])
    names = columns["name"]
    order = np.argsort(columns["start_ns"], kind="stable")
    start = columns["start_ns"][order]
    return TraceCalls(
        start=start,
        end=start + columns["duration_ns"][order],
        kind=[
            analysis.classify_collective(names.values[c] or "") for c in names.codes[order].tolist()
        ],
        words={word: [None] * count for word in _WORDS},
        numbers={n: np.full(count, -1, dtype=np.int64) for n in _NUMBERS},
    )


def combine_calls(parts: Sequence[TraceCalls]) -> analysis.RankCalls:
    """Combine the calls of one trace per rank; `calls.rank` is the index in `parts`."""

    def joined(values: Sequence[intervals.Int]) -> intervals.Int:
        return np.concatenate([*values, np.empty(0, dtype=np.int64)]).astype(np.int64)

    numbers = {n: joined([part.numbers[n] for part in parts]) for n in _NUMBERS}
    words = {w: [value for part in parts for value in part.words[w]] for w in _WORDS}
    kind, kinds = _encode([name for part in parts for name in part.kind])
    group, groups = _encode(words["group"])
    dtype, dtypes = _encode(words["dtype"])
    elements = np.maximum(numbers["in_elements"], numbers["out_elements"])
    width = np.array(
        [analysis.look_up_element_bytes(name) or -1 for name in dtypes] + [-1], dtype=np.int64
    )[dtype]
    source, target = numbers["peer_source"], numbers["peer_destination"]
    numbered = source * (int(target.max(initial=0)) + 1) + target
    calls = analysis.CollectiveCalls(
        rank=np.repeat(np.arange(len(parts)), [len(part.start) for part in parts]),
        start=joined([part.start for part in parts]),
        end=joined([part.end for part in parts]),
        kind=kind,
        kinds=kinds,
        group=group,
        sequence=numbers["sequence"],
        pair=np.where((source >= 0) & (target >= 0), numbered, -1),
        size_bytes=np.where((width > 0) & (elements >= 0), elements * width, -1),
    )
    return analysis.RankCalls(
        calls=calls,
        group_names=[*groups, None],
        descriptions=dict(zip(group.tolist(), words["group_description"], strict=True)),
        group_size=numbers["group_size"],
        dtype=dtype,
        dtypes=dtypes,
    )


def _encode(values: Sequence[str | None]) -> tuple[intervals.Int, list[str]]:
    """Encode values as indexes into the list of distinct values, -1 for None."""
    indexes: dict[str, int] = {}
    codes = [-1 if value is None else indexes.setdefault(value, len(indexes)) for value in values]
    return np.array(codes, dtype=np.int64), list(indexes)


def _find_rows(
    ids: intervals.Int, candidates: NDArray[np.bool_], targets: intervals.Int
) -> intervals.Int:
    """Find the candidate rows with the target ids, -1 for none."""
    rows = np.flatnonzero(candidates)
    row = analysis.find_values(ids[rows], targets)
    return np.append(rows, -1)[row]


def _words(columns: Mapping[str, Any], name: str, rows: intervals.Int) -> list[str | None]:
    strings = columns[name]
    values = [*strings.values, None]
    return [values[code] for code in np.append(strings.codes, -1)[rows].tolist()]


PART_EVENTS = 8_000_000
"""Events that are read in one part of the run."""
READ_EVENTS = 1_000_000
"""Events of a part that are in memory at a time, unless one trace has more."""
TABLES = ("kernels", "copies", "operators", "annotations", "runtime_calls", "collectives", "spans")


class TraceCommunication(msgspec.Struct, frozen=True, kw_only=True):
    """Computation and communication of one trace, in nanoseconds."""

    on_host: bool
    """True without devices: operators stand for kernels."""
    extent: tuple[int, int] | None
    """First start and last end of the work, clipped to the selected range; None if empty."""
    total: dict[str, int]
    """Times of the extent, by the fields of `RangeTimes`."""
    steps: analysis.TraceSteps
    step_times: analysis.RangeTimes
    calls: TraceCalls
    """Calls of collectives, also outside the selected range."""


class MeasuredTrace(NamedTuple):
    """A trace of a run, with its communication."""

    trace: Trace
    communication: TraceCommunication


class TracePart(NamedTuple):
    """Traces of a run or of a range of it, with the ranks that recorded them."""

    period: Period
    traces: list[Trace]
    ranks: RankPart
    """Ranks of the whole run."""
    launched: frozenset[str] | None
    """Names of the kernels that operators of collectives launched; None if they do not count."""

    def attach(self, run: Run) -> tuple[Run, list[Trace]]:
        """Return the run or its range, and the traces as those of the run.

        Args:
            run: the whole run.
        """
        self.ranks.attach(run)
        collectives = CollectiveKernels(run.reader, self.launched)
        traces = [trace.attach(run.reader, collectives) for trace in self.traces]
        return run if run.period == self.period else run.between(*self.period), traces


def measure_traces(
    run: Run, carry_over: CarryOver, communication: analysis.CommunicationDefinition = "wide"
) -> list[MeasuredTrace]:
    """Measure the communication of every trace, by the engine of the run.

    Args:
        run: the run.
        carry_over, communication: as of `device_work_of`.

    Raises:
        StepscopeError: the engine has failed.
    """
    traces = run.traces
    parts = split_traces(run, traces, communication)
    function = partial(_measure_part, carry_over=carry_over, communication=communication)
    mapped = run.engine.map(run.whole_run, function, parts, tables=TABLES)
    measured = [table for part in mapped for table in part]
    no_device = find_unlike_traces(run).no_device
    return [
        MeasuredTrace(
            trace,
            _leave_out_host(table)
            if trace.trace in no_device or trace.unrecorded_devices
            else table,
        )
        for trace, table in zip(traces, measured, strict=True)
    ]


def _leave_out_host(measured: TraceCommunication) -> TraceCommunication:
    """Leave out the work of the host where it does not stand for that of devices: its shares are
    others."""
    return replace(measured, on_host=False, extent=None, total=dict.fromkeys(measured.total, 0))


def split_traces(
    run: Run,
    traces: Sequence[Trace],
    communication: analysis.CommunicationDefinition = "wide",
    part_events: int = PART_EVENTS,
) -> list[TracePart]:
    """Split traces into parts that an engine processes.

    Args:
        run: the run.
        traces: traces of it.
        communication: definition of communication.
        part_events: events of a part, unless one trace has more.
    """
    if not traces:
        return []
    whole_run = run.whole_run
    launched = traces[0].collectives.launched_by_collectives if communication == "wide" else None
    parts = []
    for part in _split_by_events(traces, part_events):
        processes = {trace.process for trace in part}
        ranks = [rank for rank in whole_run.all_ranks if rank.process.process in processes]
        parts.append(TracePart(run.period, part, detach_ranks(whole_run, ranks), launched))
    return parts


def _split_by_events(traces: Sequence[Trace], part_events: int) -> list[list[Trace]]:
    """Split traces into parts of consecutive ones with a limited number of events."""
    parts: list[list[Trace]] = []
    event_count = 0
    for trace in traces:
        if not parts or event_count + trace.event_count > part_events:
            parts.append([])
            event_count = 0
        parts[-1].append(trace)
        event_count += trace.event_count
    return parts


def _measure_part(
    run: Run,
    part: TracePart,
    *,
    carry_over: CarryOver,
    communication: analysis.CommunicationDefinition,
) -> list[TraceCommunication]:
    selected, traces = part.attach(run)
    return [
        _measure_trace(selected, trace, carry_over, communication)
        for trace in reading_ahead(traces, READ_EVENTS)
    ]


def _measure_trace(
    run: Run, trace: Trace, carry_over: CarryOver, communication: analysis.CommunicationDefinition
) -> TraceCommunication:
    kernels = trace.whole.columns(
        "kernels", tuple(dict.fromkeys((*analysis.KERNEL_COLUMNS, *CALL_COLUMNS)))
    )
    recorded = record_work(run, trace, carry_over, communication, kernels)
    return TraceCommunication(
        on_host=recorded.on_host,
        extent=recorded.extent,
        total=analysis.break_down_range(*(recorded.extent or (0, 0)), recorded.work),
        steps=recorded.steps,
        step_times=analysis.break_down_ranges(recorded.steps.extent, recorded.work),
        calls=read_calls(trace.whole, kernels, communication),
    )
