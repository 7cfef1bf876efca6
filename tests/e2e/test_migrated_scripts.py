"""Scripts and settings for SageMaker's profilers, with another import and no other change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.schema import WindowFact
from stepscope.store import open_run
from tests.support.command import run_command
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, label, run_under

SCRIPT = E2E / "scripts" / "smppy_training.py"
STEPS = int(label(SCRIPT, "EXPECTED_STEPS"))
SETTINGS = """
from stepscope.compat.debugger import ProfilerConfig, FrameworkProfile, Rule, rule_configs

profiler_config = ProfilerConfig(
    system_monitor_interval_millis=500,
    framework_profile_params=FrameworkProfile(
        start_step=5,
        num_steps=3,
    ),
)
rules = [
    Rule.sagemaker(rule_configs.low_gpu_utilization(),
                   rule_parameters={"threshold": "70", "window": "500"}),
    Rule.sagemaker(rule_configs.dataloader_bottleneck()),
    Rule.sagemaker(rule_configs.overall_system_usage()),
    Rule.sagemaker(rule_configs.overall_framework_metrics()),
]
"""


def check_annotations(run: OpenRun) -> None:
    """Check that the ranges of the steps are recorded, and none before or after."""
    names = Counter(row["name"] for row in run.framework(kind="annotation").rows())
    ranges = dict.fromkeys(("Forward", "Loss", "Backward", "Optimizer"), STEPS)
    assert names == ranges | {f"step_{number}": 2 for number in range(STEPS // 2)}


@pytest.mark.seed("SMP-01", "SMP-02")
def test_a_script_of_sagemaker_profiler(tmp_path: Path) -> None:
    done = run_under(tmp_path / "run", sys.executable, str(SCRIPT), "1", options=("--no-rules",))
    assert done.code == 0, done.stderr
    check_annotations(stepscope.open(done.run))
    assert done.steps()["step_count"] == STEPS


@pytest.mark.extended("two more jobs of test_a_script_of_sagemaker_profiler")
@pytest.mark.seed("SMP-01", "SMP-02")
@pytest.mark.parametrize("flag", ["0", "1"])
def test_the_script_alone_records_itself(tmp_path: Path, flag: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), flag],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        cwd=tmp_path,
        env={**os.environ, "STEPSCOPE_STRICT": "1"},
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "stepscope-runs").iterdir()
    check_annotations(stepscope.open(run))


@pytest.mark.extended("another job; settings are in tests/unit/cli/test_debugger_options.py")
@pytest.mark.seed("DBU-14")
def test_settings_of_sagemaker_debugger(tmp_path: Path) -> None:
    settings = tmp_path / "settings.py"
    settings.write_text(SETTINGS)
    done = run_under(
        tmp_path / "run",
        *(sys.executable, str(E2E / "scripts" / "plain_loop.py")),
        options=("--config", str(settings)),
    )
    assert done.code == 0, done.stderr
    facts = [fact for p in open_run(done.run).processes() for fact in p.facts_of(WindowFact)]
    assert [(fact.first_step, fact.step_count) for fact in facts] == [(5, 3)]
    rules = json.loads((done.run / "run.json").read_text())["options"]["rules"]
    assert rules["names"] == [
        "low_gpu_utilization",
        "dataloader_bottleneck",
        "overall_system_usage",
        "overall_framework_metrics",
    ]
    names = [word for name in rules["names"] for word in ("--rule", name)]
    values = [word for value in rules["set"] for word in ("--set", value)]
    words = ["rules", "check", str(done.run), *names, *values, "--json"]
    findings = json.loads(run_command(tmp_path, *words).stdout)["findings"]
    parameters = {finding["rule"]: finding["RuleParameters"] for finding in findings}
    assert set(parameters) == {
        "LowGPUUtilization", "DataloaderBottleneck", "OverallSystemUsage",
        "OverallFrameworkMetrics",
    }  # fmt: skip
    assert "threshold_p95:70" in parameters["LowGPUUtilization"].splitlines()
