"""docs/rules.md contains the page of every rule; `REWRITE=1 pytest` on this file writes it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from stepscope.rule_feed.check import choose_rules
from stepscope.rules import Evaluation, page
from stepscope.rules.profiler import RULES
from tests.support.fake_rule_inputs import FakeRuleInputs

FILE = Path(__file__).parents[3] / "docs" / "rules.md"
MARKER = (
    "<!-- Generated: the pages of the rules, as `stepscope rules explain RULE` prints them. -->"
)


def pages() -> str:
    """Return all pages, with headings one level deeper."""
    return "\n".join(re.sub(r"^#", "##", page(rule), flags=re.MULTILINE) for rule in RULES)


def test_document_contains_the_pages() -> None:
    text = FILE.read_text()
    written = text.partition(MARKER)[0] + MARKER + "\n\n" + pages()
    if os.environ.get("REWRITE"):
        FILE.write_text(written)
    assert text == written, "docs/rules.md is out of date: run this test with REWRITE=1"


def test_example_of_a_custom_rule(tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", FILE.read_text(), flags=re.DOTALL)
    assert example is not None
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


def test_introduction_names_every_rule() -> None:
    introduction = FILE.read_text().partition(MARKER)[0]
    for rule in RULES:
        assert f"`{rule.__name__}`" in introduction, f"add {rule.__name__} to the table in {FILE}"
