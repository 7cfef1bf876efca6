"""Conversion of query results to columns as the schema declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema import Table
from stepscope.store.columns import NUMPY_TYPES, Array, DictColumn
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


def create_dictionary(engine: duckdb.DuckDBPyConnection, source: str, column: str) -> list[str]:
    """Create an ENUM type of a column's distinct strings, sorted, and return the strings.

    A join would also encode the column, but DuckDB may swap its sides and so the order of the rows.
    """
    name, kind = identifier(column), identifier(f"strings of {column}")
    distinct = select(f"DISTINCT {name}", source, f" WHERE {name} IS NOT NULL ORDER BY 1")
    engine.execute(f"CREATE OR REPLACE TEMP TYPE {kind} AS ENUM ({distinct})")
    result = engine.execute(f"SELECT unnest(enum_range(CAST(NULL AS {kind}))) AS s").fetchnumpy()
    return [str(string) for string in result["s"]]


def code_expression(column: str) -> str:
    """Return a SQL expression for a column's codes in the dictionary of `create_dictionary`."""
    name, kind = identifier(column), identifier(f"strings of {column}")
    return f"COALESCE(CAST(enum_code(CAST({name} AS {kind})) AS INTEGER), -1) AS {name}"


def to_dict_column(codes: Array, strings: list[str]) -> DictColumn:
    """Combine codes with the strings in use: a condition may have excluded the others."""
    return DictColumn(np.asarray(codes, dtype=np.int32), strings).drop_unused()


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
