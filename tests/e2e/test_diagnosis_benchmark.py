"""The quick scenarios of the verdict benchmark, to detect regressions of its scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.diagnosis.results import DISTURBED_CORES

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1800


def test_the_quick_scenarios(tmp_path: Path) -> None:
    """90% of suspects and 80% of causes are right, in runs without CPU contention.

    This is less than the targets of the benchmark, because one run per scenario is a small sample.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.diagnosis", "--subset"),
            *("--kept", str(tmp_path / "kept.jsonl"), "--out", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "diagnosis-subset.json").read_text())
    assert not results["not_scored"]
    assert len(results["runs"]) >= 20
    grades = [
        run["grade"]
        for run in results["runs"]
        if run["outcome"]["outside_cores"] <= DISTURBED_CORES
    ]
    planted = [grade for grade in grades if grade["planted"]]
    healthy = [grade for grade in grades if not grade["planted"]]
    assert sum(grade["suspect_right"] for grade in planted) >= 0.9 * len(planted), done.stdout
    assert sum(grade["cause_right"] for grade in planted) >= 0.8 * len(planted), done.stdout
    assert sum(grade["false_alarm"] for grade in healthy) <= 0.25 * len(healthy), done.stdout
    single = [
        run for run in results["runs"] if run["grade"]["planted"] and run["first"] is not None
    ]
    predicted = [run["first"] for run in single if run["first"]["predicted_ms"] is not None]
    assert len(predicted) >= 0.8 * len(single) > 10
