"""Real trainings with and without faults of their data: rules on batches, live and afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from stepscope.rule_feed import check_rules, choose_rules, recorded_rules
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, run_under

pytestmark = pytest.mark.extended(
    "eight trainings; rules of batches are in tests/unit/rules, live ones in test_watch.py"
)

JOB = str(E2E / "batch_job.py")
OPTIONS = ("--tensors", "labels,predictions,inputs", "--tensors-every", "1")
RULES = ("ClassImbalance", "Confusion", "CheckInputImages", "NLPSequenceRatio")
FIRED = {
    "healthy": set[str](),
    "imbalanced": {"ClassImbalance"},
    "confused": {"Confusion"},
    "images": {"CheckInputImages"},
    "padded": {"NLPSequenceRatio"},
    "padded-watched": {"NLPSequenceRatio"},
}


@pytest.mark.parametrize("fault", FIRED)
def test_each_fault_of_the_data_is_found(fault: str, tmp_path: Path) -> None:
    options = () if fault.endswith("-watched") else OPTIONS
    options = (*options, "--window", "off", "--scan-interval", "1")
    job = run_under(tmp_path / "run", sys.executable, JOB, fault, options=options)
    assert job.code == 0, job.stderr
    record = recorded_rules(open_run(job.run))
    assert record is not None
    live = {finding.rule: finding for finding in record.findings}
    afterwards = check_rules(open_run(job.run), choose_rules(RULES), scan_ns=10**9).findings
    assert {finding.rule for finding in afterwards if finding.fired} == FIRED[fault]
    for finding in afterwards:
        assert finding.missing is None
        assert finding.datapoints > 10
        assert msgspec.to_builtins(live[finding.rule]) == msgspec.to_builtins(finding)
    if FIRED[fault]:
        learning = job.verdict["learning"]
        assert FIRED[fault] <= {learning["rule"], *learning["also"]}
