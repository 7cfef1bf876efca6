"""Runs whose tables are in many segments, as a monitor writes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.schema import TABLES
from stepscope.store import DictColumn, RunWriter, open_run


def segment_tables(run: Path, tables: tuple[str, ...], *, node: str = "n0") -> None:
    """Write tables of a run again, in sixteen flushes each, and merge them."""
    for table in tables:
        texts = [column.name for column in TABLES[table].columns if column.type == "VARCHAR"]
        columns: dict[str, Any] = open_run(run).table(table, encoded=texts)
        shutil.rmtree(run / "tables" / table)
        row_count = len(columns["seq"])
        with RunWriter(run, node) as writer:
            for rows in np.array_split(np.arange(row_count), 16):
                writer.append(table, {name: _take(c, rows) for name, c in columns.items()})
            writer.compact(table)


def _take(column: Any, rows: Any) -> Any:
    if isinstance(column, DictColumn):
        return DictColumn(column.codes[rows], column.values)
    return column[rows]
