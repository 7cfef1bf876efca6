"""docs/rules.md: the example of a custom rule works, and times of findings are explained."""

from __future__ import annotations

import re
from pathlib import Path

from stepscope.rule_feed.check import choose_rules
from stepscope.rules import Evaluation
from stepscope.rules.profiler import RULES
from tests.support.fake_rule_inputs import FakeRuleInputs

FILE = Path(__file__).parents[3] / "docs" / "rules.md"
ABOUT_TRACES = {"PageableCopies", "TraceRecommendations"}
"""Rules of one row of the table of times."""


def test_example_of_a_custom_rule(tmp_path: Path) -> None:
    example = re.search(r'```python title="quiet.py"\n(.*?)```', FILE.read_text(), flags=re.DOTALL)
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


def test_the_data_that_violate_each_rule_are_named() -> None:
    (section,) = re.findall(
        r"^## Times of findings\n(.*?)^## ", FILE.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    firing = {rule.__name__ for rule in RULES if rule.can_fire}
    missing = sorted(name for name in firing - ABOUT_TRACES if f"`{name}`" not in section)
    assert not missing, f'add to the table of "Times of findings" in {FILE}: {missing}'
