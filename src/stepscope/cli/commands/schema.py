"""`stepscope schema NAME`: the JSON schema of what a command or a view prints with `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any

import click
import msgspec

from stepscope import errors, queries, views
from stepscope.cli.options.common import JsonOption
from stepscope.cli.output import print_json
from stepscope.errors import name_similar
from stepscope.schema import make_schemas

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID_SCHEMA = {
    "type": "string",
    "description": "Id of the row, or of the whole payload, for the option --at of show.",
}


@click.command(
    "schema",
    help="Print the JSON schema of what NAME prints with --json: a view such as `steps`, or a "
    "command such as `diagnose` or `rules check`. Without NAME, list the names.",
)
@click.argument("words", metavar="[NAME]", nargs=-1)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    name = " ".join(words)
    if name in views.VIEWS:  # without importing the commands
        print_json(make_schema([views.VIEWS[name].payload], has_ids=True))
        return
    options = dict(list_json_options(context.find_root()))
    names = [*views.VIEWS, *options]
    if not name:
        click.echo("\n".join(names))
    elif name in options:
        option = options[name]
        types = [resolve_name(payload) for payload in option.payloads]
        print_json(make_schema(types, form=option.form, has_ids=option.has_ids))
    else:
        raise errors.UsageError(
            f"Nothing named {name!r} prints JSON.{name_similar(name, names)} List the names with "
            "`stepscope schema`."
        )


def list_json_options(root: click.Context) -> Iterator[tuple[str, JsonOption]]:
    """Yield the names of the commands that print JSON of their own, with the option for it."""
    pending = [("", root.command)]
    while pending:
        name, group = pending.pop(0)
        for option in group.params:
            if isinstance(option, JsonOption) and option.payloads:
                yield name, option
        if isinstance(group, click.Group):
            for word in group.list_commands(root):
                inner = group.get_command(root, word)
                if inner is not None:
                    pending.append((f"{name} {word}".strip(), inner))


def make_schema(
    types: list[type[msgspec.Struct]], *, form: str = "one", has_ids: bool = False
) -> dict[str, Any]:
    """Make the schema of an output.

    Args:
        types: the types, of which one is printed.
        form: as of `JsonOption`; of lines, the schema is that of each.
        has_ids: as of `JsonOption`.
    """
    schemas, components = make_schemas(types, "#/$defs/{name}")
    for component in components.values():
        if has_ids and "properties" in component:
            component["properties"] = {queries.ROW_ID: ID_SCHEMA, **component["properties"]}
    schema: dict[str, Any] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    in_list: dict[str, Any] = {"type": "array", "items": schema}
    by_form: dict[str, dict[str, Any]] = {
        "list": in_list,
        "one or list": {"anyOf": [schema, in_list]},
    }
    return {"$schema": DIALECT, **by_form.get(form, schema), "$defs": components}
