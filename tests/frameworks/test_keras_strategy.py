"""Steps of Keras under a strategy of TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.framework_environments import find_python
from tests.support.under_stepscope import label, run_under

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).parent / "scripts" / "keras_strategy.py"


def test_steps_are_counted(tmp_path: Path) -> None:
    options = ("--quiet", "--no-rules", "--window", "off")
    command = [find_python("tensorflow"), str(SCRIPT)]
    job = run_under(tmp_path / "run", *command, options=options, KERAS_BACKEND="tensorflow")
    assert job.code == 0, job.stderr
    assert job.steps()["step_count"] == int(label(SCRIPT, "EXPECTED_STEPS"))
