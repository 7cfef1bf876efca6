"""docs/rules.md: the example of a custom rule works."""

from __future__ import annotations

import re
from pathlib import Path

from stepscope.rule_feed.check import choose_rules
from stepscope.rules import Evaluation
from tests.support.fake_rule_inputs import FakeRuleInputs

FILE = Path(__file__).parents[3] / "docs" / "rules.md"


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
