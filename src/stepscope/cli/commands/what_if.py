"""`stepscope what-if RUN`: time of a step with fixes, from the causal graph of traces or spans."""

from __future__ import annotations

from contextlib import closing

import click

from stepscope import views
from stepscope.cli.opening import open_run
from stepscope.cli.options import common
from stepscope.cli.output import print_rows
from stepscope.run import choose_engine

VIEW = "what-if"


@click.command(
    "what-if",
    help="Simulate fixes on the causal graph of the traces of RUN, or of a watched run without "
    "traces: how long would a step take?\n\n"
    "Without --fix each fix is simulated alone. Example: `stepscope what-if RUN --fix no-sync "
    "--fix workers=4`",
)
@common.run_argument
@click.option(
    "--fix",
    "fixes",
    metavar="NAME[=FACTOR]",
    multiple=True,
    help="Simulate this fix; several are simulated together. Names: "
    + ", ".join(views.SIMULATED_FIXES)
    + ".",
)
@click.option("--rank", metavar="N", help="Only traces of rank N.")
@click.option("--trace", metavar="NAME", help="Only the trace NAME.")
@common.scheduler_option()
@common.json_option("stepscope.views.steps.critical_path.WhatIfView", has_ids=True)
def command(
    run: str,
    *,
    fixes: tuple[str, ...],
    rank: str | None,
    trace: str | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    texts = {"name": views.FIX_SEPARATOR.join(fixes) or None, "rank": rank, "trace": trace}
    options = {field: text for field, text in texts.items() if text is not None}
    view = views.VIEWS[VIEW]
    with closing(choose_engine(scheduler)) as engine:
        payload = view(open_run(run, engine), view.parse_options(VIEW, options))
    if as_json:
        print_rows(payload, VIEW, options)
        return
    # Only text needs these imports; `--json` must start fast.
    from stepscope.cli.text import console
    from stepscope.cli.writers import write

    write(console(run), payload)
