"""The trace of Lightning's own profiler: modules and hooks of the trainer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, STEPSCOPE, command_json, label

pytestmark = pytest.mark.extended(
    "importers are in tests/unit/importers, a job of Lightning in test_framework_contracts.py"
)

SCRIPT = E2E / "scripts" / "lightning_profiler.py"
STEPS = int(label(SCRIPT, "TRACED_STEPS"))


@pytest.mark.seed("PTP-10")
def test_modules_and_hooks(tmp_path: Path) -> None:
    for command in (
        [sys.executable, str(SCRIPT), "--out", str(tmp_path / "log")],
        [*STEPSCOPE, "import", str(tmp_path / "log"), "-o", str(tmp_path / "run")],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=JOB_TIMEOUT_S)
    (trace,) = command_json("show", "modules", run=tmp_path / "run")["traces"]
    assert trace["source"] == "lightning"
    modules = {row["name"].strip(): row for row in trace["modules"]}
    layers = {f"{kind}: net.{number}" for number, kind in enumerate(("Linear", "ReLU", "Linear"))}
    assert {name.rpartition(".modules.")[2].partition(".")[2] for name in modules} >= layers
    assert {row["occurrences"] for row in modules.values()} == {STEPS}
    (net,) = [row for name, row in modules.items() if name.endswith("Sequential: net")]
    inside = [row for row in trace["modules"] if row["depth"] == net["depth"] + 1]
    assert len(inside) == 3
    assert net["host_total_ns"] == net["host_self_ns"] + sum(row["host_total_ns"] for row in inside)
    (source,) = command_json("show", "annotations", "--top", "0", run=tmp_path / "run")["sources"]
    hooks = {row["name"]: row["count"] for row in source["annotations"]}
    for hook in ("run_training_batch", "[LightningModule]Regression.on_train_batch_end"):
        assert hooks[f"[pl][profile]{hook}"] == STEPS
    flame = command_json("show", "modules-flame", "--by", "host", run=tmp_path / "run")
    (net_box,) = flame["traces"][0]["roots"]
    assert net_box["name"].endswith("Sequential: net")
    assert net_box["total_ns"] == net["host_total_ns"] + net["backward_host_ns"]
