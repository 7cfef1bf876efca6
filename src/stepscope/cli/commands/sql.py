"""`stepscope sql RUN QUERY`: a query over the tables and views of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stepscope import errors, output_files, queries
from stepscope.cli.opening import open_run
from stepscope.cli.options.common import json_option, run_argument
from stepscope.cli.output import print_rows, say

_LIMITS = queries.QueryLimits()
MAX_ROWS = 10_000_000


@click.command(
    "sql",
    help="Run a SELECT over the tables of RUN, and over its views as views.NAME, in DuckDB's SQL. "
    "`SHOW TABLES` lists the tables, `DESCRIBE NAME` the columns of one.",
)
@run_argument
@click.argument("query", metavar="QUERY")
@click.option(
    "--max-rows",
    type=click.IntRange(min=1, max=MAX_ROWS),
    default=_LIMITS.max_rows,
    show_default=True,
    metavar="N",
    help="Leave out further rows of the result.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=_LIMITS.timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="Cancel the query after this time.",
)
@click.option("--csv", "csv_file", metavar="FILE", help="Write the result as CSV; - is stdout.")
@click.option(
    "--arrow",
    "arrow_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the result as an Arrow IPC file, with its types (extra `arrow`).",
)
@json_option("stepscope.queries.QueryResult", has_ids=True)
def command(
    run: str,
    query: str,
    *,
    max_rows: int,
    timeout: float,
    csv_file: str | None,
    arrow_file: Path | None,
    as_json: bool,
) -> None:
    outputs = {"--json": as_json, "--csv": csv_file is not None, "--arrow": bool(arrow_file)}
    if sum(outputs.values()) > 1:
        raise errors.UsageError(
            f"Use one of {', '.join(flag for flag, used in outputs.items() if used)}."
        )
    limits = queries.QueryLimits(max_rows=max_rows, timeout_s=timeout)
    opened = open_run(run)
    if arrow_file is not None:
        for note in queries.write_arrow(opened, query, limits, arrow_file):
            say(note)
        return
    result = queries.query_rows(opened, query, limits)
    if as_json:
        # An id leads to the rows within the usual limit.
        print_rows(result, "sql", {"query": query}, has_ids=max_rows == _LIMITS.max_rows)
        return
    if csv_file is not None:
        _write_csv(result, csv_file)
    else:
        from stepscope.cli.text import console
        from stepscope.cli.writers.generic import write_rows

        write_rows(console(run), queries.tabulate_result(result))
    for note in result.notes:
        say(note)


def _write_csv(result: queries.QueryResult, file_name: str) -> None:
    from stepscope.exporters import write_csv

    table = queries.tabulate_result(result)
    if file_name == "-":
        write_csv(sys.stdout.buffer, table)
        return
    with output_files.atomic_write(Path(file_name)) as file:
        write_csv(file, table)
