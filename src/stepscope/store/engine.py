"""DuckDB as this package uses it: how a connection is set up and how text enters a query.

Loading DuckDB takes a tenth of a second, a third of what a command takes to start. So it is
imported where it is used, and whoever has something else to do meanwhile does it first.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "available_cores",
    "connect",
    "identifier",
    "literal",
    "scan",
    "select",
]


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def connect(
    *, threads: int, memory_limit: str | None = None, spill: bool = True
) -> duckdb.DuckDBPyConnection:
    """A connection of its own, to an empty database in memory.

    It never reaches for the network, and a query sees no Python variable of its caller. By
    default DuckDB spills into the working directory, which is the user's: here it spills into
    the temporary directory or not at all.
    """
    import duckdb

    directory = Path(tempfile.gettempdir()) / f"stepscope-spill-{os.getpid()}"
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "temp_directory": str(directory) if spill else "",
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    connection = duckdb.connect(":memory:", config=config)
    # Segments never change: their footers need not be read again for every query.
    connection.execute("SET parquet_metadata_cache = true")
    return connection


def literal(text: str) -> str:
    """A string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A quoted name of SQL."""
    return '"' + name.replace('"', '""') + '"'


def select(columns: str, source: str, tail: str = "") -> str:
    """A query. Its parts come from the schema, from `literal` and `identifier`, or from a caller
    who writes SQL on purpose; values are bound as parameters."""
    return f"SELECT {columns} FROM {source}{tail}"  # noqa: S608


def scan(paths: Iterable[Path]) -> str:
    """The rows of some Parquet files, in the order of the files, as a table of SQL.

    Columns come from the files alone: a directory named `a=b` adds none.
    """
    return f"read_parquet({_listed(paths)}, hive_partitioning = false)"


def _listed(paths: Iterable[Path]) -> str:
    """Paths are patterns to DuckDB, so what would be one is escaped."""
    names = (literal(re.sub(r"[*?\[]", r"[\g<0>]", str(path))) for path in paths)
    return f"[{', '.join(names)}]"
