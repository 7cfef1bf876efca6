"""The report of a running job is written again and again, by one process at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.schema import RuleSelection
from stepscope.testing import RunBuilder
from stepscope.watch import report_file
from stepscope.watch.report_file import ReportFile
from tests.support.waiting import wait_until

RULES = RuleSelection(names=["StepOutlier"])


def read_time(path: Path) -> int:
    return int(json.loads(path.read_text())["made_ns"]) if path.exists() else 0


@pytest.mark.parametrize(("max_share", "is_due"), [(1e6, True), (1e-6, False)])
@pytest.mark.seed("DBR-01")
def test_a_report_is_refreshed_only_as_often_as_its_share_of_the_time_allows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    max_share: float,
    is_due: bool,
) -> None:
    monkeypatch.setattr(report_file, "MAX_SHARE", max_share)
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("forward 300 | optimizer 80", 30)
    path = tmp_path / "report.json"
    report = ReportFile(str(run.write()), str(path))
    report.refresh(RULES)
    first = report._process
    assert first is not None
    report.refresh(RULES)
    assert report._process is first, "one process at a time"
    assert first.wait() == 0
    first_ns = read_time(path)
    assert first_ns
    report.refresh(RULES)
    assert (report._process is not None) is is_due
    if is_due:
        wait_until(lambda: read_time(path) > first_ns)
    report.finish(RULES)
    assert read_time(path) > first_ns
