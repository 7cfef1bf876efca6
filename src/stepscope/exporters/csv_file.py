"""Tables of views as CSV (RFC 4180), with the columns of the page's downloads."""

from __future__ import annotations

import csv
import io
import re
from typing import BinaryIO

from stepscope.exporters.view_tables import Cell, ViewTable

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
