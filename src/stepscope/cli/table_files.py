"""Tables of payloads as files."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from stepscope import errors, output_files
from stepscope.cli.output import STDOUT, say


def write_csv_table(
    payload: msgspec.Struct, view: str, file_name: str, table_name: str | None
) -> None:
    """Write one table of a payload as CSV.

    Args:
        payload: the payload.
        view: name of its view.
        file_name: the file, or `STDOUT`.
        table_name: name of the table; None for the main table of the view.

    Raises:
        UsageError: there is no such table, or it cannot be written there.
    """
    from stepscope.exporters import choose_table, describe_tables, tabulate, write_csv  # 20 ms

    tables = tabulate(payload)
    table = choose_table(payload, tables, view, table_name)
    if file_name == STDOUT:
        write_csv(sys.stdout.buffer, table)
        return
    path = Path(file_name)
    if path.is_dir():
        raise errors.UsageError(f"{path} is a directory; pass a file to --csv, e.g. {view}.csv.")
    with output_files.atomic_write(path) as file:
        write_csv(file, table)
    say(f"{path}: {describe_tables([table])}; tables of this view: {describe_tables(tables)}")
