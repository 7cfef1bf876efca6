"""`stepscope diagnose RUN`: the verdict."""

from __future__ import annotations

import click

from stepscope.cli.opening import open_run, say_recovery
from stepscope.cli.options import json_option, run_argument
from stepscope.cli.verdict_text import print_verdict
from stepscope.rule_feed import make_verdict


@click.command("diagnose", help="Show the bottleneck of RUN, its cause, and recommended fixes.")
@run_argument
@json_option("stepscope.diagnosis.Verdict")
def command(run: str, as_json: bool) -> None:
    opened = open_run(run)
    say_recovery(opened.reader)
    verdict = make_verdict(opened)
    print_verdict(verdict, run, as_json=as_json)
