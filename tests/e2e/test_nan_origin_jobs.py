"""The origin of NaN, of an unchanged script under `stepscope run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.job_control import JOB_PYTHON
from tests.support.under_stepscope import E2E, run_under

pytestmark = pytest.mark.extended(
    "two jobs; the search is in tests/unit/capture/test_nan_search.py"
)

SCRIPT = E2E / "recording" / "dividing.py"
LINE = (
    SCRIPT.read_text().splitlines().index("    loss = (weights * errors).sum() / weights.sum()") + 1
)
SENTENCE = (
    f"Step 12: `div` in dividing.py:{LINE} (loss) produced the first NaN (a single number): 0 "
    "divided by 0. It reached the loss."
)


def test_find_nan(tmp_path: Path) -> None:
    job = run_under(tmp_path / "run", JOB_PYTHON, str(SCRIPT), options=("--find-nan",))

    assert job.code == 0
    assert SENTENCE in job.stderr.replace("\n", " ")
    assert job.payload("show", "tensors")["nan_origin"] == SENTENCE


def test_a_nan_that_does_not_recur(tmp_path: Path) -> None:
    job = run_under(tmp_path / "run", JOB_PYTHON, str(SCRIPT), "skip", options=("--on-nan", "find"))

    assert job.code == 0
    assert "Step 12: the loss was NaN. Its origin is not known" in job.stderr.replace("\n", " ")
    assert job.payload("show", "tensors")["nan_origin"] is None
