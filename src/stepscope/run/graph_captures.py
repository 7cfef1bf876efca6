"""Work of replayed graphs in a trace, and the captures of graphs in all traces of its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from stepscope.analysis import (
    GRAPH_WORK_COLUMNS,
    KERNEL,
    MEMCPY,
    MEMSET,
    Capture,
    GraphWork,
    collect_graph_work,
    find_rows,
    match_rows,
    name_captured_operators,
)
from stepscope.intervals import Int
from stepscope.run.run import Run
from stepscope.run.traces import Trace, columns_of
from stepscope.schema import (
    CAPTURE_BEGIN,
    CAPTURE_END,
    COPY_LAUNCH,
    GRAPH_LAUNCH,
    SET_LAUNCH,
    WORK_LAUNCHES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """Work that graphs launched in one trace."""

    work: GraphWork
    operators: list[str | None]
    """Captured operator of each piece of work; None where no capture fits."""


class _LaunchArgs(msgspec.Struct):
    """Arguments of a runtime call that name the kernel it launches."""

    kernel: str | None = None


def graph_calls_of(trace: Trace) -> Int:
    """Read the ids of the calls that launch graphs, also of those before the range of time."""
    calls: Int = trace.whole.columns("runtime_calls", ("id",), condition=_contains(GRAPH_LAUNCH))[
        "id"
    ]
    return calls


def replays_of(run: Run, trace: Trace, graph_calls: Int, *, condition: str = "") -> Replays:
    """Read the work of graphs in a trace, with the operators captured in any trace of the run.

    Args:
        run: the run; graphs are also captured outside its range of time.
        trace: a trace of it.
        graph_calls: `graph_calls_of` the trace.
        condition: additional SQL condition for the work.
    """
    work = collect_graph_work(
        trace.columns("kernels", GRAPH_WORK_COLUMNS, condition=condition),
        trace.columns("copies", (*GRAPH_WORK_COLUMNS, "kind"), condition=condition),
        graph_calls,
    )
    if not len(work):
        return Replays(work=work, operators=[])
    operators = name_captured_operators(work, run.whole_run.derive(read_captures))
    if (work.captured_operator >= 0).any():
        # Captures of the same trace were matched on import.
        columns = trace.whole.columns("operators", ("id", "name"))
        names = columns["name"]
        matched = np.flatnonzero(work.captured_operator >= 0)
        operator_rows = find_rows(columns["id"], work.captured_operator[matched])
        for row, operator in zip(matched.tolist(), operator_rows.tolist(), strict=True):
            operators[row] = names.values[names.codes[operator]] if operator >= 0 else None
    return Replays(work=work, operators=operators)


def read_captures(run: Run) -> list[Capture]:
    """Find the captures of graphs in all traces of a run."""
    condition = f"{_contains(CAPTURE_BEGIN)} OR {_contains(CAPTURE_END)}"
    marks = columns_of(
        run.traces, "runtime_calls", ("name", "track", "start_ns"), condition=condition
    )
    return [
        capture
        for trace, columns in zip(run.traces, marks, strict=True)
        if len(columns["start_ns"])
        for capture in _find_captures(trace, columns)
    ]


def _find_captures(trace: Trace, marks: dict[str, Any]) -> list[Capture]:
    """Find the captures of one trace by the calls that begin and end them."""
    launches = trace.columns(
        "runtime_calls",
        ("name", "track", "start_ns", "operator", "args"),
        condition=" OR ".join(map(_contains, WORK_LAUNCHES)),
    )
    is_begin = match_rows(marks["name"], lambda name: CAPTURE_BEGIN in name)
    captures = []
    for begin in np.flatnonzero(is_begin).tolist():
        track, start = marks["track"][begin], marks["start_ns"][begin]
        ends = marks["start_ns"][~is_begin & (marks["track"] == track)]
        end = min(ends[ends > start].tolist(), default=start)
        inside = (launches["track"] == track) & (launches["start_ns"] > start)
        rows = np.flatnonzero(inside & (launches["start_ns"] < end))
        rows = rows[np.argsort(launches["start_ns"][rows], kind="stable")]
        captures.append(_describe_capture(trace, launches, rows))
    return captures


def _describe_capture(trace: Trace, launches: dict[str, Any], rows: Int) -> Capture:
    operators = trace.columns("operators", ("id", "name"))
    operator = np.append(operators["name"].codes, -1)[
        find_rows(operators["id"], launches["operator"][rows])  # row -1 is the appended one
    ]
    calls, args = launches["name"], launches["args"]
    call_names = [calls.values[code] or "" for code in calls.codes[rows].tolist()]
    texts = [args.values[code] if code >= 0 else None for code in args.codes[rows].tolist()]
    return Capture(
        kinds=tuple(
            MEMCPY if COPY_LAUNCH in name else MEMSET if SET_LAUNCH in name else KERNEL
            for name in call_names
        ),
        kernels=tuple(
            msgspec.json.decode(text, type=_LaunchArgs).kernel if text else None for text in texts
        ),
        operators=tuple(
            operators["name"].values[code] if code >= 0 else None for code in operator.tolist()
        ),
    )


def _contains(part: str) -> str:
    """Build the SQL condition for names that contain a text."""
    return f"name LIKE '%{part}%'"
