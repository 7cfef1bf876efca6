"""Verdicts of healthy jobs of Keras."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.framework_environments import find_python
from tests.support.under_stepscope import run_under

pytestmark = pytest.mark.extended("a verdict in detail; test_keras_contracts.py has a job")

SCRIPT = Path(__file__).parent / "scripts" / "keras_layers.py"


def test_steps_that_only_compute_on_jax_are_no_dispatch_overhead(tmp_path: Path) -> None:
    job = run_under(
        tmp_path / "run",
        *(find_python("keras"), str(SCRIPT)),
        options=("--no-rules", "--window", "off"),
        KERAS_BACKEND="jax",
    )
    assert job.code == 0, job.stderr
    steps = job.steps()
    assert steps["step_count"] == 80
    shares = {phase["name"]: phase["share_ratio"] for phase in steps["phases"]}
    assert shares["execution"] > 0.7
    assert job.verdict["suspect"] != "framework_overhead"
