"""`stepscope show RUN VIEW`: one view, as text or as its JSON payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stepscope.cli.options import json_option, run_argument
from stepscope.cli.output import print_json
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.views import OPTION_FLAGS, VIEWS, parse_option


def _parse(_context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """The value that a view's option has; None where it was not given."""
    return None if text is None else parse_option(str(parameter.name), text)


def _option(field: str, metavar: str, text: str) -> Callable[[Any], Any]:
    """A field of `ViewOptions` as an option of the command."""
    return click.option(OPTION_FLAGS[field], field, callback=_parse, metavar=metavar, help=text)


def _uses(field: str) -> str:
    return "For " + ", ".join(name for name, view in VIEWS.items() if field in view.uses) + "."


@click.command("show", help="Show one VIEW of RUN: " + ", ".join(VIEWS) + ".")
@run_argument
@click.argument("view", type=click.Choice(list(VIEWS)))
@_option(
    "carry_over",
    "keep|drop",
    "Whether device work launched before the window counts. Default: keep. " + _uses("carry_over"),
)
@_option("rank", "N", "Only recordings of this rank.")
@_option("trace", "NAME", "Only the recording of this name.")
@_option("top", "N", "Rows of a sorted list, 0 for all. Default: 20. " + _uses("top"))
@_option("by", "WHAT", "What to group rows by. " + _uses("by"))
@_option("name", "NAME", "Only what has this name. " + _uses("name"))
@_option(
    "bucket_ns", "DURATION", "Width of the buckets of a curve, such as 10ms. " + _uses("bucket_ns")
)
@_option(
    "peaks",
    "PEAKS",
    "The device's peaks: its model, or such as bf16=989,fp32=67,bandwidth=3350 (TFLOP/s, "
    "GB/s). " + _uses("peaks"),
)
@_option(
    "from_ns",
    "TIME",
    "Only from this time after the start of the run, such as 12.5s. " + _uses("from_ns"),
)
@_option("to_ns", "TIME", "Only up to this time after the start of the run. " + _uses("to_ns"))
@_option(
    "tracks", "IDS", "Tracks by id, joined by commas; `timeline` lists them. " + _uses("tracks")
)
@_option("pixels", "N", "Width of the picture. Default: 1500. " + _uses("pixels"))
@_option("track", "ID", "Track that holds the event. " + _uses("track"))
@_option("event", "N", "Number of the event on its track. " + _uses("event"))
@_option(
    "around_ns",
    "TIME",
    "List what is next to this time after the start of the run. " + _uses("around_ns"),
)
@json_option
def command(run: str, view: str, as_json: bool, **options: Any) -> None:
    show_view = VIEWS[view]
    options_given = {field: value for field, value in options.items() if value is not None}
    payload = show_view(Run(open_run(run)), show_view.make_options(view, options_given))
    if as_json:
        print_json(payload)
        return
    # Only text needs these imports; `--json` must start fast.
    from stepscope.cli.text import console
    from stepscope.cli.writers import write

    write(console(), payload)
