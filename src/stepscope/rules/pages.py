"""Documentation page of a rule: its docstring, with its parameters as declared."""

from __future__ import annotations

import inspect
from typing import Any

from stepscope.quantities import number
from stepscope.rules.base import Rule
from stepscope.rules.parameters import describe_parameters

HEADINGS = (
    "What it checks",
    "Why it matters",
    "What to do",
    "Parameters",
    "Where the numbers differ from SageMaker Debugger's",
)
"""Headings of the page of every built-in rule, in this order."""
AFTER_PARAMETERS = HEADINGS[4]
"""Heading that follows the parameters."""


def summary(rule: type[Rule[Any]]) -> str:
    """Return the first sentence of a rule's page."""
    return (inspect.getdoc(rule) or "").partition("\n\n")[0].replace("\n", " ")


def page(rule: type[Rule[Any]]) -> str:
    """Return the page of a rule in Markdown."""
    text = inspect.getdoc(rule) or "This rule has no page."
    body, heading, rest = text.partition(f"## {AFTER_PARAMETERS}")
    parts = [f"# {rule.__name__}", body.strip(), _parameters(rule)]
    if heading:
        parts.append(f"{heading}\n{rest.strip()}")
    return "\n\n".join(parts) + "\n"


def _parameters(rule: type[Rule[Any]]) -> str:
    rows = []
    for parameter in describe_parameters(rule.parameters_type):
        aliases = [alias for alias, name in rule.aliases.items() if name == parameter.name]
        note = f" Alias: `{'`, `'.join(aliases)}`." if aliases else ""
        default = parameter.default
        shown = number(default) if isinstance(default, float) else default
        rows.append(
            f"- `{parameter.name}` (default {shown}; {parameter.accepts}): {parameter.doc}{note}"
        )
    return "## Parameters\n" + ("\n".join(rows) or "None.")
