"""Options for the processes beside a job, which `run` and `attach` share."""

from __future__ import annotations

from typing import Any

import click

from stepscope.budget import Budget
from stepscope.cli.options import parse_size, parsed_by
from stepscope.monitor import DEFAULT_INTERVAL_MS
from stepscope.schema import INTERVALS_MS


def parse_budget(text: str) -> Budget:
    """Parse a share of one core, a size of memory, or both; the other one keeps its default.

    >>> parse_budget("5%,1GB")
    Budget(cpu_ratio=0.05, memory_bytes=1000000000)
    """
    limits: dict[str, Any] = {}
    for part in map(str.strip, text.split(",")):
        number = part.removesuffix("%").rstrip()
        if number != part:
            if not number.replace(".", "", 1).isdigit() or not float(number):
                raise click.BadParameter(f"{part!r} is not a share of a core, e.g. 2%.")
            name, limit = "cpu_ratio", float(number) / 100
        else:
            name, limit = "memory_bytes", parse_size(part)
        if name in limits:
            raise click.BadParameter(f"{text!r} is not a budget, e.g. 2%,150MB.")
        limits[name] = limit
    return Budget(**limits)


interval_option = click.option(
    "--interval",
    "interval_ms",
    type=click.Choice([str(ms) for ms in INTERVALS_MS]),
    callback=parsed_by(int),
    default=str(DEFAULT_INTERVAL_MS),
    show_default=True,
    help="Milliseconds between samples of the node.",
)
budget_option = click.option(
    "--monitor-budget",
    metavar="CPU,MEMORY",
    callback=parsed_by(parse_budget),
    default="2%,150MB",
    show_default=True,
    help="Share of one core, and memory, for the monitor and the watch process of this node, not "
    "counting programs that they start. Above that share they record less, and above that memory "
    "they free what they can; the run says so.",
)
