"""Completion of arguments and options in a shell, by their metavar.

    RUN, BASE      runs in the working directory, in `stepscope-runs`, or in the directory typed so
                   far, the latest first; files where there are none
    RULE, RULE,…   names of rules
    CMD…           programs, then files
    FILE, DIR      files, directories

Commands and names of views are completed by click.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

_Items = list[CompletionItem[str]]


def complete_by_metavar(command: click.Command) -> None:
    """Give the parameters of a command, and those of its subcommands, their completion."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            complete_by_metavar(inner)
    for parameter in command.params:
        if complete := _choose(parameter):
            vars(parameter)["shell_complete"] = complete


def _choose(parameter: click.Parameter) -> Callable[[click.Context, str], _Items] | None:
    match (parameter.metavar or "").strip("[]"):
        case "RUN" | "BASE" | "RUN|DIR" if isinstance(parameter, click.Argument):
            return _complete_run
        case "RULE" | "RULE,…":
            return _complete_rule
        case "-- CMD…" | "-- PYTHON":
            return lambda context, text: _complete_word(context.params[str(parameter.name)], text)
        case "DIR" | "DIR|URL":
            return lambda _context, text: [CompletionItem(text, type="dir")]
        case "FILE" | "FILE|DIR" | "SOURCE…" | "OUTPUT" | "RUN":
            return lambda _context, text: _files(text)
    return None


def _complete_run(_context: click.Context, text: str) -> _Items:
    from stepscope.job_environment import RUNS_DIRECTORY
    from stepscope.store import RUN_KEY

    parents = [text[: text.rindex("/") + 1]] if "/" in text else ["", f"{RUNS_DIRECTORY}/"]
    manifests = [
        (manifest.stat().st_mtime_ns, f"{parent}{manifest.parent.name}")
        for parent in parents
        for manifest in Path(parent).glob(f"*/{RUN_KEY}")
    ]
    latest_first = sorted(manifests, reverse=True)
    return [CompletionItem(run) for _, run in latest_first if run.startswith(text)] or _files(text)


def _complete_rule(_context: click.Context, text: str) -> _Items:
    """Complete the name after the last comma."""
    from stepscope.rule_feed import describe_rules

    before, comma, start = text.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{rule.rule}", help=rule.summary)
        for rule in describe_rules()
        if rule.rule.startswith(start)
    ]


def _complete_word(words: tuple[str, ...] | None, text: str) -> _Items:
    """Complete a word of a command after some words of it: the first one is a program."""
    if words or not text or "/" in text:
        return _files(text)
    paths = (path for parent in os.get_exec_path() for path in Path(parent).glob(f"{text}*"))
    programs = {path.name for path in paths if os.access(path, os.X_OK)}
    return [CompletionItem(name) for name in sorted(programs)] or _files(text)


def _files(text: str) -> _Items:
    return [CompletionItem(text, type="file")]
