"""Small matrices with named rows and columns: importance of features, counts of classes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from stepscope.analysis import TensorValues
from stepscope.intervals import Int
from stepscope.run.run import Run
from stepscope.store import DictColumn

_TEXTS = ("process", "log", "tensor", "mode", "collection", "row_name", "column_name")
_KEY = ("process", "log", "tensor", "mode")


def select_tensor_values(
    run: Run, condition: str, parameters: tuple[object, ...] = ()
) -> list[TensorValues]:
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
        text = {name: _text(rows[name], start) for name in (*_KEY, "collection")}
        row_names, row = _number_names(rows["row_name"], start, end)
        column_names, column = _number_names(rows["column_name"], start, end)
        matrix = np.full((len(row_names), len(column_names)), np.nan)
        matrix[row, column] = values[start:end]
        matrices.append(
            TensorValues(
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


def _number_names(column: DictColumn, start: int, end: int) -> tuple[tuple[str, ...], Int]:
    """Return the names of some rows in the order in which they occur, and the number of each."""
    codes, first, number = np.unique(
        column.codes[start:end], return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    position: Int = np.argsort(order)[number]
    return tuple(column.values[code] or "" for code in codes[order].tolist()), position


def _text(column: DictColumn, row: int) -> str:
    return column.values[column.codes[row]] or ""
