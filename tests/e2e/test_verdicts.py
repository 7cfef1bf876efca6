"""Verdicts of jobs with one planted fault each: suspect and cause.

The scripts are in `faults/` and name their fault in the first lines. They are real training jobs
of about ten seconds, and they run one at a time, because they share two cores. Other causes are
those of quick scenarios of the verdict benchmark: test_diagnosis_benchmark.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.tiers import extend_all_but
from tests.support.under_stepscope import E2E, TORCHRUN, label, run_under

pytestmark = pytest.mark.quiet

SCRIPTS = sorted((E2E / "faults").glob("*.py"))
IN_MAKE_TEST = [E2E / "faults" / "slow_augmentation.py"]
BURN = "while True: pass"
WORDS = {
    "producer_thread": "waits for one thread that spends its time in make_batch (producer_thread",
    "process_pool": "waits for 2 processes that spend their time in decode (process_pool",
    "two_stages": "2 stages of training. Stage 2, Linear with SGD on Records, has ",
}
"""Words of the headline of a script: what fills its waits, or which training it is about."""


@contextmanager
def burners(count: int) -> Iterator[None]:
    """Run processes outside the job that keep cores busy."""
    started = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.seed("DIAG-01")
@pytest.mark.parametrize(
    "script", extend_all_but(IN_MAKE_TEST, SCRIPTS, "another fault"), ids=lambda path: path.stem
)
def test_the_planted_fault_is_found(script: Path, tmp_path: Path) -> None:
    count = int(label(script, "BURNERS")) if "BURNERS" in script.read_text() else 0
    with burners(count):
        job = run_under(tmp_path / "run", sys.executable, str(script))
    assert job.code == 0, job.stderr
    verdict = job.verdict
    attribution = (verdict["suspect"], verdict["cause"])
    if verdict["cause"] == "cpu_contention" and not count and verdict["also"]:
        # The machine is busy with something else: the planted cause comes second.
        attribution = (verdict["also"][0]["suspect"], verdict["also"][0]["cause"])
    assert attribution == (label(script, "SUSPECT"), label(script, "CAUSE")), verdict
    if verdict["suspect"] == "healthy":
        assert verdict["fixes"] == []
    else:
        assert verdict["share_ratio"] >= 0.2
        assert verdict["fixes"]
        assert verdict["evidence"]
    ruled_out = {item["suspect"] for item in verdict["ruled_out"]}
    suspects = {"data_pipeline", "model", "communication", "framework_overhead"}
    assert {item["suspect"] for item in verdict["suspects"]} == suspects
    largest = max(verdict["suspects"], key=lambda item: item["share_ratio"])["suspect"]
    causes = {verdict["suspect"], largest, *(cause["suspect"] for cause in verdict["also"])}
    assert not ruled_out & causes
    assert verdict["headline"] in " ".join(job.stderr.split())
    assert WORDS.get(script.stem, "") in verdict["headline"]


@pytest.mark.extended("another job; test_late_rank_jobs.py has two ranks")
@pytest.mark.seed("DIAG-01")
def test_ranks_that_wait_for_each_others_gradients(tmp_path: Path) -> None:
    script = E2E / "distributed" / "gradient_exchange.py"
    job = run_under(tmp_path / "run", *TORCHRUN, str(script))
    assert job.code == 0, job.stderr
    verdict = job.verdict
    attribution = (verdict["suspect"], verdict["cause"])
    assert attribution == (label(script, "SUSPECT"), label(script, "CAUSE")), verdict
    assert "2 ranks" in " ".join(entry["text"] for entry in verdict["evidence"])
