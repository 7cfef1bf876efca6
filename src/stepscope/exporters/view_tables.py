"""Payloads as flat tables, for spreadsheets (CSV, XLSX) and data frames.

scalars of the payload              one row of the table `summary`
a list of structs                   a table, named by its path without a leading `traces.`
a struct                            columns of its owner, `owner.field`
a mapping                           a table with the column `key`
a list of numbers or texts          a cell of JSON

Rows repeat what identifies the rows around them: rank, trace, device, name. Columns are named by
fields, which end in their units.

Tables of views as worksheets of an XLSX workbook, by XlsxWriter. A worksheet holds one table; the
last one, `columns`, explains the columns of all.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, BinaryIO, NamedTuple

import msgspec

from stepscope import errors, quantities, schema, views
from stepscope.errors import require
from stepscope.quantities import count
from stepscope.run import Run

Cell = str | int | float | bool | None
SUMMARY = "summary"
"""Table of a payload's own scalars."""
_PARENT = "parent."
_NO_LABEL = schema.FieldLabel(title="", unit="none")
_KEY = schema.FieldLabel(title="key", unit="none", display="identifier")
_ROW = schema.FieldLabel(title="row", unit="none", display="identifier")


class _Value(NamedTuple):
    """Value of a field with its label."""

    label: schema.FieldLabel
    value: Any


class ViewTable(msgspec.Struct, kw_only=True):
    """Rows of one kind in a payload."""

    name: str
    labels: dict[str, schema.FieldLabel] = msgspec.field(default_factory=dict)
    """Columns in order, with their labels."""
    rows: list[dict[str, Cell]] = msgspec.field(default_factory=list)
    """Cells by column; absent like None: no value."""


def tabulate(payload: msgspec.Struct) -> list[ViewTable]:
    """Arrange a payload as tables, each of at least one row; the first is `summary`."""
    tables: dict[str, ViewTable] = {}
    _add_rows(tables, "", _Value(_NO_LABEL, [payload]), {})
    return list(tables.values())


def choose_table(
    payload: msgspec.Struct, tables: Sequence[ViewTable], view: str, name: str | None
) -> ViewTable:
    """Choose one table of a view.

    Args:
        payload: the payload.
        tables: its tables, by `tabulate`.
        view: name of the view.
        name: name of the table; None for the main table of the view.

    Raises:
        UsageError: there is no such table, or it has no rows.
    """
    missing = getattr(payload, "missing", None)
    if missing and name is None:
        raise errors.UsageError(f"The view {view} of this run has no rows: {missing}.")
    name = name or views.VIEWS[view].table or view
    by_name = {table.name: table for table in tables if table.labels}
    if name not in by_name:
        raise errors.UsageError(
            f"The view {view} of this run has no table {name!r} with rows. Choose one with "
            f"--table: {', '.join(by_name)}."
        )
    return by_name[name]


def describe_tables(tables: Iterable[ViewTable]) -> str:
    """List tables with their lengths.

    >>> describe_tables([ViewTable(name="kernels", rows=[{}, {}])])
    'kernels (2 rows)'
    """
    return ", ".join(
        f"{table.name} ({quantities.count_of(len(table.rows), 'row')})" for table in tables
    )


def _add_rows(
    tables: dict[str, ViewTable], path: str, part: _Value, inherited: Mapping[str, _Value]
) -> None:
    """Add the items of a list or mapping, and the tables inside them.

    Args:
        tables: by name.
        path: fields from the payload to the list, joined by points; empty for the payload.
        part: the list or mapping.
        inherited: columns that identify the owner of the list.
    """
    name = path.removeprefix("traces.") or SUMMARY
    table = tables.setdefault(name, ViewTable(name=name))
    keys = [{"key": _Value(_KEY, key)} for key in part.value] if _is_mapping(part.value) else None
    items = part.value.values() if _is_mapping(part.value) else part.value
    for number, item in enumerate(items):
        cells = dict(keys[number]) if keys else {}
        nested: dict[str, _Value] = {}
        if isinstance(item, msgspec.Struct):
            _flatten(item, "", cells, nested)
        else:
            cells["value"] = _Value(part.label, _to_cell(item))
        identity = {column: cell for column, cell in cells.items() if _is_identity(column, cell)}
        if nested and path and not identity:
            identity = {"row": _Value(_ROW, number)}
            cells = identity | cells
        row = _beside(inherited, cells) | cells
        table.labels |= {column: label for column, (label, _) in row.items()}
        table.rows.append({column: value for column, (_, value) in row.items()})
        outer = {column: cell for column, cell in inherited.items() if column not in identity}
        for field_name, inner in nested.items():
            # Children of children are rows of one table.
            is_recursive = path.rpartition(".")[2] == field_name
            inner_path = path if is_recursive else f"{path}.{field_name}".lstrip(".")
            _add_rows(tables, inner_path, inner, outer | identity)


def _beside(inherited: Mapping[str, _Value], cells: Mapping[str, _Value]) -> dict[str, _Value]:
    """Rename inherited columns that a row has, too."""
    return {f"{_PARENT}{c}" if c in cells else c: cell for c, cell in inherited.items()}


def _flatten(
    part: msgspec.Struct, prefix: str, cells: dict[str, _Value], nested: dict[str, _Value]
) -> None:
    """Sort the fields of a struct into cells of its row, and tables of their own."""
    for name, label in schema.labels_of(type(part)).items():
        value = getattr(part, name)
        column = f"{prefix}{name}"
        if isinstance(value, msgspec.Struct):
            _flatten(value, f"{column}.", cells, nested)
        elif _is_mapping(value) or _is_struct_list(value):
            nested[column] = _Value(label, value)
        elif not _is_empty_list(value):
            cells[column] = _Value(label, _to_cell(value))


def _is_identity(column: str, cell: _Value) -> bool:
    return column in (*schema.IDENTITY_FIELDS, "name") or cell.label.display == "identifier"


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_struct_list(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], msgspec.Struct)


def _is_empty_list(value: object) -> bool:
    return isinstance(value, list | tuple) and not value


def _to_cell(value: object) -> Cell:
    """Convert a value without structs; lists and mappings become JSON."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return msgspec.json.encode(value).decode()


_FORMULA = re.compile(r"[=+\-@\t\r]")
"""Start of a text that a spreadsheet would evaluate."""


def write_csv(file: BinaryIO, table: ViewTable) -> None:
    """Write a table, its column names in the first line.

    A missing value is an empty field. A text that a spreadsheet would evaluate gets a leading
    apostrophe.
    """
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(table.labels)
    writer.writerows([_to_field(row.get(column)) for column in table.labels] for row in table.rows)
    text.detach()  # flushes, and leaves the file to the caller


def _to_field(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, str):
        return f"'{cell}" if _FORMULA.match(cell) else cell
    return str(cell)


MAX_ROWS = 1_048_575
"""Rows of a worksheet below its header."""
MAX_TEXT_LENGTH = 32_767
"""Characters of a cell."""
MAX_EXACT = 2**53
"""Numbers are double precision: larger integers, such as times since 1970 in ns, are written as
text. Source of the limits: https://support.microsoft.com/office/1672b34d-7043-467e-8e27-269d656771c3
"""
MAX_SHEET_NAME = 31
MAX_COLUMN_PX = 480
MAX_LISTED = 10_000
"""Rows of the sorted lists of a report."""
_DRAWN = re.compile(r"timeline|.*-(flame|heat|series)$")
"""Views that are pictures."""
_FORMATS = {"ratio": "0.0%", "percent": "0.0", "count": "#,##0", "ns": "#,##0", "bytes": "#,##0"}
_PLAIN = schema.FieldLabel(title="", unit="none")
_SETTINGS = {
    # Text of the job stays text.
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
    "in_memory": True,
}


def write_report_workbook(file: BinaryIO, run: Run, facts: msgspec.Struct) -> None:
    """Write the facts of a report and the views of a run as a workbook.

    Sorted lists have at most `MAX_LISTED` rows. Views that are pictures are left out.

    Raises:
        UsageError: as `write_workbook`.
    """
    payloads = {"report": facts}
    for name, view in views.VIEWS.items():
        if not view.needs and not _DRAWN.match(name):
            payloads[name] = view(run, views.ViewOptions(top=MAX_LISTED))
    sheets = {
        name if table.name == name else f"{name} {table.name}": table
        for name, payload in payloads.items()
        for table in tabulate(payload)
    }
    write_workbook(file, sheets)


def write_workbook(file: BinaryIO, tables: Mapping[str, ViewTable]) -> None:
    """Write tables as a workbook.

    Args:
        file: a file open for writing.
        tables: tables by the names of their worksheets, which are shortened if necessary.

    Raises:
        UsageError: XlsxWriter is not installed, or a table is longer than a worksheet.
    """
    library = require(
        "xlsxwriter", extra="xlsx", alternative="use `stepscope show RUN VIEW --csv FILE`"
    )
    sheets: dict[str, ViewTable] = {}
    for title, table in tables.items():
        if len(table.rows) > MAX_ROWS:
            raise errors.UsageError(
                f"The table {table.name} has {count(len(table.rows))} rows, and a worksheet "
                f"{count(MAX_ROWS)} at most; use --csv, or fewer rows with --top."
            )
        sheets[_name_sheet(title, sheets)] = table
    sheets[_name_sheet("columns", sheets)] = _explain_columns(sheets)
    with library.Workbook(file, _SETTINGS) as workbook:
        formats = {unit: workbook.add_format({"num_format": f}) for unit, f in _FORMATS.items()}
        header = workbook.add_format({"bold": True, "bottom": 1})
        for name, table in sheets.items():
            _write_sheet(workbook.add_worksheet(name), table, header, formats)


def _write_sheet(sheet: Any, table: ViewTable, header: Any, formats: Mapping[str, Any]) -> None:
    sheet.write_row(0, 0, table.labels, header)
    for i, (column, label) in enumerate(table.labels.items()):
        is_identifier = label.display == "identifier"
        sheet.set_column(i, i, None, None if is_identifier else formats.get(label.unit))
        for line, row in enumerate(table.rows, 1):
            value = _to_value(row.get(column))
            if value is not None:
                sheet.write(line, i, value)
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, len(table.rows), len(table.labels) - 1)
    sheet.autofit(MAX_COLUMN_PX)


def _to_value(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return cell if len(cell) <= MAX_TEXT_LENGTH else f"{cell[: MAX_TEXT_LENGTH - 1]}…"
    return str(cell) if isinstance(cell, int) and abs(cell) > MAX_EXACT else cell


def _name_sheet(title: str, used: Iterable[str]) -> str:
    """Name a sheet: at most 31 characters, unique in any case of letters.

    >>> _name_sheet("a table with a name of many letters", ["A table with a name of many let"])
    'a table with a name of many l~2'
    """
    name = re.sub(r"[\[\]:*?/\\']", "-", title)
    lowercase_names = {used_name.lower() for used_name in used}
    candidate, number = name[:MAX_SHEET_NAME], 2
    while candidate.lower() in lowercase_names:
        ending = f"~{number}"
        candidate, number = f"{name[: MAX_SHEET_NAME - len(ending)]}{ending}", number + 1
    return candidate


def _explain_columns(sheets: Mapping[str, ViewTable]) -> ViewTable:
    """Make the table of all columns with their titles, units and explanations."""
    rows: list[dict[str, Cell]] = [
        {
            "sheet": sheet,
            "column": column,
            "title": label.title,
            "unit": None if label.unit in {"none", "inherited"} else label.unit,
            "explanation": label.description,
        }
        for sheet, table in sheets.items()
        for column, label in table.labels.items()
    ]
    return ViewTable(name="columns", labels=dict.fromkeys(rows[0], _PLAIN), rows=rows)
