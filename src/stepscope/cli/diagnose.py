"""`stepscope diagnose RUN`: the verdict."""

from __future__ import annotations

import click

from stepscope.cli.options import json_option, run_argument
from stepscope.cli.verdict_text import print_verdict
from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.store import open_run


@click.command("diagnose", help="Show the bottleneck of RUN, its cause, and recommended fixes.")
@run_argument
@json_option
def command(run: str, as_json: bool) -> None:
    print_verdict(diagnose(Run(open_run(run))), run, as_json=as_json)
