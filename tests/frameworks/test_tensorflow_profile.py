"""Import of a profile that TensorFlow's profiler writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.framework_environments import find_python
from tests.support.under_stepscope import JOB_TIMEOUT_S, command_json

pytestmark = pytest.mark.extended("profiles of TensorFlow are in tests/unit/importers/xplane")

SCRIPT = Path(__file__).parent / "scripts" / "tensorflow_profile.py"
STEPS = 7


def test_steps_operators_and_batches(tmp_path: Path) -> None:
    command = [find_python("keras"), str(SCRIPT), str(tmp_path / "profile"), str(STEPS)]
    subprocess.run(command, check=True, capture_output=True, timeout=JOB_TIMEOUT_S)
    (file,) = (tmp_path / "profile").rglob("*.xplane.pb")
    done = run_command(tmp_path, "import", str(file), "--output", "run")
    assert done.returncode == 0, done.stderr
    (trace,) = command_json("show", "steps", run=tmp_path / "run")["traces"]
    assert trace["step_count"] == STEPS
    assert all(step["data_loader_ns"] > 0 for step in trace["steps"])
    (operators,) = command_json("show", "operators", run=tmp_path / "run")["traces"]
    calls = {row["name"]: row["calls"] for row in operators["operators"]}
    assert calls["AssignSubVariableOp"] == STEPS
    stages = command_json("show", "input-pipeline", run=tmp_path / "run")["tf_data"]
    assert {stage["name"]: stage["call_count"] for stage in stages}["ForeverRepeat"] == STEPS
