"""The page of a rule: its docstring, with its parameters as declared."""

from __future__ import annotations

import inspect
from typing import Any

from stepscope.rules.base import Rule
from stepscope.rules.parameters import describe

HEADINGS = (
    "What it checks",
    "Why it matters",
    "What to do",
    "Parameters",
    "Where the numbers differ from SageMaker Debugger's",
)
"""Of every page of a built-in rule, in this order."""
BEFORE = HEADINGS[4]
"""The heading above which parameters are put."""


def summary(rule: type[Rule[Any]]) -> str:
    """What a rule checks, in a sentence."""
    return (inspect.getdoc(rule) or "").partition("\n\n")[0].replace("\n", " ")


def page(rule: type[Rule[Any]]) -> str:
    """The page of a rule in Markdown."""
    text = inspect.getdoc(rule) or "This rule has no page."
    body, heading, rest = text.partition(f"## {BEFORE}")
    parts = [f"# {rule.__name__}", body.strip(), _parameters(rule)]
    if heading:
        parts.append(f"{heading}\n{rest.strip()}")
    return "\n\n".join(parts) + "\n"


def _parameters(rule: type[Rule[Any]]) -> str:
    rows = []
    for each in describe(rule.parameters_type):
        names = [alias for alias, name in rule.aliases.items() if name == each.name]
        also = f" Also called `{'`, `'.join(names)}`." if names else ""
        default = f"{each.default:g}" if isinstance(each.default, float) else each.default
        rows.append(f"- `{each.name}` (default {default}; {each.takes}): {each.doc}{also}")
    return "## Parameters\n" + ("\n".join(rows) or "None.")
