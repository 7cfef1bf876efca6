"""The fault-injection benchmark, end to end on one scenario."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


def test_one_scenario_is_run_fixed_and_scored(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    options = ["--only", "tidy_memory", "--seeds", "1"]
    options += ["--kept", str(kept), "--out", str(tmp_path / "results")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.diagnosis", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results" / "diagnosis.json").read_text())
    (run,) = results["runs"]
    assert run["outcome"]["job"]["scenario"] == "tidy_memory"
    assert run["saving_ratio"] is not None
    assert len(kept.read_text().splitlines()) == 2
    assert "tidy_memory" in (tmp_path / "results" / "diagnosis.md").read_text()
