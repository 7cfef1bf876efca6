"""Details of findings that other versions wrote."""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope.rules import LowGPUUtilizationDetails, read_details
from stepscope.rules.profiler.gpu_utilization import LowGPUUtilization
from stepscope.schema import Finding, RuleStatus
from tests.support.fake_rule_inputs import FakeRuleInputs, check_rule


def test_details_survive_the_file() -> None:
    inputs = FakeRuleInputs().sample("gpu_busy_ratio", np.full(1080, 0.1), device="0")
    finding = check_rule(LowGPUUtilization(), inputs)
    decoded = msgspec.json.decode(msgspec.json.encode(finding), type=Finding)
    details = read_details(decoded, LowGPUUtilizationDetails)
    assert msgspec.to_builtins(details) == finding.details
    assert details.gpus["n0/0"].busy_percent.p95 == 10


def test_unknown_and_missing_keys_are_tolerated() -> None:
    finding = Finding(
        rule="LowGPUUtilization",
        status=RuleStatus.NO_ISSUES_FOUND,
        details={"gpus": {"n0/0": {"low_count": 2, "later": [1]}}, "another": None},
    )
    details = read_details(finding, LowGPUUtilizationDetails)
    assert details.gpus["n0/0"].low_count == 2
    assert details.gpus["n0/0"].busy_percent.count == 0


def test_a_rule_that_does_not_apply_has_no_details() -> None:
    finding = Finding(rule="LowGPUUtilization", status=RuleStatus.NOT_APPLICABLE)
    assert read_details(finding, LowGPUUtilizationDetails) is None
