"""Pages of the rules: those of `stepscope rules explain`, with examples; their topics."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from stepscope import rule_feed
from stepscope.rules import page
from stepscope.rules.base import Rule
from stepscope.rules.parameters import describe_parameters
from stepscope.rules.registry import BUILT_IN_RULES
from tests.support.rule_runs import FAULTY, open_drawn


def write_pages() -> str:
    """Return all pages, with headings one level deeper."""
    pages = (f"{page(rule)}\n## Example\n{write_example(rule)}\n" for rule in BUILT_IN_RULES)
    return "\n".join(re.sub(r"^#", "##", text, flags=re.MULTILINE) for text in pages)


def write_example(rule: type[Rule[Any]]) -> str:
    """Return a command that checks the rule, what it reads, and sentences of a finding where
    `FAULTY` has a run in which it fires."""
    name = rule.__name__
    settings = [
        f" --set {name}.{p.name}={show_default(p.default)}"
        for p in describe_parameters(rule.parameters_type)
    ]
    lines = [f"`stepscope rules check RUN --rule {name}{''.join(settings[:1])}`"]
    if rule.metrics:
        lines.append(
            f"Metrics that it reads: {', '.join(f'`{metric}`' for metric in rule.metrics)}."
        )
    if name in FAULTY:
        with tempfile.TemporaryDirectory() as directory:
            run = open_drawn(Path(directory) / "run", FAULTY[name])
            (finding,) = rule_feed.check_rules(run, rule_feed.choose_rules([name])).findings
        lines += ["A finding:", *(f"> {sentence}" for sentence in finding.sentences)]
    return "\n\n".join(lines)


def show_default(value: object) -> str:
    """Write the default of a parameter as an option has it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_topics() -> str:
    """Return the table of the rules by topic."""
    topics: dict[str, list[str]] = {}
    for rule in BUILT_IN_RULES:
        name = f"[`{rule.__name__}`](#{rule.__name__.lower()})"
        topics.setdefault(rule.topic, []).append(name if rule.can_fire else f"{name} (never fires)")
    rows = "".join(f"| {topic} | {', '.join(names)} |\n" for topic, names in topics.items())
    return f"| topic | rules |\n|---|---|\n{rows}"
