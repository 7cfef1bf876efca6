"""Reference of commands, views and Python classes, from their declarations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

import stepscope
from stepscope import access, capture, cli, schema
from stepscope.schema.labels import describe_fields
from stepscope.views import OPTION_FLAGS, VIEWS


def describe_commands() -> str:
    """Return a section for each command, with its usage, its description and its options."""
    # With the settings of the command line: a command remembers its option of help.
    context = click.Context(cli.root, info_name="stepscope", **cli.root.context_settings)
    lines: list[str] = []
    for name in cli.COMMANDS:
        command = cli.root.get_command(context, name)
        if command is not None:
            lines += _command_section(command, click.Context(command, context, name), "##")
    return "\n".join(lines)


def _command_section(command: click.Command, context: click.Context, level: str) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"{level} `{context.command_path}`", "", f"`{context.command_path} {usage}`", "")
    yield from (_escape_html(_clean(command.help or "")), "")
    records = [param.get_help_record(context) for param in command.get_params(context)]
    options = [record for record in records if record and "--help" not in record[0]]
    if options:
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| {_cell(f'`{names}`')} | {_cell(_clean(text))} |" for names, text in options)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command_section(inner, click.Context(inner, context, name), "###")


def describe_views() -> str:
    """Return a section for each view: its options, and the fields of its payload."""
    lines = ["## Fields of all views", "", *_field_table(schema.Payload, ())]
    common = schema.Payload.__struct_fields__
    for name, view in VIEWS.items():
        lines += [f"## `{name}`", "", _clean((view.load().__doc__ or "").partition("\n\n")[0]), ""]
        flags = [f"`{OPTION_FLAGS[option]}`" for option in view.uses]
        choices = f" Groups of `--by`: {', '.join(f'`{group}`' for group in view.by)}."
        lines += [f"Options: {', '.join(flags)}.{choices if view.by else ''}", ""] if flags else []
        lines += _field_table(view.payload, common)
    return "\n".join(lines)


def _field_table(payload: type[msgspec.Struct], without: Iterable[str]) -> Iterator[str]:
    yield from ("| field | unit | meaning |", "|---|---|---|")
    for name, label in schema.labels_of(payload).items():
        if name not in without:
            unit = "" if label.unit in {"none", "inherited"} else label.unit
            meaning = label.description or f"{label.title[:1].upper()}{label.title[1:]}."
            yield f"| `{name}` | {unit} | {_cell(meaning)} |"
    yield ""


def describe_classes() -> str:
    """Return a section for each class of a run in Python, and one for functions of a script."""
    lines = ["## `stepscope`", ""]
    items = [getattr(capture, name) for name in stepscope.__all__ if name[0] != "_"]
    items += [getattr(access, name) for name in access.__all__]
    for item in items:
        if not inspect.isclass(item):
            lines += _callable_section(item, f"stepscope.{item.__name__}")
    for item in items:
        if inspect.isclass(item):
            lines += _class_section(item)
    return "\n".join(lines)


def _class_section(item: type) -> Iterator[str]:
    yield from (f"## `{item.__name__}`", "", *_docstring(item), "")
    descriptions = describe_fields(item)
    for name, text in descriptions.items():
        yield f"- `{name}`: {text}"
    if descriptions:
        yield ""
    for name, member in inspect.getmembers(item):
        if name.startswith("_") or name in descriptions:
            continue
        if isinstance(member, property):
            yield from (f"### `{item.__name__}.{name}`", "", *_docstring(member), "")
        elif inspect.isfunction(member) or inspect.ismethod(member):
            yield from _callable_section(member, f"{item.__name__}.{name}")


def _callable_section(function: Any, name: str) -> Iterator[str]:
    parameters = [
        str(parameter.replace(annotation=inspect.Parameter.empty))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in {"self", "cls"}
    ]
    yield from (f"### `{name}`", "", f"`{name}({', '.join(parameters)})`", "")
    yield from (*_docstring(function), "")


def _docstring(item: Any) -> Iterator[str]:
    """Yield a docstring as Markdown: sections become bold words, and their entries list items."""
    in_section = False
    for line in inspect.cleandoc(item.__doc__ or "").splitlines():
        section = re.fullmatch(r"(Args|Returns|Raises|Attributes|Yields):", line)
        entry = re.match(r"    (\*{0,2}\w[\w, *]*): (.*)", line)
        if section:
            in_section = True
            yield from (f"**{section[1]}**", "")
        elif in_section and entry:
            yield f"- `{entry[1]}`: {_escape_html(entry[2])}"
        elif in_section and line.startswith("        "):
            yield f"  {_escape_html(line.strip())}"
        else:
            yield line if line.startswith("    ") else _escape_html(line)


def _clean(text: str) -> str:
    return " ".join(text.replace("\b", "").split())


def _cell(text: str) -> str:
    return _escape_html(text).replace("|", "\\|")


def _escape_html(text: str) -> str:
    """Escape what looks like an element of HTML outside of code."""
    return re.sub(r"(`[^`]*`)|<(?=\w)", lambda match: match[1] or "&lt;", text)
