"""DuckDB connections and the quoting of text in queries.

Loading DuckDB takes 0.1 s, a third of the start time of a command. It is therefore imported where
it is used, so that callers can do other work first.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def connect(
    *, threads: int, memory_limit: str | None = None, spill: bool = True
) -> duckdb.DuckDBPyConnection:
    """Open a new connection to an empty in-memory database.

    It does not use the network, and queries cannot see Python variables of the caller. DuckDB's
    default spill directory is the working directory, which belongs to the user: this connection
    spills into the temporary directory or, without `spill`, not at all.
    """
    import duckdb

    directory = _spill_directory(os.getpid()) if spill else ""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "temp_directory": str(directory),
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    connection = duckdb.connect(":memory:", config=config)
    # Segments are immutable, so their footers can be cached between queries.
    connection.execute("SET parquet_metadata_cache = true")
    return connection


@functools.lru_cache(maxsize=1)
def _spill_directory(process: int) -> Path:
    """Return the spill directory of this process, which its exit removes: DuckDB does so only where
    the connection is closed."""
    directory = Path(tempfile.gettempdir()) / f"stepscope-spill-{process}"
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def literal(text: str) -> str:
    """Quote a string for SQL."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def select(columns: str, source: str, tail: str = "") -> str:
    """Compose a query.

    Its parts come from the schema, from `literal` and `identifier`, or from a caller that writes
    SQL on purpose; values are bound as parameters.
    """
    return f"SELECT {columns} FROM {source}{tail}"  # noqa: S608


def scan(paths: Iterable[Path]) -> str:
    """Return a SQL table expression for the rows of Parquet files, in the order of the files.

    Columns come from the files only: a directory named `a=b` adds none.
    """
    return f"read_parquet({_path_list(paths)}, hive_partitioning = false)"


def _path_list(paths: Iterable[Path]) -> str:
    """Format paths as a SQL list, with characters escaped that DuckDB reads as glob patterns."""
    names = (literal(re.sub(r"[*?\[]", r"[\g<0>]", str(path))) for path in paths)
    return f"[{', '.join(names)}]"
