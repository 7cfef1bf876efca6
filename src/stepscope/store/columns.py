"""Columns in memory, and how a batch of them becomes rows of SQL.

Strings are dictionary-encoded: whoever records them has interned them already, and neither
Python nor DuckDB then handles a string per row. Missing numbers are numpy masked arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.schema import Column, Table
from stepscope.store.engine import identifier

__all__ = ["NUMPY_TYPES", "Array", "Batch", "DictColumn", "make_batch"]

Array = NDArray[Any]

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "BIGINT": np.dtype(np.int64),
    "INTEGER": np.dtype(np.int32),
    "SMALLINT": np.dtype(np.int16),
    "DOUBLE": np.dtype(np.float64),
}
"""How each column type that is not a string is held in memory."""

_TRIM_ABOVE = 32
"""A dictionary with more values than this is cut to those in use before it is sent."""


@dataclass(frozen=True, slots=True, eq=False)
class DictColumn:
    """Strings as places in a list: row `i` holds `values[codes[i]]`, or null where the code is -1.

    A value may be None too, when that suits the writer; what a reader returns has -1 for null,
    and values that are distinct and sorted.
    """

    codes: NDArray[np.int32]
    values: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def constant(cls, value: str | None, length: int) -> DictColumn:
        """One string for all rows."""
        return cls(np.zeros(length, dtype=np.int32), [value])

    @classmethod
    def encode(cls, strings: Iterable[str | None]) -> DictColumn:
        """Strings that were not interned; values are in the order of their first appearance."""
        places: dict[str | None, int] = {}
        codes = [-1 if s is None else places.setdefault(s, len(places)) for s in strings]
        return cls(np.array(codes, dtype=np.int32), list(places))

    def in_use(self) -> DictColumn:
        """The same without values that no row has."""
        used = np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:] > 0
        if used.all():
            return self
        places = np.append(np.cumsum(used) - 1, -1).astype(np.int32)
        kept = [value for value, kept in zip(self.values, used.tolist(), strict=True) if kept]
        return DictColumn(places[self.codes], kept)

    def decode(self) -> NDArray[np.object_]:
        """One object per row: a string or None."""
        values = np.empty(len(self.values) + 1, dtype=object)
        values[:-1] = self.values
        values[-1] = None
        return values[self.codes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows ready for DuckDB: arrays to register, dictionaries to bind, and what to select."""

    rows: int
    arrays: dict[str, Array]
    dictionaries: list[str]
    """JSON arrays of strings, one per parameter of the query."""
    expressions: str


def make_batch(table: Table, columns: Mapping[str, Array | DictColumn]) -> Batch:
    """Checks columns against their declaration; ValueError says what is wrong with which."""
    rows = _common_length(table, columns)
    arrays: dict[str, Array] = {}
    dictionaries: list[str] = []
    expressions = []
    for place, column in enumerate(table.columns):
        label = f"{table.name}.{column.name}"
        given = columns[column.name]
        if isinstance(given, DictColumn) != (column.type == "VARCHAR"):
            raise ValueError(f"{label}: strings are a DictColumn, numbers an array")
        if isinstance(given, DictColumn):
            codes, values = _checked_strings(label, column, given)
            arrays[f"c{place}"] = codes
            dictionaries.append(_json(label, values))
            expression = f"""from_json(${len(dictionaries)}, '["VARCHAR"]')[c{place} + 1]"""
        else:
            data, mask = _checked_numbers(label, column, given)
            arrays[f"c{place}"] = data
            expression = f"c{place}"
            if data.dtype.kind == "f":
                # DuckDB takes NaN in an array for null, as pandas means it; here it is a number.
                expression = f"COALESCE(c{place}, 'NaN'::DOUBLE)"
            if mask is not None:
                # DuckDB 1.5 does not look at the mask of a masked array: it goes beside it.
                arrays[f"m{place}"] = mask
                expression = f"CASE WHEN NOT m{place} THEN {expression} END"
        if column.stored is not None:
            expression = f"CAST({expression} AS {column.stored})"
        expressions.append(f"{expression} AS {identifier(column.name)}")
    return Batch(
        rows=rows, arrays=arrays, dictionaries=dictionaries, expressions=", ".join(expressions)
    )


def _common_length(table: Table, columns: Mapping[str, Array | DictColumn]) -> int:
    if set(columns) != set(table.column_names):
        missing = sorted(set(table.column_names) - set(columns))
        unknown = sorted(set(columns) - set(table.column_names))
        raise ValueError(f"{table.name}: missing columns {missing}, unknown columns {unknown}")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{table.name}: columns differ in length: {lengths}")
    return lengths[table.columns[0].name]


def _checked_strings(
    label: str, column: Column, given: DictColumn
) -> tuple[NDArray[np.int32], Sequence[str | None]]:
    codes, values = np.asarray(given.codes), given.values
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise ValueError(f"{label}: codes are a one-dimensional array of integers")
    if len(codes) and (codes.min() < -1 or codes.max() >= len(values)):
        raise ValueError(f"{label}: a code lies outside -1 to {len(values) - 1}")
    codes = np.ascontiguousarray(codes, dtype=np.int32)
    if len(values) > _TRIM_ABOVE:
        codes, values = _trim(codes, values)
    if not column.nullable and _has_null(codes, values):
        raise ValueError(f"{label}: null in a column that has none")
    return codes, values


def _trim(
    codes: NDArray[np.int32], values: Sequence[str | None]
) -> tuple[NDArray[np.int32], list[str | None]]:
    """The same strings without values that no row has."""
    used = np.flatnonzero(np.bincount(codes + 1, minlength=len(values) + 1)[1:])
    places = np.full(len(values) + 1, -1, dtype=np.int32)  # the last one serves code -1
    places[used] = np.arange(len(used), dtype=np.int32)
    return places[codes], [values[place] for place in used.tolist()]


def _has_null(codes: NDArray[np.int32], values: Sequence[str | None]) -> bool:
    nulls = [-1, *(place for place, value in enumerate(values) if value is None)]
    return bool(np.isin(codes, nulls).any())


def _json(label: str, values: Sequence[str | None]) -> str:
    """JSON, because DuckDB takes in a long list of strings so faster than as a bound list."""
    if not all(value is None or isinstance(value, str) for value in values):
        raise ValueError(f"{label}: values are strings or None")
    try:
        return msgspec.json.encode(values).decode()
    except UnicodeEncodeError:
        # File names that are not UTF-8 reach Python as lone surrogates; Parquet cannot hold them.
        whole = [value and value.encode("utf-8", "replace").decode() for value in values]
        return msgspec.json.encode(whole).decode()


def _checked_numbers(
    label: str, column: Column, given: Array
) -> tuple[Array, NDArray[np.bool_] | None]:
    wanted = NUMPY_TYPES[column.type]
    data = np.ma.getdata(given)
    mask = np.ascontiguousarray(np.ma.getmaskarray(given)) if np.ma.is_masked(given) else None
    if data.ndim != 1 or data.dtype.kind not in ("iuf" if wanted.kind == "f" else "iu"):
        raise ValueError(f"{label}: {data.dtype} of {data.ndim} dimensions is no {column.type}")
    if mask is not None and not column.nullable:
        raise ValueError(f"{label}: null in a column that has none")
    if not np.can_cast(data.dtype, wanted) and wanted.kind == "i":
        present = data if mask is None else data[~mask]
        limits = np.iinfo(wanted)
        if (
            len(present)
            and not limits.min <= int(present.min()) <= int(present.max()) <= limits.max
        ):
            raise ValueError(f"{label}: a value does not fit {column.type}")
    return np.ascontiguousarray(data, dtype=wanted), mask
