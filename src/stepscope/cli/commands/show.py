"""`stepscope show RUN VIEW`: one view, as text, as its JSON payload, or as tables in a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stepscope import errors, output_files, views
from stepscope.cli.options.common import json_option, run_argument, scheduler_option
from stepscope.cli.output import print_json, print_rows, say
from stepscope.cli.stored_text import print_stored, print_text
from stepscope.cli.table_files import write_csv_table
from stepscope.quantities import duration

if TYPE_CHECKING:
    from stepscope.run import Run


def _parse(_context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Parse the value of a view's option; None if it is not set."""
    return None if text is None else views.parse_option(str(parameter.name), text)


def _option(field: str, metavar: str, text: str) -> Callable[[Any], Any]:
    """Make the option of the command for a field of `ViewOptions`."""
    return click.option(
        views.OPTION_FLAGS[field], field, callback=_parse, metavar=metavar, help=text
    )


def _uses(field: str) -> str:
    return (
        "For " + ", ".join(name for name, view in views.VIEWS.items() if field in view.uses) + "."
    )


class _ViewName(click.Choice[str]):
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        similar = errors.name_similar(str(value), views.VIEWS)
        return f"unknown view {value!r}.{similar} Views: {', '.join(views.VIEWS)}."


@click.command(
    "show",
    help="Show one VIEW of RUN, by default the overview. Views: " + ", ".join(views.VIEWS) + ".",
)
@run_argument
@click.argument("view", metavar="[VIEW]", type=_ViewName(list(views.VIEWS)), default="overview")
@_option(
    "carry_over",
    "keep|drop",
    "Count device work that was launched before the window, or drop it. Default: keep. "
    + _uses("carry_over"),
)
@_option(
    "communication",
    "wide|narrow",
    "Kernels that count as communication: those of all known libraries and of operators of "
    "collectives, or by name those of NCCL, RCCL and cross_device_reduce alone. Default: wide. "
    + _uses("communication"),
)
@_option("rank", "N", "Show only rank N.")
@_option("trace", "NAME", "Show only the trace NAME.")
@_option("top", "N", "Maximum rows of a sorted list, 0 for all. Default: 20. " + _uses("top"))
@_option("by", "KEY", "Key to group rows by. " + _uses("by"))
@_option(
    "mesh",
    "SIZES",
    "Parallel dimensions of the ranks, the last one varying fastest, e.g. dp=4,pp=2,tp=2. "
    + _uses("mesh"),
)
@_option("name", "NAME", "Show only the item NAME. " + _uses("name"))
@_option(
    "collection", "NAME", "Only tensors of this collection, e.g. weights. " + _uses("collection")
)
@_option(
    "reduction", "NAME", "Number that describes a tensor, e.g. update_l2. " + _uses("reduction")
)
@_option("bucket_ns", "DURATION", "Bucket width of a curve, e.g. 10ms. " + _uses("bucket_ns"))
@_option(
    "peaks",
    "PEAKS",
    "Peak rates of the device: its model, or values such as bf16=989,fp32=67,bandwidth=3350 "
    "(TFLOP/s, GB/s). " + _uses("peaks"),
)
@_option(
    "from_ns",
    "TIME",
    "Start of the time range, after the start of the run, e.g. 12.5s. " + _uses("from_ns"),
)
@_option("to_ns", "TIME", "End of the time range, after the start of the run. " + _uses("to_ns"))
@_option(
    "tracks",
    "IDS",
    "Comma-separated ids of tracks; the view `timeline` lists them. " + _uses("tracks"),
)
@_option("pixels", "N", "Width of the picture in pixels. Default: 1500. " + _uses("pixels"))
@_option("track", "ID", "Track of the event. " + _uses("track"))
@_option("event", "N", "Number of the event on its track. " + _uses("event"))
@_option(
    "around_ns",
    "TIME",
    "List the events nearest to this time after the start of the run. " + _uses("around_ns"),
)
@scheduler_option()
@click.option(
    "--csv",
    "csv_file",
    metavar="FILE",
    help="Write one table of the view as CSV; - is stdout. Without --table, its main table.",
)
@click.option("--table", "table", metavar="NAME", help="Table to write with --csv.")
@click.option(
    "--xlsx",
    "workbook_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all tables of the view as an XLSX workbook (extra `xlsx`).",
)
@click.option(
    "--at",
    metavar="ID",
    help="Show the row or number with this id instead of a view, and what reproduces it. Rows have "
    "their id as `at` with --json.",
)
@json_option()
def command(
    run: str,
    view: str,
    *,
    scheduler: str | None,
    csv_file: str | None,
    table: str | None,
    workbook_file: Path | None,
    at: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    outputs = {"--json": as_json, "--csv": csv_file is not None, "--xlsx": bool(workbook_file)}
    if sum(outputs.values()) > 1:
        raise errors.UsageError(
            f"Use one of {', '.join(flag for flag, used in outputs.items() if used)}."
        )
    if table is not None and csv_file is None:
        raise errors.UsageError("--table requires --csv.")
    if at is not None:
        _show_origin(run, at, as_json=as_json)
        return
    show_view = views.VIEWS[view]
    options_given = {field: value for field, value in options.items() if value is not None}
    view_options = show_view.make_options(view, options_given)
    name = show_view.stored_as if show_view.is_stored(view_options) else None
    is_shown = csv_file is None and workbook_file is None
    if name and is_shown and print_stored(run, name, source=view, as_json=as_json):
        return
    from stepscope.cli.opening import open_run, say_damage
    from stepscope.run import choose_engine

    with closing(choose_engine(scheduler)) as engine:
        opened = open_run(run, engine)
        _check_range(opened, view_options)
        payload = show_view(opened, view_options)
    if as_json:
        texts = {
            field: f"{value}ns" if field.endswith("_ns") else str(value)
            for field, value in options_given.items()
        }
        print_rows(payload, view, texts)
        return
    if csv_file is not None or workbook_file is not None:
        say_damage(getattr(payload, "damage", [])[1:])  # without the sentence on shares
    if csv_file is not None:
        write_csv_table(payload, view, csv_file, table)
        return
    if workbook_file is not None:
        _write_workbook(payload, view, workbook_file)
        return
    from stepscope.cli.writers import write  # only text needs it

    print_text(lambda out: write(out, payload), run, opened, name)


def _show_origin(location: str, at: str, *, as_json: bool) -> None:
    from stepscope.cli.opening import open_run
    from stepscope.queries import find_origin

    origin = find_origin(open_run(location), at, open_run)
    if as_json:
        print_json(origin)
        return
    entries = {
        "value": origin.value,
        "unit": origin.unit,
        "title": origin.title,
        "meaning": origin.description,
        "share of": origin.share_of,
        "row": origin.row,
        "printed by": origin.command,
        "shown by": origin.shown_by,
        "tables": ", ".join(origin.tables),
    }
    from stepscope.cli.text import console
    from stepscope.cli.writers.generic import write_entries

    texts = [
        (title, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for title, value in entries.items()
        if title == "value" or value
    ]
    write_entries(console(location), texts)


def _check_range(run: Run, options: views.ViewOptions) -> None:
    """Refuse a range without any data; the page may ask for one, next to data.

    Raises:
        UsageError: the range starts after the end of the run.
    """
    if options.from_ns is None:
        return
    length_ns = run.clock.end_ns - run.clock.origin_ns
    if options.from_ns > length_ns > 0:
        raise errors.UsageError(
            f"The range starts at {duration(options.from_ns)}, after the end of the run: its times "
            f"are from 0 s to {duration(length_ns)}."
        )


def _write_workbook(payload: msgspec.Struct, view: str, path: Path) -> None:
    from stepscope.exporters import describe_tables, tabulate, write_workbook

    tables = tabulate(payload)
    with output_files.atomic_write(path) as file:
        write_workbook(file, {table.name: table for table in tables})
    say(f"{path}: {describe_tables(tables)}")
