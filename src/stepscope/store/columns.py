"""Columns in memory, and their conversion to rows of a SQL query.

Strings are dictionary-encoded: recorders intern them anyway, and neither Python nor DuckDB then
handles one string per row. Missing numbers are numpy masked arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.schema import TABLES, Column, Table
from stepscope.store.engine import identifier

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


@dataclass(frozen=True, slots=True, eq=False)
class DictColumn:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows ready for DuckDB: arrays to register, dictionaries to bind, expressions to select."""

    row_count: int
    arrays: dict[str, Array]
    dictionaries: list[str]
    """JSON arrays of strings, one per parameter of the query."""
    expressions: list[str]
    """Of a query, one per column of the table."""


def find_table(name: str) -> Table:
    """Look a table up by name; ValueError if the schema has none."""
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; the tables are {', '.join(TABLES)}")
    return TABLES[name]


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


def make_batch(table: Table, columns: Mapping[str, Array | DictColumn]) -> Batch:
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


def _common_length(table: Table, columns: Mapping[str, Array | DictColumn]) -> int:
    if set(columns) != set(table.column_names):
        missing = sorted(set(table.column_names) - set(columns))
        unknown = sorted(set(columns) - set(table.column_names))
        raise ValueError(f"{table.name}: missing columns {missing}, unknown columns {unknown}")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{table.name}: columns differ in length: {lengths}")
    return lengths[table.columns[0].name]


def _check_strings(
    label: str, column: Column, strings: DictColumn
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
    label: str, column: Column, numbers: Array
) -> tuple[Array, NDArray[np.bool_] | None]:
    dtype = NUMPY_TYPES[column.type]
    data = np.ma.getdata(numbers)
    mask = np.ascontiguousarray(np.ma.getmaskarray(numbers)) if np.ma.is_masked(numbers) else None
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
