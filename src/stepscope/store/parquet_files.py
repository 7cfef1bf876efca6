"""Parquet files of other tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepscope import cores
from stepscope.store.engine import connect, identifier, scan, select
from stepscope.store.queries import explain_unreadable


class UnreadableParquetError(ValueError):
    """A file that is no complete Parquet file; the message is a clause."""


def list_parquet_columns(path: Path) -> list[str]:
    """List the columns of a Parquet file.

    Raises:
        UnreadableParquetError: the file cannot be read.
    """
    result = _query(path, "*", " LIMIT 0")
    return list(result)


def read_parquet_columns(path: Path, columns: Mapping[str, str]) -> dict[str, np.ma.MaskedArray]:
    """Read columns of a Parquet file, in the order of its rows.

    Args:
        path: the file.
        columns: type by column, a type of DuckDB; a value that does not fit is null.

    Returns:
        Masked arrays by column; strings are objects.

    Raises:
        UnreadableParquetError: the file cannot be read, or lacks a column.
    """
    expressions = ", ".join(
        f"TRY_CAST({identifier(name)} AS {kind}) AS {identifier(name)}"
        for name, kind in columns.items()
    )
    result = _query(path, expressions)
    return {name: np.ma.asarray(result[name]) for name in columns}


def _query(path: Path, columns: str, tail: str = "") -> dict[str, Any]:
    import _duckdb as duckdb

    connection = connect(threads=cores.available_cores())
    try:
        result: dict[str, Any] = connection.execute(
            select(columns, scan([path]), tail)
        ).fetchnumpy()
    except duckdb.Error as error:
        raise UnreadableParquetError(explain_unreadable(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableParquetError("the name of a column is not UTF-8") from error
    finally:
        connection.close()
    return result
