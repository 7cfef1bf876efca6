"""`stepscope mcp RUN|DIR`: runs for agents, over the Model Context Protocol."""

from __future__ import annotations

import click

from stepscope import errors


@click.command(
    "mcp",
    help="Serve a run, or the runs below a directory or URL, to an agent: read-only tools of the "
    "Model Context Protocol on standard input and output (extra `mcp`).",
)
@click.argument("location", metavar="[RUN|DIR]", default=".")
def command(location: str) -> None:
    errors.require("mcp", extra="mcp", alternative="use `stepscope show RUN VIEW --json`")
    from stepscope.cli.opening import resolve_run
    from stepscope.mcp_server import serve

    serve(resolve_run(location))
