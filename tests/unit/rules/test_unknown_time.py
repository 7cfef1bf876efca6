"""Time outside all phases is overhead for the rule and for the verdict, or for neither of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.analysis import explain_unknown_time
from stepscope.diagnosis import diagnose
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.schema import RuleStatus
from stepscope.testing import RunBuilder

NO_CONTENTS = "steps were recorded, but no phases and no stack samples inside them"


@pytest.mark.parametrize(
    ("step", "fires"),
    [
        ("step ( do 10 )", False),  # marked by the script; nothing inside is known
        ("step ( do:log 10 )", True),  # stack samples show the script's own code
        ("step ( forward 1 | do 9 )", True),
    ],
)
def test_the_rule_applies_where_the_verdict_does(tmp_path: Path, step: str, fires: bool) -> None:
    drawn = RunBuilder(tmp_path / "run", code={"log": "main > train > log # print(step)"})
    drawn.rank().draw(step, 60)
    run = drawn.open()
    verdict = diagnose(run)
    (finding,) = check_rules(run.reader, choose_rules(["FrameworkOverhead"])).findings
    assert finding.fired is fires
    assert (verdict.suspect == "framework_overhead") is fires
    if not fires:
        assert finding.status is RuleStatus.NOT_APPLICABLE
        assert finding.missing == NO_CONTENTS
        assert verdict.headline == f"No verdict: {NO_CONTENTS}."


@pytest.mark.parametrize(
    ("phase_ns", "is_imported", "is_known"),
    [
        ({"data_wait": 49, "other": 51}, True, False),
        ({"data_wait": 50, "other": 50}, True, True),
        ({"data_wait": 49, "other": 51}, False, True),
        ({"forward": 1, "other": 99}, True, True),
        ({"other": 100}, False, False),
        ({}, False, False),
    ],
)
def test_unknown_time(phase_ns: dict[str, int], is_imported: bool, is_known: bool) -> None:
    reason = explain_unknown_time(phase_ns, has_samples=False, is_imported=is_imported)
    assert (reason is None) is is_known
