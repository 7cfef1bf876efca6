"""Tensors, small matrices and logged numbers over the steps, as series."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, store
from stepscope.run.frames import FrameColumns
from stepscope.run.job.times import find_current_processes
from stepscope.run.model.run import Run


def read_tensors(
    run: Run,
    pattern: re.Pattern[str] | None = None,
    *,
    collections: Collection[str] = (),
    rank: int | None = None,
) -> list[analysis.TensorSeries]:
    """Read the statistics of tensors, by process and in the order in which they were recorded. Of a
    job that was restarted, those of the incarnation whose ranks the run shows.

    Args:
        run: the run.
        pattern: matches whole names; None for all.
        collections: only these; empty for all.
        rank: only this rank; None for all.
    """
    names = [
        name
        for name, collection in list_tensors(run).items()
        if (pattern is None or pattern.fullmatch(name))
        and (not collections or collection in collections)
    ]
    if not names:
        return []
    condition = f"{run.period.condition('t_ns')} AND tensor IN ({', '.join('?' * len(names))})"
    series = select_tensors(run, condition, tuple(names), rank=rank)
    current = find_current_processes(run)
    earlier = {process.process for process in run.processes} - current
    return [one for one in series if one.process not in earlier]


def select_tensors(
    run: Run, condition: str, parameters: tuple[object, ...] = (), *, rank: int | None = None
) -> list[analysis.TensorSeries]:
    """Read the rows that fulfil an SQL condition, as series in the order in which they were first
    recorded.

    Args:
        run: the run; its period is not applied.
        condition: SQL over the columns of `tensor_statistics`.
        parameters: values for the '?' in it.
        rank: only this rank; None for all.
    """
    processes = {info.process: info.rank for info in run.processes}
    texts = ("process", "tensor", "mode", "collection", "shape", "dtype")
    rows = run.reader.table(
        "tensor_statistics",
        (*texts, "seq", "step", "t_ns", *analysis.STORED_REDUCTIONS),
        condition=condition,
        parameters=parameters,
        order_by="process, tensor, mode, step, seq",
        encoded=texts,
    )
    series = []
    borders = _borders(rows, ("process", "tensor", "mode"))
    for start, end in sorted(
        borders, key=lambda b: (rows["process"].codes[b[0]], rows["seq"][b[0]])
    ):
        text = {name: _text(rows[name], end - 1) for name in texts}
        process_rank = processes.get(text["process"])
        if rank is not None and (process_rank or 0) != rank:
            continue
        series.append(
            analysis.TensorSeries(
                name=text["tensor"],
                collection=text["collection"],
                process=text["process"],
                rank=process_rank,
                mode=text["mode"],
                shape=text["shape"],
                dtype=text["dtype"],
                step=rows["step"][start:end],
                t_ns=rows["t_ns"][start:end],
                stored={
                    name: np.ma.filled(np.ma.asarray(rows[name][start:end], np.float64), np.nan)
                    for name in analysis.STORED_REDUCTIONS
                },
            )
        )
    return series


def frame_of_tensors(
    series: Sequence[analysis.TensorSeries], reductions: Sequence[str]
) -> FrameColumns:
    """Return the columns tensor, collection, rank, mode, step, t_ns and the reductions."""
    sizes = [len(one.step) for one in series]

    def repeat(texts: Iterable[str]) -> store.DictColumn:
        column = store.DictColumn.encode(texts)
        return store.DictColumn(np.repeat(column.codes, sizes), column.values)

    def join(arrays: Iterable[NDArray[Any]], dtype: type) -> NDArray[Any]:
        return np.concatenate([np.empty(0, dtype), *arrays])

    columns: dict[str, Any] = {
        "tensor": repeat(one.name for one in series),
        "collection": repeat(one.collection for one in series),
        "rank": np.repeat(np.array([one.rank or 0 for one in series], dtype=np.int64), sizes),
        "mode": repeat(one.mode for one in series),
        "step": join((one.step for one in series), np.int64),
        "t_ns": join((one.t_ns for one in series), np.int64),
    }
    for name in reductions:
        values = join((one.reduction(name) for one in series), np.float64)
        columns[name] = np.ma.MaskedArray(values, mask=np.isnan(values))
    return columns


def list_tensors(run: Run) -> dict[str, str]:
    """Return the names of the recorded tensors with their collections."""
    rows = run.reader.sql("SELECT DISTINCT tensor, collection FROM tensor_statistics")
    return dict(sorted(zip(rows["tensor"].tolist(), rows["collection"].tolist(), strict=True)))


def _borders(rows: dict[str, Any], columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return start and end of the rows with equal strings in the columns."""
    is_first = np.zeros(len(rows["t_ns"]), dtype=np.bool_)
    for column in columns:
        is_first |= np.diff(rows[column].codes, prepend=-2) != 0
    return list(pairwise([*np.flatnonzero(is_first).tolist(), len(is_first)]))


def _text(column: Any, row: int) -> str:
    code = column.codes[row]
    return column.values[code] or "" if code >= 0 else ""


_TEXTS = ("process", "log", "tensor", "mode", "collection", "row_name", "column_name")
_KEY = ("process", "log", "tensor", "mode")


def select_tensor_values(
    run: Run, condition: str, parameters: tuple[object, ...] = ()
) -> list[analysis.TensorValues]:
    """Read the matrices whose rows fulfil an SQL condition, by process in the order of recording.

    Args:
        run: the run; its period is not applied.
        condition: SQL over the columns of `tensor_values`.
        parameters: values for the '?' in it.
    """
    ranks = {info.process: info.rank for info in run.processes}
    rows: dict[str, Any] = run.reader.table(
        "tensor_values",
        (*_TEXTS, "seq", "step", "t_ns", "value"),
        condition=condition,
        parameters=parameters,
        order_by="process, log, seq",
        encoded=_TEXTS,
    )
    is_first = np.zeros(len(rows["seq"]), dtype=np.bool_)
    for name in _KEY:
        is_first |= np.diff(rows[name].codes, prepend=-2) != 0
    for name in ("step", "t_ns"):
        is_first[1:] |= np.diff(rows[name]) != 0
    starts: list[int] = np.flatnonzero(is_first).tolist()
    values = np.ma.filled(np.ma.asarray(rows["value"], np.float64), np.nan)
    matrices = []
    for start, end in pairwise([*starts, len(is_first)]):
        text = {name: _value_at(rows[name], start) for name in (*_KEY, "collection")}
        row_names, row = _number_names(rows["row_name"], start, end)
        column_names, column = _number_names(rows["column_name"], start, end)
        matrix = np.full((len(row_names), len(column_names)), np.nan)
        matrix[row, column] = values[start:end]
        matrices.append(
            analysis.TensorValues(
                name=text["tensor"],
                collection=text["collection"],
                process=text["process"],
                rank=ranks.get(text["process"]),
                mode=text["mode"],
                step=int(rows["step"][start]),
                t_ns=int(rows["t_ns"][start]),
                rows=row_names,
                columns=column_names,
                values=matrix,
            )
        )
    return matrices


def _number_names(
    column: store.DictColumn, start: int, end: int
) -> tuple[tuple[str, ...], intervals.Int]:
    """Return the names of some rows in the order in which they occur, and the number of each."""
    codes, first, number = np.unique(
        column.codes[start:end], return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    position: intervals.Int = np.argsort(order)[number]
    return tuple(column.values[code] or "" for code in codes[order].tolist()), position


def _value_at(column: store.DictColumn, row: int) -> str:
    return column.values[column.codes[row]] or ""


def read_scalars(run: Run, name: str | None = None) -> list[analysis.LoggedScalars]:
    """Read series by process and name.

    Args:
        run: the run.
        name: the only name to read; None for all names.
    """
    condition = run.period.condition("t_ns")
    if name is None:
        return select_scalars(run, condition)
    return select_scalars(run, f"{condition} AND name = ?", (name,))


def select_scalars(
    run: Run, condition: str, parameters: tuple[object, ...] = ()
) -> list[analysis.LoggedScalars]:
    """Read the rows of `scalars` that fulfil an SQL condition, by process and name."""
    rows: dict[str, Any] = run.reader.table(
        "scalars",
        ("t_ns", "name", "process", "step", "value"),
        condition=condition,
        parameters=parameters,
        order_by="process, name, t_ns, seq",
        encoded=("name", "process"),
    )
    names, processes = rows["name"], rows["process"]
    is_first = np.diff(names.codes, prepend=-1) != 0
    is_first |= np.diff(processes.codes, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    steps = np.ma.asarray(rows["step"])
    value = np.where(np.isfinite(rows["value"]), rows["value"], np.nan)
    return [
        analysis.LoggedScalars(
            name=names.values[names.codes[start]] or "",
            process=processes.values[processes.codes[start]] or "",
            t_ns=rows["t_ns"][start:end],
            step=None if np.ma.is_masked(steps[start:end]) else steps.data[start:end],
            value=value[start:end],
        )
        for start, end in pairwise([*starts.tolist(), len(is_first)])
    ]
