"""`stepscope cost RUN`: cost of a run and potential savings."""

from __future__ import annotations

from pathlib import Path

import click

from stepscope import cost
from stepscope.cli.opening import open_run
from stepscope.cli.options import common
from stepscope.cli.output import print_rows


@click.command(
    "cost",
    help="Show the cost of RUN per step, epoch and hour, potential savings, and "
    "right-sizing advice.",
)
@common.run_argument
@common.price_options
@common.epochs_option
@click.option(
    "--hours",
    callback=common.parsed_by(common.parse_amount),
    metavar="N",
    help="Also show the cost of a run of N hours.",
)
@common.json_option("stepscope.cost.Cost", has_ids=True)
def command(  # noqa: PLR0917 - click passes options by name
    run: str,
    usd_per_hour: str | None,
    instance_type: str | None,
    prices: Path | None,
    epochs: float | None,
    hours: float | None,
    as_json: bool,
) -> None:
    request = cost.PriceRequest(
        usd_per_hour=usd_per_hour, instance_type=instance_type, prices=prices
    )
    report = cost.report_cost(open_run(run), request, epochs=epochs, hours=hours)
    if as_json:
        options = {
            "usd_per_hour": usd_per_hour,
            "instance_type": instance_type,
            "epochs": epochs,
            "hours": hours,
        }
        print_rows(report, "cost", options, has_ids=prices is None)
        return
    # Only text needs these imports; `--json` must start fast.
    from stepscope.cli.text import console
    from stepscope.cli.writers import write

    write(console(), report)
