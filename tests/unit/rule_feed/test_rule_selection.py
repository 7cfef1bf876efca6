"""Changes of the rules of a running job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import UsageError
from stepscope.rule_feed import change_rules, choose_rules, list_rules
from stepscope.schema import RuleSelection

pytestmark = pytest.mark.seed("DBP-10")
ALL = list_rules(RuleSelection())
FEW = RuleSelection(names=["StepOutlier", "BatchSize"], assignments=["StepOutlier.stddev=2"])


@pytest.fixture
def mine(tmp_path: Path) -> str:
    module = tmp_path / "mine.py"
    module.write_text("from stepscope.rules import Rule\nclass Mine(Rule):\n    pass\n")
    return f"{module}:Mine"


def test_a_rule_is_left_out_of_all_and_comes_back() -> None:
    without = change_rules(RuleSelection(), remove=["step_outlier"])
    assert without == RuleSelection(without=["StepOutlier"])
    assert list_rules(without) == [name for name in ALL if name != "StepOutlier"]
    assert change_rules(without, add=["StepOutlier"]) == RuleSelection()


def test_rules_and_parameters_change_together(mine: str) -> None:
    changed = change_rules(
        FEW,
        add=["LowGPUUtilization", mine],
        remove=["BatchSize"],
        assignments=["LowGPUUtilization_window=250", "StepOutlier.stddev=4"],
    )
    assert changed == RuleSelection(
        names=["StepOutlier", "LowGPUUtilization", mine],
        assignments=["LowGPUUtilization.window=250", "StepOutlier.stddev=4"],
    )
    rules = choose_rules(changed.names, assignments=changed.assignments)
    assert [type(rule).__name__ for rule in rules] == ["StepOutlier", "LowGPUUtilization", "Mine"]
    assert rules[0].parameters.stddev == 4
    assert change_rules(changed, remove=["Mine", "StepOutlier"]) == RuleSelection(
        names=["LowGPUUtilization"], assignments=["LowGPUUtilization.window=250"]
    )


def test_a_rule_in_a_file_joins_all(mine: str) -> None:
    assert change_rules(RuleSelection(), add=[mine]).names == [*ALL, mine]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"add": ["Nope"]}, "Unknown rule 'Nope'"),
        ({"remove": ["Nope"]}, "Unknown rule 'Nope'"),
        ({"add": ["nowhere.py:Mine"]}, "File not found"),
        ({"remove": ["CPUBottleneck"]}, "CPUBottleneck is not evaluated, and cannot be removed"),
        ({"remove": ["StepOutlier", "BatchSize"]}, "No rule would remain"),
        ({"add": ["IOBottleneck"], "remove": ["IOBottleneck"]}, "added and removed at once"),
        (
            {"assignments": ["IOBottleneck.window=5"]},
            "is not evaluated; add it with --rule IOBottleneck",
        ),
        ({"assignments": ["StepOutlier.nope=5"]}, "StepOutlier has no parameter 'nope'"),
        ({"assignments": ["StepOutlier.stddev=many"]}, "Invalid value 'many'"),
        ({"remove": ["BatchSize"], "fixed": ["BatchSize"]}, "--stop-on or --fail-on"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        change_rules(FEW, **changes)
