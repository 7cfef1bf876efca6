"""Conversion of query results to columns as the schema declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema import Table
from stepscope.store.columns import NUMPY_TYPES, Array
from stepscope.store.engine import identifier, select

if TYPE_CHECKING:
    import duckdb


def select_columns(
    table: Table, columns: Sequence[str] | None, encoded: Sequence[str]
) -> tuple[str, ...]:
    """Check requested columns, all by default; ValueError if one is missing or not a string."""
    selected = table.column_names if columns is None else tuple(columns)
    unknown = [name for name in selected if name not in table.column_names]
    if unknown or not selected:
        raise ValueError(f"{table.name} has no columns {unknown}; it has {table.column_names}")
    wrong = [n for n in encoded if n not in selected or table.column(n).type != "VARCHAR"]
    if wrong:
        raise ValueError(f"{table.name}: {wrong} are no string columns of the selection")
    return selected


def create_dictionaries(
    engine: duckdb.DuckDBPyConnection,
    rows: str,
    parameters: Sequence[object],
    columns: Sequence[str],
) -> dict[str, list[str]]:
    """Create an ENUM type of each column's distinct strings, sorted, and return the strings.

    One scan finds those of all columns: opening a small file takes longer than reading it. A join
    would also encode a column, but DuckDB may swap its sides and so the order of the rows.

    Args:
        engine: the connection.
        rows: source and condition of a query.
        parameters: values for its '?'.
        columns: string columns.
    """
    if not columns:
        return {}
    lists = ", ".join(
        f"list_sort(list(DISTINCT {name}) FILTER ({name} IS NOT NULL)) AS {name}"
        for name in map(identifier, columns)
    )
    query = f"CREATE OR REPLACE TEMP TABLE strings AS {select(lists, rows)}"
    engine.execute(query, list(parameters))
    for column in columns:
        strings = select(f"unnest({identifier(column)})", "strings")
        engine.execute(f"CREATE OR REPLACE TEMP TYPE {_type_of(column)} AS ENUM ({strings})")
    values = engine.execute("FROM strings").fetchall()[0]
    return {column: strings or [] for column, strings in zip(columns, values, strict=True)}


def code_expression(column: str) -> str:
    """Return a SQL expression for a column's codes in the dictionary of `create_dictionaries`."""
    name = identifier(column)
    codes = f"enum_code(CAST({name} AS {_type_of(column)}))"
    return f"COALESCE(CAST({codes} AS INTEGER), -1) AS {name}"


def _type_of(column: str) -> str:
    return identifier(f"strings of {column}")


def to_declared_array(table: Table, name: str, values: Array) -> Array:
    """Convert a result column to its declared type; nullable numbers are always masked."""
    column = table.column(name)
    if column.type == "VARCHAR":
        return unmask_objects(values)
    typed = values.astype(NUMPY_TYPES[column.type], copy=False)
    return np.ma.MaskedArray(typed, mask=np.ma.getmaskarray(values)) if column.nullable else typed


def unmask_objects(values: Array) -> Array:
    """Use None for null strings; DuckDB masks them instead, and only if there is one."""
    if not isinstance(values, np.ma.MaskedArray) or values.dtype != object:
        return values
    objects = np.array(values.data, dtype=object)
    objects[np.ma.getmaskarray(values)] = None
    return objects
