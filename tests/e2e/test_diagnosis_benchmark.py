"""The quick scenarios of the benchmark of verdicts: what it measures must not get worse unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.diagnosis.results import DISTURBED_CORES

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
LIMIT_S = 1800


def test_the_quick_scenarios(tmp_path: Path) -> None:
    """Nine of ten suspects and eight of ten causes, of the runs beside which nobody else used the
    machine: less than its targets, because one run of each is a small sample."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.diagnosis", "--subset"),
            *("--kept", str(tmp_path / "kept.jsonl"), "--out", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "diagnosis-subset.json").read_text())
    assert not found["not_scored"]
    assert len(found["runs"]) >= 20
    grades = [
        run["grade"] for run in found["runs"] if run["outcome"]["outside_cores"] <= DISTURBED_CORES
    ]
    planted = [grade for grade in grades if grade["planted"]]
    healthy = [grade for grade in grades if not grade["planted"]]
    assert sum(grade["suspect_right"] for grade in planted) >= 0.9 * len(planted), done.stdout
    assert sum(grade["cause_right"] for grade in planted) >= 0.8 * len(planted), done.stdout
    assert sum(grade["false_alarm"] for grade in healthy) <= 0.25 * len(healthy), done.stdout
    single = [run for run in found["runs"] if run["grade"]["planted"] and run["first"] is not None]
    predicted = [run["first"] for run in single if run["first"]["predicted_ms"] is not None]
    assert len(predicted) >= 0.8 * len(single) > 10
