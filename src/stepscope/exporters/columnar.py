"""Tables of views as Parquet and Arrow files, with titles and units of the columns.

The metadata of a Parquet file has the key `columns`, and that of each field of an Arrow file its
label: title, unit and explanation, as far as there are some.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stepscope import errors, output_files, schema, views
from stepscope.exporters.registry import ExportOptions, Written
from stepscope.exporters.view_tables import Cell, ViewTable, choose_table, describe_tables, tabulate
from stepscope.run import Run

_INT64, _UINT64 = 2**63, 2**64


class ParquetExporter:
    """Exporter of tables; see `registry.Exporter`."""

    options = frozenset({"view", "table", "rank", "trace"})

    def export(self, run: Run, output: str, options: ExportOptions) -> list[Written]:
        """Write one table of a view."""
        if options.view is None or options.view not in views.VIEWS:
            raise errors.UsageError(f"Pass one of {', '.join(views.VIEWS)} to --view.")
        view = views.VIEWS[options.view]
        values = {"top": 0, "rank": options.rank, "trace": options.trace}
        used = {name: v for name, v in values.items() if v is not None}
        if "top" not in view.uses:
            del used["top"]
        payload = view(run, view.make_options(options.view, used))
        table = choose_table(payload, tabulate(payload), options.view, options.table)
        path = Path(output)
        if path.is_dir():
            raise errors.UsageError(f"{path} is a directory; pass a file to -o.")
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        with output_files.atomic_write(path) as file:
            self.write(file, table)
        return [Written(path=output, content=describe_tables([table]))]

    def write(self, file: BinaryIO, table: ViewTable) -> None:
        """Write a table."""
        import duckdb  # 30 ms

        values = [_column(table, name) for name in table.labels]
        columns = ", ".join(
            f"unnest(CAST(${n} AS {_TYPES[_type_of(cells)]}[])) AS {_quote(name)}"
            for n, (name, cells) in enumerate(zip(table.labels, values, strict=True), 1)
        )
        labels = {name: _describe(label) for name, label in table.labels.items()}
        metadata = msgspec.json.encode(labels).decode().replace("'", "''")
        with duckdb.connect() as engine:
            engine.execute(
                f"COPY (SELECT {columns}) TO '/dev/fd/{file.fileno()}' "
                f"(FORMAT parquet, USE_TMP_FILE false, KV_METADATA {{columns: '{metadata}'}})",
                values,
            )


class ArrowExporter(ParquetExporter):
    """Exporter of tables; see `registry.Exporter`."""

    def write(self, file: BinaryIO, table: ViewTable) -> None:
        """Write a table as Arrow IPC file (https://arrow.apache.org/docs/format/Columnar.html)."""
        arrow = errors.require("pyarrow", extra="arrow", alternative="use --to parquet")
        columns = {name: _column(table, name) for name in table.labels}
        types = {
            int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_(), str: arrow.string(),
            _Unsigned: arrow.uint64(),
        }  # fmt: skip
        form = arrow.schema(
            [
                arrow.field(name, types[_type_of(cells)], metadata=_describe(table.labels[name]))
                for name, cells in columns.items()
            ]
        )
        with arrow.ipc.new_file(file, form) as writer:
            writer.write_table(arrow.table(columns, schema=form))


class _Unsigned:
    """Type of integers of which one needs 64 bits without a sign."""


_TYPES = {int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", str: "VARCHAR", _Unsigned: "UBIGINT"}


def _column(table: ViewTable, name: str) -> list[Any]:
    """Return the cells of a column, texts where their types differ."""
    cells: Sequence[Cell] = [row.get(name) for row in table.rows]
    kind = _type_of(cells)
    return [None if cell is None else str(cell) if kind is str else cell for cell in cells]


def _type_of(cells: Sequence[Cell]) -> type:
    """Return the type of the cells of a column."""
    types = {type(cell) for cell in cells if cell is not None}
    if types == {int}:
        numbers = [cell for cell in cells if isinstance(cell, int)]
        if min(numbers) >= -_INT64 and max(numbers) < _INT64:
            return int
        return _Unsigned if min(numbers) >= 0 and max(numbers) < _UINT64 else str
    if types == {int, float}:
        return float
    return types.pop() if len(types) == 1 else str


def _describe(label: schema.FieldLabel) -> dict[str, str]:
    """Return title, unit and explanation of a column."""
    unit = None if label.unit in {"none", "inherited"} else label.unit
    parts = {"title": label.title, "unit": unit, "explanation": label.description}
    return {key: value for key, value in parts.items() if value}


def _quote(name: str) -> str:
    quoted = name.replace('"', '""')
    return f'"{quoted}"'
