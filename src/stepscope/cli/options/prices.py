"""Price options of commands, and the prices stored in a run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stepscope import cost, monitor
from stepscope.cli.options.common import Decorated, parse_price, parsed_by
from stepscope.cli.output import say


def price_options(command: Decorated) -> Decorated:
    """Add `--usd-per-hour`, `--instance-type` and `--prices`."""
    for option in (
        click.option(
            "--prices",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="TOML file with custom prices; overrides list prices. Default: $STEPSCOPE_PRICES.",
        ),
        click.option(
            "--instance-type",
            metavar="NAME",
            help="Cloud instance type, e.g. p4d.24xlarge; used to look up the hourly price.",
        ),
        click.option(
            "--usd-per-hour",
            callback=parsed_by(parse_price),
            metavar="PRICE",
            help="Price of one machine per hour; used for the cost of the job and savings.",
        ),
    ):
        command = option(command)
    return command


def recorded_prices(
    usd_per_hour: str | None, instance_type: str | None, prices: Path | None
) -> dict[str, str | None]:
    """Return the price options to store in a run.

    A custom price is stored by value, because its file is not available on other machines.

    Raises:
        UsageError: the user's prices cannot be read.
    """
    options = {"usd_per_hour": usd_per_hour, "instance_type": instance_type, "price_source": None}
    has_price_table = prices is not None or bool(os.environ.get(cost.ENVIRONMENT))
    if usd_per_hour is not None or not (has_price_table or instance_type):
        return options
    table = cost.load_price_table(prices)
    kind = instance_type or monitor.read_instance_type()
    offer = table.find(kind) if kind is not None else None
    if offer is not None and offer.is_custom:
        options |= {"usd_per_hour": str(offer.usd_per_hour), "price_source": offer.origin}
    elif offer is None:
        say(cost.NO_PRICE if kind is None else cost.explain_missing_offer(kind, table))
    return options
