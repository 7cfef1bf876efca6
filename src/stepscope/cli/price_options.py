"""What a machine costs: the options that say so, and what a run keeps of them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stepscope.cli.options import Decorated, parse_price
from stepscope.cli.output import say
from stepscope.cost import ENVIRONMENT, NO_PRICE, explain_missing_offer, load_price_table
from stepscope.monitor import read_instance_type


def price_options(command: Decorated) -> Decorated:
    """`--usd-per-hour`, `--instance-type` and `--prices`: what a machine costs."""
    for option in (
        click.option(
            "--prices",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Prices of your own, as TOML; they win over those that are published. Default: "
            "the file that STEPSCOPE_PRICES names.",
        ),
        click.option(
            "--instance-type",
            metavar="NAME",
            help="What the cloud calls the machine, such as p4d.24xlarge: its price is looked up.",
        ),
        click.option(
            "--usd-per-hour",
            callback=parse_price,
            metavar="PRICE",
            help="What one machine costs, for the cost of the job and what a fix would save.",
        ),
    ):
        command = option(command)
    return command


def recorded_prices(
    usd_per_hour: str | None, instance_type: str | None, prices: Path | None
) -> dict[str, str | None]:
    """Options that a run keeps of what its machines cost.

    A price of the user's own is kept itself: who looks at the run elsewhere lacks the file.

    Raises:
        UsageError: the user's prices cannot be read.
    """
    kept = {"usd_per_hour": usd_per_hour, "instance_type": instance_type, "price_source": None}
    named = prices is not None or bool(os.environ.get(ENVIRONMENT))
    if usd_per_hour is not None or not (named or instance_type):
        return kept
    table = load_price_table(prices)
    kind = instance_type or read_instance_type()
    offer = table.find(kind) if kind is not None else None
    if offer is not None and offer.is_custom:
        kept |= {"usd_per_hour": str(offer.usd_per_hour), "price_source": offer.origin}
    elif offer is None:
        say(NO_PRICE if kind is None else explain_missing_offer(kind))
    return kept
