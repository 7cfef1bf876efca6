"""docs/rules.md: its table and pages are generated; `make generate` writes them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from stepscope.rule_feed.check import choose_rules
from stepscope.rules import Evaluation, page
from stepscope.rules.registry import BUILT_IN_RULES as RULES
from tests.support.fake_rule_inputs import FakeRuleInputs

FILE = Path(__file__).parents[3] / "docs" / "rules.md"
TABLE = re.compile(r"(?<=\| topic \| rules \|\n\|---\|---\|\n)(\|.*\n)*")
MARKER = (
    "<!-- Generated: the pages of the rules, as `stepscope rules explain RULE` prints them. -->"
)


def pages() -> str:
    """Return all pages, with headings one level deeper."""
    return "\n".join(re.sub(r"^#", "##", page(rule), flags=re.MULTILINE) for rule in RULES)


def table() -> str:
    """Return the rows of the table of topics."""
    topics: dict[str, list[str]] = {}
    for rule in RULES:
        name = f"`{rule.__name__}`"
        topics.setdefault(rule.topic, []).append(name if rule.can_fire else f"{name} (never fires)")
    return "".join(f"| {topic} | {', '.join(names)} |\n" for topic, names in topics.items())


def test_document_is_up_to_date() -> None:
    text = FILE.read_text()
    introduction = TABLE.sub(table(), text.partition(MARKER)[0])
    document = f"{introduction}{MARKER}\n\n{pages()}"
    if os.environ.get("REWRITE"):
        FILE.write_text(document)
        return
    assert text == document, "docs/rules.md differs from the rules: run `make generate`"
    assert TABLE.search(text)


def test_example_of_a_custom_rule(tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", FILE.read_text(), flags=re.DOTALL)
    file = tmp_path / "quiet.py"
    file.write_text(example[1])
    (rule,) = choose_rules([f"{file}:QuietNodes"], assignments=["QuietNodes.threshold=10"])
    evaluation = Evaluation([rule])
    evaluation.feed(
        FakeRuleInputs()
        .sample("cpu_busy_ratio", [0.05, 0.07], node="a")
        .sample("cpu_busy_ratio", [0.5, 0.7], node="b")
    )
    (finding,) = evaluation.findings()
    assert finding.fired
    assert finding.nodes == ["a"]
