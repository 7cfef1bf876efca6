"""`stepscope recover RUN`: store the records that a killed job or monitor left in the spool."""

from __future__ import annotations

import click

from stepscope.cli.options import json_option, run_argument
from stepscope.cli.output import print_json_line
from stepscope.errors import UsageError
from stepscope.monitor import Recovery, recover_run
from stepscope.quantities import count_of
from stepscope.store import is_remote


@click.command(
    "recover",
    help="Store in RUN the data recorded before a job or its monitor was killed. "
    "Repeating it changes nothing.",
)
@run_argument
@json_option("stepscope.monitor.Recovery")
def command(run: str, as_json: bool) -> None:
    if is_remote(run):
        raise UsageError(
            f"Cannot recover {run}: span logs are recovered into the run directory on the machine "
            "that recorded them; pass that directory."
        )
    recovery = recover_run(run)
    if as_json:
        print_json_line(recovery)
    else:
        click.echo(_sentence(recovery))


def _sentence(recovery: Recovery) -> str:
    if recovery.spool is None:
        return f"Nothing to recover: {recovery.reason}."
    return (
        f"Recovered {count_of(recovery.row_count, 'row')} from {recovery.spool}. Job status: "
        f"{recovery.state}" + (f" ({recovery.reason})." if recovery.reason else ".")
    )
