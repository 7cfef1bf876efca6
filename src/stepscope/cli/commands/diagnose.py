"""`stepscope diagnose RUN`: the verdict."""

from __future__ import annotations

from contextlib import closing

import click

from stepscope.cli.options.common import (
    for_steps_option,
    json_option,
    run_argument,
    scheduler_option,
)
from stepscope.cli.output import print_rows
from stepscope.cli.stored_text import print_stored, print_text

NAME = SOURCE = "verdict"
"""Name of the stored result, and start of the ids of its rows."""


@click.command("diagnose", help="Show the bottleneck of RUN, its cause, and recommended fixes.")
@run_argument
@for_steps_option
@scheduler_option()
@click.option(
    "--all",
    "is_complete",
    is_flag=True,
    help="Show all evidence, other suspects, contributing causes, fixes with their reasons, and "
    "what the time of the job went to.",
)
@json_option("stepscope.diagnosis.Verdict", has_ids=True)
def command(
    run: str, for_steps: int | None, scheduler: str | None, is_complete: bool, as_json: bool
) -> None:
    form = "all" if is_complete else "screen"
    if for_steps is None and print_stored(run, NAME, form, source=SOURCE, as_json=as_json):
        return
    from stepscope import rule_feed
    from stepscope.cli.opening import open_run, say_recovery
    from stepscope.cli.writers.verdict import write_verdict
    from stepscope.cli.writers.verdict_screen import write_screen
    from stepscope.run import choose_engine

    with closing(choose_engine(scheduler)) as engine:
        opened = open_run(run, engine)
        say_recovery(opened.reader)
        verdict = rule_feed.make_verdict(opened, planned_step_count=for_steps)
    if as_json:
        print_rows(verdict, SOURCE, {"for_steps": for_steps})
        return
    name = NAME if for_steps is None else None
    write = write_verdict if is_complete else write_screen
    print_text(lambda out: write(out, verdict, run), run, opened, name, form)
