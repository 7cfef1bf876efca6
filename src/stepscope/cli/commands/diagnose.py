"""`stepscope diagnose RUN`: the verdict."""

from __future__ import annotations

from contextlib import closing

import click

from stepscope import rule_feed
from stepscope.cli.opening import open_run, say_recovery
from stepscope.cli.options.common import (
    for_steps_option,
    json_option,
    run_argument,
    scheduler_option,
)
from stepscope.cli.writers.verdict import print_verdict
from stepscope.run import choose_engine


@click.command("diagnose", help="Show the bottleneck of RUN, its cause, and recommended fixes.")
@run_argument
@for_steps_option
@scheduler_option()
@json_option("stepscope.diagnosis.Verdict")
def command(run: str, for_steps: int | None, scheduler: str | None, as_json: bool) -> None:
    with closing(choose_engine(scheduler)) as engine:
        opened = open_run(run, engine)
        say_recovery(opened.reader)
        verdict = rule_feed.make_verdict(opened, planned_step_count=for_steps)
    print_verdict(verdict, run, as_json=as_json)
