"""DuckDB: connections, columns as rows, results as declared columns, older schema versions.

Loading DuckDB takes long. It is therefore imported where it is used, so that callers can do other
work first, and without the Python interface of its package, which takes three times as long to load
as the extension module, `_duckdb`, that has all that is needed here.

Columns in memory, and their conversion to rows of a SQL query. Strings are dictionary-encoded:
recorders intern them anyway, and neither Python nor DuckDB then handles one string per row. Missing
numbers are numpy masked arrays.

Conversion of older schema versions while a run is read. A recorded run is never rewritten:
`run.json` is converted after it is read, and the rows of a table by the query that reads them.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema

if TYPE_CHECKING:
    import duckdb


def connect(
    *,
    threads: int,
    memory_limit: str | None = None,
    spill: bool = True,
    readable: Sequence[Path] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open a new connection to an empty in-memory database.

    It does not use the network, and queries cannot see Python variables of the caller. DuckDB's
    default spill directory is the working directory, which belongs to the user: this connection
    spills into the temporary directory or, without `spill`, not at all. With `readable`, it can
    open these files alone, and its settings cannot be changed.
    """
    settings: dict[str, str | int] = {
        "threads": threads,
        "temp_directory": str(_spill_directory(os.getpid())) if spill else "",
    }
    if memory_limit is not None:
        settings["memory_limit"] = memory_limit
    connection = _take_prepared() if threads == 1 else None
    if connection is None:
        connection = _open_database(settings)
    else:
        for name, value in settings.items():
            connection.execute(f"SET {name} = {literal(str(value))}")
    # Segments are immutable, so their footers can be cached between queries. The bar that DuckDB
    # prints on standard output, in notebooks and under `python -c`, would end up among figures.
    connection.execute("SET parquet_metadata_cache = true; SET enable_progress_bar = false")
    if readable is not None:
        # DuckDB checks the pattern that `scan` makes of a path, and then the path.
        paths = [name for path in map(str, readable) for name in (path, _escape_pattern(path))]
        connection.execute(f"SET allowed_paths = [{', '.join(map(literal, paths))}]")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    return connection


_PREPARED: list[duckdb.DuckDBPyConnection] = []
"""Connection for the next use here, and for the first one in each process forked from this one."""


def prepare_database() -> None:
    """Open a database that processes which this one forks have in common, each for its first
    connection of one thread.

    The functions of a database take 6 MB and 20 ms. It has no threads, which a fork would lose:
    where DuckDB starts some, nothing is prepared.
    """
    import _duckdb as duckdb

    if not _PREPARED:
        with suppress(duckdb.Error):  # DuckDB 1 has a thread that cannot be switched off
            _PREPARED.append(_open_database({"threads": 1, "async_threads": 0}))


def _take_prepared() -> duckdb.DuckDBPyConnection | None:
    prepare_database()
    with suppress(IndexError):  # DuckDB 1, or another thread was faster
        return _PREPARED.pop()
    return None


def _open_database(settings: Mapping[str, str | int]) -> duckdb.DuckDBPyConnection:
    import _duckdb as duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        **settings,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    return duckdb.connect(":memory:", config=config)


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
    names = ", ".join(literal(_escape_pattern(str(path))) for path in paths)
    return f"read_parquet([{names}], hive_partitioning = false)"


def _escape_pattern(path: str) -> str:
    """Escape the characters of a path that DuckDB reads as a glob pattern."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


Array = NDArray[Any]

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "BIGINT": np.dtype(np.int64),
    "INTEGER": np.dtype(np.int32),
    "SMALLINT": np.dtype(np.int16),
    "DOUBLE": np.dtype(np.float64),
}
"""In-memory type of each column type that is not a string."""

_TRIM_ABOVE = 32
"""Size above which a dictionary is reduced to the values in use before it is sent."""


class DictColumn(msgspec.Struct, frozen=True, eq=False):
    """Dictionary-encoded strings: row `i` is `values[codes[i]]`, or null where the code is -1.

    A writer may also use None as a value. A reader returns -1 for null, and values that are
    distinct and sorted.
    """

    codes: NDArray[np.int32]
    values: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def constant(cls, value: str | None, length: int) -> DictColumn:
        """Build a column with one string in all rows."""
        return cls(np.zeros(length, dtype=np.int32), [value])

    @classmethod
    def encode(cls, strings: Iterable[str | None]) -> DictColumn:
        """Encode strings that are not interned; values are in order of first appearance."""
        index: dict[str | None, int] = {}
        codes = [-1 if s is None else index.setdefault(s, len(index)) for s in strings]
        return cls(np.array(codes, dtype=np.int32), list(index))

    @classmethod
    def encode_sorted(cls, strings: Iterable[str | None]) -> DictColumn:
        """Encode strings that are not interned; values are sorted as by DuckDB: by code point."""
        column = cls.encode(strings)
        values = [value for value in column.values if value is not None]
        order = np.array(sorted(range(len(values)), key=values.__getitem__), dtype=np.int32)
        ranks = np.append(np.argsort(order), -1).astype(np.int32)
        return cls(ranks[column.codes], [values[code] for code in order.tolist()])

    def drop_unused(self) -> DictColumn:
        """Drop the values that no row has."""
        used = np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:] > 0
        if used.all():
            return self
        new_codes = np.append(np.cumsum(used) - 1, -1).astype(np.int32)
        values = [value for value, use in zip(self.values, used.tolist(), strict=True) if use]
        return DictColumn(new_codes[self.codes], values)

    def decode(self) -> NDArray[np.object_]:
        """Return one object per row: a string or None."""
        values = np.empty(len(self.values) + 1, dtype=object)
        values[:-1] = self.values
        values[-1] = None
        return values[self.codes]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Rows ready for DuckDB: arrays to register, dictionaries to bind, expressions to select."""

    row_count: int
    arrays: dict[str, Array]
    dictionaries: list[str]
    """JSON arrays of strings, one per parameter of the query."""
    expressions: list[str]
    """Of a query, one per column of the table."""


def find_table(name: str) -> schema.Table:
    """Look a table up by name; ValueError if the schema has none."""
    if name not in schema.TABLES:
        raise ValueError(f"no table {name!r}; the tables are {', '.join(schema.TABLES)}")
    return schema.TABLES[name]


def join_columns(parts: Sequence[Mapping[str, Array | DictColumn]]) -> Mapping[str, Any]:
    """Concatenate the rows of several batches of one table."""
    if len(parts) == 1:
        return parts[0]
    return {name: _join([part[name] for part in parts]) for name in parts[0]}


def _join(columns: Sequence[Any]) -> Array | DictColumn:
    if isinstance(columns[0], DictColumn):
        return _join_strings(columns)
    if any(map(np.ma.isMaskedArray, columns)):
        joined: Array = np.ma.concatenate(columns)  # type: ignore[no-untyped-call]
        return joined
    return np.concatenate(columns)


def _join_strings(columns: Sequence[DictColumn]) -> DictColumn:
    index: dict[str | None, int] = {}
    parts = []
    for column in columns:
        codes, values = _trim(column.codes, column.values)
        common = [index.setdefault(value, len(index)) for value in values]
        parts.append(np.array([*common, -1], dtype=np.int32)[codes])
    return DictColumn(np.concatenate(parts), list(index))


def make_batch(table: schema.Table, columns: Mapping[str, Array | DictColumn]) -> Batch:
    """Check columns against their declaration; ValueError names the wrong column and the reason."""
    batch = Batch(
        row_count=_common_length(table, columns), arrays={}, dictionaries=[], expressions=[]
    )
    for index, column in enumerate(table.columns):
        content = columns[column.name]
        label = f"{table.name}.{column.name}"
        if isinstance(content, DictColumn) != (column.type == "VARCHAR"):
            raise ValueError(f"{label}: strings are a DictColumn, numbers an array")
        if isinstance(content, DictColumn):
            expression = _add_strings(batch, f"c{index}", *_check_strings(label, column, content))
        else:
            expression = _add_numbers(batch, index, *_check_numbers(label, column, content))
        stored_type = column.stored_type or column.type
        if expression is None:  # a constant is written in half the time
            expression = f"CAST(NULL AS {stored_type})"
        elif column.stored_type is not None:
            expression = f"CAST({expression} AS {stored_type})"
        batch.expressions.append(f"{expression} AS {identifier(column.name)}")
    return batch


def _add_strings(batch: Batch, name: str, codes: NDArray[np.int32], values: str) -> str | None:
    """Add strings to a batch; return their expression, None if all are null."""
    if (codes < 0).all():
        return None
    batch.arrays[name] = codes
    batch.dictionaries.append(values)
    return f"""from_json(${len(batch.dictionaries)}, '["VARCHAR"]')[{name} + 1]"""


def _add_numbers(
    batch: Batch, index: int, data: Array, mask: NDArray[np.bool_] | None
) -> str | None:
    """Add numbers to a batch; return their expression, None if all are null."""
    if mask is not None and mask.all():
        return None
    batch.arrays[f"c{index}"] = data
    # DuckDB reads NaN in an array as null, as pandas does; here it is a number.
    expression = f"COALESCE(c{index}, 'NaN'::DOUBLE)" if data.dtype.kind == "f" else f"c{index}"
    if mask is None:
        return expression
    # DuckDB 1.5 ignores the mask of a masked array, so it is a separate array.
    batch.arrays[f"m{index}"] = mask
    return f"CASE WHEN NOT m{index} THEN {expression} END"


def _common_length(table: schema.Table, columns: Mapping[str, Array | DictColumn]) -> int:
    if set(columns) != set(table.column_names):
        missing = sorted(set(table.column_names) - set(columns))
        unknown = sorted(set(columns) - set(table.column_names))
        raise ValueError(f"{table.name}: missing columns {missing}, unknown columns {unknown}")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{table.name}: columns differ in length: {lengths}")
    return lengths[table.columns[0].name]


def _check_strings(
    label: str, column: schema.Column, strings: DictColumn
) -> tuple[NDArray[np.int32], str]:
    """Return codes, and the strings that they refer to as JSON."""
    codes, values = np.asarray(strings.codes), strings.values
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise ValueError(f"{label}: codes are a one-dimensional array of integers")
    if len(codes) and (codes.min() < -1 or codes.max() >= len(values)):
        raise ValueError(f"{label}: a code is outside -1 to {len(values) - 1}")
    codes = np.ascontiguousarray(codes, dtype=np.int32)
    if len(values) > _TRIM_ABOVE:
        codes, values = _trim(codes, values)
    if not column.nullable and _has_null(codes, values):
        raise ValueError(f"{label}: null in a column that is not nullable")
    return codes, _json(label, values)


def _trim(
    codes: NDArray[np.int32], values: Sequence[str | None]
) -> tuple[NDArray[np.int32], list[str | None]]:
    """Drop the values that no row has."""
    used = np.flatnonzero(np.bincount(codes + 1, minlength=len(values) + 1)[1:])
    new_codes = np.full(len(values) + 1, -1, dtype=np.int32)  # the last one is for code -1
    new_codes[used] = np.arange(len(used), dtype=np.int32)
    return new_codes[codes], [values[code] for code in used.tolist()]


def _has_null(codes: NDArray[np.int32], values: Sequence[str | None]) -> bool:
    nulls = [-1, *(code for code, value in enumerate(values) if value is None)]
    return bool(np.isin(codes, nulls).any())


def _json(label: str, values: Sequence[str | None]) -> str:
    """Encode as JSON, which DuckDB parses faster than a bound list of many strings."""
    if not all(value is None or isinstance(value, str) for value in values):
        raise ValueError(f"{label}: values are strings or None")
    try:
        return msgspec.json.encode(values).decode()
    except UnicodeEncodeError:
        # File names that are not UTF-8 reach Python as lone surrogates; Parquet cannot hold them.
        valid = [value and value.encode("utf-8", "replace").decode() for value in values]
        return msgspec.json.encode(valid).decode()


def _check_numbers(
    label: str, column: schema.Column, numbers: Array
) -> tuple[Array, NDArray[np.bool_] | None]:
    dtype = NUMPY_TYPES[column.type]
    data, mask = np.asarray(numbers), None
    # Most columns have no mask, and the module of masked arrays takes 10 ms to import.
    if type(numbers) is not np.ndarray and np.ma.is_masked(numbers):
        mask = np.ascontiguousarray(np.ma.getmaskarray(numbers))
    if data.ndim != 1 or data.dtype.kind not in ("iuf" if dtype.kind == "f" else "iu"):
        raise ValueError(
            f"{label}: {data.dtype} of {data.ndim} dimensions cannot be stored as {column.type}"
        )
    if mask is not None and not column.nullable:
        raise ValueError(f"{label}: null in a column that is not nullable")
    if not np.can_cast(data.dtype, dtype) and dtype.kind == "i":
        present = data if mask is None else data[~mask]
        limits = np.iinfo(dtype)
        if (
            len(present)
            and not limits.min <= int(present.min()) <= int(present.max()) <= limits.max
        ):
            raise ValueError(f"{label}: a value does not fit {column.type}")
    return np.ascontiguousarray(data, dtype=dtype), mask


def select_columns(
    table: schema.Table, columns: Sequence[str] | None, encoded: Sequence[str]
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


def create_empty(
    table: schema.Table, columns: Sequence[str], encoded: Collection[str]
) -> dict[str, Any]:
    """Create the columns of a table without rows, of which some strings are encoded."""
    return {
        name: DictColumn.encode(())
        if name in encoded
        else to_declared_array(
            table, name, np.empty(0, NUMPY_TYPES.get(table.column(name).type, np.dtype(object)))
        )
        for name in columns
    }


def to_declared_array(table: schema.Table, name: str, values: Array) -> Array:
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


class Upgrade(msgspec.Struct, frozen=True):
    """Conversion from one schema version to the next."""

    run_info: Callable[[dict[str, Any]], dict[str, Any]]
    """Converts the content of the older `run.json`."""
    rows: Callable[[str, str], str]
    """Takes the name of a table and a query of its older rows; returns a query of newer rows."""


UPGRADES: dict[int, Upgrade] = {}
"""Upgrade from each version older than the current one, by that version."""


def upgrades_from(version: int) -> tuple[Upgrade, ...]:
    """Return the upgrades from a version to the current one, in order."""
    return tuple(UPGRADES[older] for older in range(version, schema.SCHEMA_VERSION))
