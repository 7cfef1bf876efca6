"""Tables of views as worksheets of an XLSX workbook, by XlsxWriter.

A worksheet holds one table; the last one, `columns`, explains the columns of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import msgspec

from stepscope._optional import require
from stepscope.errors import UsageError
from stepscope.exporters.view_tables import Cell, ViewTable, tabulate
from stepscope.quantities import count
from stepscope.run import Run
from stepscope.schema import FieldLabel
from stepscope.views import VIEWS, ViewOptions

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
_PLAIN = FieldLabel(title="", unit="none")
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
    for name, view in VIEWS.items():
        if not view.needs and not _DRAWN.match(name):
            payloads[name] = view(run, ViewOptions(top=MAX_LISTED))
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
            raise UsageError(
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
