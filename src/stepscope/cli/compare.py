"""`stepscope compare BASE RUN`: what changed from one run to another."""

from __future__ import annotations

import click

from stepscope.cli.options import epochs_option, json_option
from stepscope.cli.output import print_json
from stepscope.diagnosis import Signals
from stepscope.store import open_run
from stepscope.views.compare import comparison


@click.command("compare", help="Say what changed from BASE to RUN, and whether it is noise.")
@click.argument("base", metavar="BASE")
@click.argument("run", metavar="RUN")
@epochs_option
@json_option
def command(base: str, run: str, epochs: float | None, as_json: bool) -> None:
    found = comparison(Signals(open_run(base)), Signals(open_run(run)), epochs=epochs)
    if as_json:
        print_json(found)
        return
    # Only text needs them, and `--json` shall start fast.
    from stepscope.cli.text import console
    from stepscope.cli.writers import write

    write(console(), found)
