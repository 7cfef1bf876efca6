"""Tables whose columns convert to the caller's library, and errors of queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope import errors, schema
from stepscope.errors import require
from stepscope.store import (
    DictColumn,
    Note,
    RequestState,
    RequestStatus,
    RunLabels,
    RunNotes,
    RunReader,
    SavedView,
    UnreachableError,
    cache_home,
    identifier,
    literal,
    read_notes,
    run_name,
    size_of,
    update_labels,
    update_notes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FrameColumns = Mapping[str, Any]
"""Arrays, masked where values are missing, and `DictColumn` for strings; all of one length."""


class Frame:
    """A table that is read when it is first looked at, and only once.

    Numbers keep their unit in the name of the column; times are integer nanoseconds.
    """

    def __init__(self, load: Callable[[], FrameColumns]) -> None:
        self._load = load

    @cached_property
    def columns(self) -> FrameColumns:
        """The columns in stepscope's own types."""
        return self._load()

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __repr__(self) -> str:
        return f"Frame({len(self)} rows: {', '.join(self.column_names)})"

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Return arrays by column. Strings are objects, None where missing; a numeric column with
        missing values is a masked array."""
        return {
            name: column.decode() if isinstance(column, DictColumn) else column
            for name, column in self.columns.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per row; missing values are None."""
        lists = [np.ma.asarray(values).tolist() for values in self.numpy().values()]
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*lists, strict=True)]

    def arrow(self) -> Any:
        """Return a `pyarrow.Table`; strings are dictionary-encoded. Needs `stepscope[arrow]`."""
        arrow = _library("pyarrow", "arrow")
        return arrow.table({name: _arrow(arrow, column) for name, column in self.columns.items()})

    def polars(self) -> Any:
        """Return a `polars.DataFrame`. Needs `stepscope[polars]`."""
        polars = _library("polars", "polars")
        return polars.DataFrame(
            [_polars(polars, name, column) for name, column in self.columns.items()]
        )

    def pandas(self) -> Any:
        """Return a `pandas.DataFrame`; strings are categories, and numbers with missing
        values have pandas' nullable types. Needs `stepscope[pandas]`."""
        pandas = _library("pandas", "pandas")
        return pandas.DataFrame(
            {name: _pandas(pandas, column) for name, column in self.columns.items()}
        )


def frame_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, type]) -> Frame:
    """Make a small table from its rows.

    Args:
        rows: values by column, None where missing.
        types: of each column: str, int or float.
    """

    def load() -> FrameColumns:
        return {name: _column([row[name] for row in rows], kind) for name, kind in types.items()}

    return Frame(load)


def select_longest(frame: Frame, limit: int) -> Frame:
    """Select the rows with the highest `duration_ns`, in the order of the frame; missing durations
    count as the shortest."""

    def load() -> FrameColumns:
        duration = np.ma.filled(frame.columns["duration_ns"], -1)
        rows = np.sort(np.argsort(-duration, kind="stable")[:limit])
        return select_rows(frame.columns, rows)

    return Frame(load)


def select_rows(columns: FrameColumns, rows: Any) -> dict[str, Any]:
    """Select the rows of an index array or a mask."""
    return {
        name: DictColumn(column.codes[rows], column.values)
        if isinstance(column, DictColumn)
        else column[rows]
        for name, column in columns.items()
    }


def frame_of_table(reader: RunReader, name: str) -> Frame:
    """Read a whole table of the run."""
    strings = [column.name for column in schema.TABLES[name].columns if column.type == "VARCHAR"]
    return Frame(lambda: reader.table(name, encoded=strings))


def frame_of_query(reader: RunReader, query: str, parameters: Sequence[object] = ()) -> Frame:
    """Run a DuckDB query that a user wrote over the tables of the run.

    Raises:
        UsageError: on loading, if the query is not valid or fails.
    """

    def load() -> FrameColumns:
        import _duckdb as duckdb

        if not query.strip():
            raise errors.UsageError("The query is empty.")
        try:
            columns: dict[str, Any] = reader.sql(query, parameters)
        except duckdb.Error as error:
            raise query_error(query, str(error)) from error
        return {
            name: DictColumn.encode(values.tolist()) if _holds_text(values) else values
            for name, values in columns.items()
        }

    return Frame(load)


def _holds_text(values: Any) -> bool:
    return values.dtype == object and all(v is None or isinstance(v, str) for v in values)


def _column(values: list[Any], kind: type) -> Any:
    if kind is str:
        return DictColumn.encode(values)
    missing = [value is None for value in values]
    data = np.array(
        [0 if value is None else value for value in values],
        dtype=np.int64 if kind is int else np.float64,
    )
    return np.ma.MaskedArray(data, mask=missing) if any(missing) else data


def _library(name: str, extra: str) -> Any:
    return require(name, extra=extra, alternative="use .numpy()")


def _arrow(arrow: Any, column: Any) -> Any:
    if not isinstance(column, DictColumn):
        mask = np.ma.getmaskarray(column) if np.ma.isMaskedArray(column) else None
        return arrow.array(np.ma.getdata(column), mask=mask)
    codes = arrow.array(column.codes, mask=column.codes < 0)
    values = arrow.array(list(column.values), type=arrow.string())
    return arrow.DictionaryArray.from_arrays(codes, values)


def _polars(polars: Any, name: str, column: Any) -> Any:
    if isinstance(column, DictColumn):
        values = polars.Series(name, [*column.values, None], dtype=polars.String)
        codes = np.where(column.codes < 0, len(column.values), column.codes)
        return values.gather(codes)
    series = polars.Series(name, np.ascontiguousarray(np.ma.getdata(column)))
    if np.ma.is_masked(column):
        is_present = polars.Series(~np.ma.getmaskarray(column))
        series = series.zip_with(is_present, polars.Series(name, [None], dtype=series.dtype))
    return series


def _pandas(pandas: Any, column: Any) -> Any:
    if isinstance(column, DictColumn):
        distinct = DictColumn.encode(column.decode())  # categories are unique and not null
        return pandas.Categorical.from_codes(distinct.codes, categories=list(distinct.values))
    if not np.ma.isMaskedArray(column):
        return column
    array = pandas.array(np.ma.getdata(column), dtype=_nullable(column.dtype))
    array[np.ma.getmaskarray(column)] = pandas.NA
    return array


def _nullable(dtype: np.dtype[Any]) -> str:
    """Return pandas' name of a type that has missing values."""
    return f"{'Float' if dtype.kind == 'f' else 'Int'}{8 * dtype.itemsize}"


_EXCERPT = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.M)
"""Line number, a part of the line between dots, and blanks up to the marked position."""


def query_error(query: str, message: str, more: str = "") -> errors.UsageError:
    """Make the error of a query from the message of DuckDB.

    Args:
        query: the query.
        message: of DuckDB.
        more: what can be queried beside the tables.

    >>> query_error("SELECT nme FROM spans", 'Binder Error: no column "nme"').args[0][:58]
    'The query cannot be run: Binder Error: no column "nme". Ta'
    """
    reason = " ".join(message.partition("\nLINE ")[0].split()).rstrip(".!")
    tables = ", ".join([*schema.TABLES, *([more] if more else [])])
    return errors.UsageError(
        f"The query cannot be run: {reason}{_position(query, message)}. Tables: {tables}."
    )


def _position(query: str, message: str) -> str:
    """Find the position that DuckDB marks below its excerpt of a line; '' without one."""
    match = _EXCERPT.search(message)
    lines = query.splitlines()
    if match is None or not 0 < int(match[1]) <= len(lines):
        return ""
    number, excerpt, blanks = int(match[1]), match[2], match[3]
    text = excerpt.removeprefix("...").removesuffix("...")
    before = len(f"LINE {number}: ") + len(excerpt) - len(excerpt.removeprefix("..."))
    column = lines[number - 1].find(text) + len(blanks) - before + 1
    return f" (line {number}, column {column})"


__all__ = [
    "DictColumn",
    "Note",
    "RequestState",
    "RequestStatus",
    "RunLabels",
    "RunNotes",
    "RunReader",
    "SavedView",
    "UnreachableError",
    "cache_home",
    "identifier",
    "literal",
    "read_notes",
    "run_name",
    "size_of",
    "update_labels",
    "update_notes",
]
