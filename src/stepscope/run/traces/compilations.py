"""Compilations by torch.compile, and the work of their code in traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from stepscope import analysis, intervals, store
from stepscope.run.model.run import Run
from stepscope.run.model.traces import Trace

_CALL_START, _CALL_END = "## Call CompiledFxGraph ", " ##"
_HOST_KERNEL = r"^graph_\d+_(cpp_\w+)$"
"""Region around a kernel on the host (torch._inductor.config.cpp.enable_kernel_profile)."""
_TEXTS = ("compile_id", "direction", "function", "file", "failure")
_NUMBERS = (
    *("rank", "line", "start_ns", "duration_ns", "backend_ns", "inductor_ns", "codegen_ns"),
    *("restart_ns", "guard_count", "operator_count", "graph_break_count"),
)


def read_compilations(run: Run) -> list[analysis.Compilation]:
    """Read the compilations of logs of TORCH_TRACE; there may be none."""
    rows = _list_rows(run.reader, "compilations", ("process", "seq", *_TEXTS, *_NUMBERS))
    events: dict[tuple[str, int], list[analysis.CompilationEvent]] = {}
    columns = ("process", "compilation", "kind", "name", "key", "file", "line", "saved_ns")
    for row in _list_rows(run.reader, "compilation_events", columns):
        compilation = (row.pop("process"), row.pop("compilation"))
        events.setdefault(compilation, []).append(analysis.CompilationEvent(**row))
    return [
        analysis.Compilation(events=events.get((row.pop("process"), row.pop("seq")), []), **row)
        for row in rows
    ]


def _list_rows(reader: store.RunReader, table: str, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = reader.table(table, names, order_by="process, seq")
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def read_compiled_work(
    traces: Iterable[Trace], kernel_names: Sequence[str]
) -> tuple[list[analysis.WorkTime], list[analysis.WorkTime]]:
    """Read the kernels of some names in traces, by name and graph, and the calls of graphs.

    Kernels on the host count where the trace has regions of them.
    """
    kernels: list[analysis.WorkTime] = []
    calls: list[analysis.WorkTime] = []
    for trace in traces if kernel_names else ():
        of_trace = _read_work(trace, ", ".join(map(store.literal, kernel_names)))
        kernels = analysis.sum_work([*kernels, *of_trace[0]])
        calls = analysis.sum_work([*calls, *of_trace[1]])
    return kernels, calls


def _read_work(
    trace: Trace, names: str
) -> tuple[Iterator[analysis.WorkTime], Iterator[analysis.WorkTime]]:
    regions = trace.columns(
        "operators",
        ("name", "track", "start_ns", "duration_ns"),
        condition=f"starts_with(name, '{_CALL_START}') OR "
        f"regexp_extract(name, '{_HOST_KERNEL}', 1) IN ({names})",
    )
    texts = [text or "" for text in regions["name"].decode()]
    is_call = np.array([text.startswith(_CALL_START) for text in texts], dtype=np.bool_)
    duration_ns = regions["duration_ns"]
    on_host = [text.split("_", 2)[2] for text in texts if not text.startswith(_CALL_START)]
    calls = analysis.GraphCalls(
        keys=[
            text.removeprefix(_CALL_START).removesuffix(_CALL_END)
            for text in texts
            if text.startswith(_CALL_START)
        ],
        track=regions["track"][is_call],
        start_ns=regions["start_ns"][is_call],
        end_ns=regions["start_ns"][is_call] + duration_ns[is_call],
    )
    kernels = trace.columns(
        "kernels", ("name", "operator", "duration_ns"), condition=f"name IN ({names})"
    )
    track, start_ns = _find_launches(trace, kernels["operator"])
    keys = calls.find_keys(
        np.concatenate([track, regions["track"][~is_call]]),
        np.concatenate([start_ns, regions["start_ns"][~is_call]]),
    )
    kernel_ns = np.concatenate([kernels["duration_ns"], duration_ns[~is_call]])
    kernel_names = [*(name or "" for name in kernels["name"].decode()), *on_host]
    return (
        _make_works(trace.rank, kernel_names, keys, kernel_ns),
        _make_works(trace.rank, [""] * len(calls.keys), calls.keys, duration_ns[is_call]),
    )


def _make_works(
    rank: int | None, names: Sequence[str], keys: Sequence[str | None], duration_ns: intervals.Int
) -> Iterator[analysis.WorkTime]:
    for name, key, duration in zip(names, keys, duration_ns.tolist(), strict=True):
        yield analysis.WorkTime(rank, name, key, 1, duration)


def _find_launches(trace: Trace, operator: intervals.Int) -> tuple[intervals.Int, intervals.Int]:
    """Find track and start of operators; -1 where there is none."""
    launches = np.full((2, len(operator)), -1, dtype=np.int64)
    if len(operator):
        rows = trace.columns("operators", ("id", "track", "start_ns"))
        row = analysis.find_rows(rows["id"], operator)
        is_known = row >= 0
        launches[0, is_known] = rows["track"][row[is_known]]
        launches[1, is_known] = rows["start_ns"][row[is_known]]
    return launches[0], launches[1]
