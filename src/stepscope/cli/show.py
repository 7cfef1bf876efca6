"""`stepscope show RUN VIEW`: one view, as text or as its JSON payload."""

from __future__ import annotations

from typing import Any

import click

from stepscope.cli.options import json_option, run_argument
from stepscope.cli.output import print_json
from stepscope.diagnosis import Signals
from stepscope.store import open_run
from stepscope.views import OPTION_FLAGS, VIEWS

_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_LONGEST_NS = 1 << 62
"""As much as can be added to a time of today."""


def parse_duration(
    _context: click.Context | None, _parameter: click.Parameter | None, text: str | None
) -> int | None:
    """A duration such as 10ms, 250us or 1s as nanoseconds.

    >>> parse_duration(None, None, "10ms")
    10000000
    """
    if text is None:
        return None
    number = text.rstrip("numsNUMS ")
    scale = _TIME_UNITS.get(text[len(number) :].strip().lower())
    try:
        found = round(float(number) * (scale or 0))
    except (ValueError, OverflowError):
        found = 0
    if not 0 < found < _LONGEST_NS:
        raise click.BadParameter(f"{text!r} is no duration; give one such as 10ms or 250us.")
    return found


def _uses(field: str) -> str:
    return "For " + ", ".join(name for name, view in VIEWS.items() if field in view.uses) + "."


@click.command("show", help="Show one VIEW of RUN: " + ", ".join(VIEWS) + ".")
@run_argument
@click.argument("view", type=click.Choice(list(VIEWS)))
@click.option(
    OPTION_FLAGS["carry_over"],
    "carry_over",
    type=click.Choice(["keep", "drop"]),
    help="Whether device work launched before the window counts. Default: keep. "
    + _uses("carry_over"),
)
@click.option(
    OPTION_FLAGS["rank"],
    "rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only recordings of this rank.",
)
@click.option(
    OPTION_FLAGS["trace"], "trace", metavar="NAME", help="Only the recording of this name."
)
@click.option(
    OPTION_FLAGS["top"],
    "top",
    type=click.IntRange(min=0),
    metavar="N",
    help="Rows of a sorted list, 0 for all. Default: 20. " + _uses("top"),
)
@click.option(
    OPTION_FLAGS["by"], "by", metavar="WHAT", help="What to group rows by. " + _uses("by")
)
@click.option(
    OPTION_FLAGS["name"], "name", metavar="NAME", help="Only what has this name. " + _uses("name")
)
@click.option(
    OPTION_FLAGS["bucket_ns"],
    "bucket_ns",
    callback=parse_duration,
    metavar="DURATION",
    help="Width of the buckets of a curve, such as 10ms. " + _uses("bucket_ns"),
)
@click.option(
    OPTION_FLAGS["peaks"],
    "peaks",
    metavar="PEAKS",
    help="The device's peaks: its model, or such as bf16=989,fp32=67,bandwidth=3350 (TFLOP/s, "
    "GB/s). " + _uses("peaks"),
)
@json_option
def command(run: str, view: str, as_json: bool, **options: Any) -> None:
    chosen = VIEWS[view]
    given = {field: value for field, value in options.items() if value is not None}
    payload = chosen(Signals(open_run(run)), chosen.options(view, given))
    if as_json:
        print_json(payload)
        return
    # Only text needs them, and `--json` shall start fast.
    from stepscope.cli.text import console
    from stepscope.cli.writers import write

    write(console(), payload)
