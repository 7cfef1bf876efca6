"""`stepscope diagnose RUN`: the verdict."""

from __future__ import annotations

import click

from stepscope.cli.options import json_option, run_argument
from stepscope.cli.verdict_text import print_verdict


@click.command("diagnose", help="Show the bottleneck of RUN, its cause, and recommended fixes.")
@run_argument
@json_option
def command(run: str, as_json: bool) -> None:
    print_verdict(run, as_json=as_json)
