"""`stepscope fleet [DIR|URL]`: what many runs cost and waste."""

from __future__ import annotations

from contextlib import closing

import click

from stepscope import errors, fleet
from stepscope.cli.options.common import json_option
from stepscope.cli.output import STDOUT, print_json, write_file
from stepscope.cli.table_files import write_csv_table

MAIN_TABLE = "jobs"


@click.command(
    "fleet",
    help="Add up the hours and the money of all runs below DIR, or a URL such as s3://bucket/runs: "
    "by class of time, bottleneck and fix, by group of runs, and the runs that waste most. A run "
    "counts once it has ended.",
)
@click.argument("location", metavar="[DIR|URL]", default=".")
@click.option(
    "--by",
    type=click.Choice(fleet.GROUPINGS),
    default=fleet.GROUPINGS[0],
    show_default=True,
    help="Grouping of the runs: working directory, owner of the run directory, tag, git revision, "
    "or week.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only runs created since then: a date such as 2026-11-30 (UTC), or an age such as 7d.",
)
@click.option("--until", metavar="TIME", help="Only runs created before then.")
@click.option("--tag", metavar="TAG", help="Only runs with this tag of `stepscope tag RUN`.")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Read the runs on the workers of this Dask scheduler, e.g. tcp://10.0.0.1:8786 (extra "
    "`dask`), which open them at the same paths or URLs.",
)
@click.option("--markdown", metavar="FILE", help="Write the report as Markdown; - is stdout.")
@click.option(
    "--csv",
    "csv_file",
    metavar="FILE",
    help="Write one table as CSV; - is stdout. Without --table, the longest.",
)
@click.option(
    "--table",
    metavar="NAME",
    help=f"Table to write with --csv, e.g. classes. Default: {MAIN_TABLE}.",
)
@json_option("stepscope.fleet.Fleet")
def command(
    location: str,
    *,
    by: fleet.Grouping,
    since: str | None,
    until: str | None,
    tag: str | None,
    scheduler: str | None,
    markdown: str | None,
    csv_file: str | None,
    table: str | None,
    as_json: bool,
) -> None:
    if (markdown, csv_file, STDOUT if as_json else None).count(STDOUT) > 1:
        raise errors.UsageError("Only one of --json, --markdown and --csv can go to stdout.")
    if table is not None and csv_file is None:
        raise errors.UsageError("--table requires --csv.")
    from stepscope.run import choose_engine
    from stepscope.run.catalog import resolve_root

    root, selection = resolve_root(location), fleet.select_runs(since, until, tag)
    if scheduler is None:
        reading = fleet.read_fleet(root, selection)
    else:
        with closing(choose_engine(scheduler)) as engine:
            reading = fleet.read_fleet(root, selection, engine=engine)
    report = fleet.report_fleet(str(root), reading, selection, by)
    if markdown is not None:
        from stepscope.cli.writers.fleet import make_markdown

        write_file(markdown, make_markdown(report))
    if csv_file is not None:
        write_csv_table(report, "fleet", csv_file, table or MAIN_TABLE)
    if as_json:
        print_json(report)
    elif markdown is None and csv_file is None:
        # Only text needs these imports; `--json` must start fast.
        from stepscope.cli.text import console
        from stepscope.cli.writers import write

        write(console(), report)
