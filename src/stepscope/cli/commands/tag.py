"""`stepscope tag RUN [TAG...]`: show or change the title, tags and notes of a run."""

from __future__ import annotations

import click

from stepscope import store
from stepscope.cli.options import common
from stepscope.cli.output import print_json


@click.command(
    "tag",
    help="Add TAGs to RUN, a directory or URL, and change its title or notes. They are stored with "
    "the run, and shown in the list of runs. Without tags and options, show them.",
)
@common.run_argument
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Remove a tag; may be repeated.")
@click.option(
    "--title", metavar="TEXT", help='Name of the run; "" shows that of its directory again.'
)
@click.option("--notes", metavar="TEXT", help='Notes on the run; "" removes them.')
@common.json_option("stepscope.store.RunLabels")
def command(
    run: str,
    tags: tuple[str, ...],
    *,
    remove: tuple[str, ...],
    title: str | None,
    notes: str | None,
    as_json: bool,
) -> None:
    location = store.open_run(run).location
    present = store.read_labels(location)
    labels = store.update_labels(
        location,
        title=title,
        tags={*present.tags, *tags} - set(remove) if tags or remove else None,
        notes=notes,
    )
    if as_json:
        print_json(labels)
    else:
        click.echo(f"title: {labels.title or 'none'}")
        click.echo(f"tags:  {', '.join(labels.tags) or 'none'}")
        click.echo(f"notes: {labels.notes or 'none'}")
