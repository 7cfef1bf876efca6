"""Rows of statistics of tensors in a drawn run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.schema import TABLES
from stepscope.store import DictColumn, RunWriter
from stepscope.store.engine import NUMPY_TYPES
from stepscope.testing.runs import EPOCH_NS

FILLER: dict[str, Any] = {
    "node": "n0", "log": "7r", "mode": "TRAIN", "collection": "weights", "shape": "2x3",
    "dtype": "float32", "element_count": 6, "nan_count": 0, "infinite_count": 0, "zero_count": 0,
}  # fmt: skip


def add_tensors(
    run: Path, process: str, rows: Sequence[dict[str, Any]], *, table: str = "tensor_statistics"
) -> None:
    """Append rows to a run, a second apart for each step; missing numbers are null."""
    _append(run, process, rows, table)


def add_histograms(run: Path, process: str, rows: Sequence[dict[str, Any]]) -> None:
    """Append bins of histograms to a run, a second apart for each step."""
    _append(run, process, rows, "tensor_histograms")


def _append(run: Path, process: str, rows: Sequence[dict[str, Any]], table: str) -> None:
    filled = [
        {"process": process, "seq": number, "t_ns": EPOCH_NS + row["step"] * 10**9, **FILLER, **row}
        for number, row in enumerate(rows)
    ]
    columns: dict[str, Any] = {}
    for column in TABLES[table].columns:
        values = [row.get(column.name) for row in filled]
        if column.type == "VARCHAR":
            columns[column.name] = DictColumn.encode(values)
        elif column.nullable or column.type == "DOUBLE":
            numbers = [np.nan if value is None else value for value in values]
            masked = np.ma.masked_invalid(np.array(numbers, dtype=np.float64))
            columns[column.name] = masked.astype(NUMPY_TYPES[column.type])
        else:
            columns[column.name] = np.array(values, dtype=np.int64)
    with RunWriter(run, "n0") as writer:
        writer.append(table, columns)
