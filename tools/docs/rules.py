"""Pages of the rules, as `stepscope rules explain RULE` prints them, and their topics."""

from __future__ import annotations

import re

from stepscope.rules import page
from stepscope.rules.registry import BUILT_IN_RULES


def write_pages() -> str:
    """Return all pages, with headings one level deeper."""
    return "\n".join(re.sub(r"^#", "##", page(rule), flags=re.MULTILINE) for rule in BUILT_IN_RULES)


def list_topics() -> str:
    """Return the table of the rules by topic."""
    topics: dict[str, list[str]] = {}
    for rule in BUILT_IN_RULES:
        name = f"`{rule.__name__}`"
        topics.setdefault(rule.topic, []).append(name if rule.can_fire else f"{name} (never fires)")
    rows = "".join(f"| {topic} | {', '.join(names)} |\n" for topic, names in topics.items())
    return f"| topic | rules |\n|---|---|\n{rows}"
