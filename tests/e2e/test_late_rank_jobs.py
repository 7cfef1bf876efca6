"""Real jobs with and without a rank that makes the others wait."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.late_ranks.faults import HEALTHY, Case, run_case
from tests.support.under_stepscope import TORCHRUN, command_json, run_under

pytestmark = pytest.mark.quiet  # a rank that other jobs keep from its core is late

SCRIPT = Path(__file__).parent / "distributed" / "slow_loading.py"


def test_a_rank_that_loads_slowly_is_named(tmp_path: Path) -> None:
    job = run_under(tmp_path / "run", *TORCHRUN, str(SCRIPT), "slow")
    assert job.code == 0, job.stderr
    payload = job.payload("show", "ranks")
    late, peer = payload["ranks"]
    assert payload["sentence"].startswith("Rank 1 is late in ")
    assert ": slow data loading, Rows.__getitem__" in payload["sentence"]
    assert (late["rank"], late["persistence"]) == ("rank 1", "persistent")
    assert late["lateness_ns"] >= 6e6, "half of the 12 ms that its batches take longer"
    assert peer["persistence"] is None


@pytest.mark.extended("the opposite case, in another job")
def test_an_even_job_of_short_steps_names_no_rank(tmp_path: Path) -> None:
    """DDP times its first iterations only, in which ranks differ by chance."""
    job = run_under(tmp_path / "run", *TORCHRUN, str(SCRIPT))
    assert job.code == 0, job.stderr
    payload = job.payload("show", "ranks")
    assert payload["sentence"].startswith("No rank is late: at the median of the steps each is ")


@pytest.mark.extended("a minute of jobs; test_a_rank_that_loads_slowly_is_named has the sentence")
@pytest.mark.parametrize("fault", ["input", "batches", HEALTHY])
def test_a_fault_of_a_rank_on_two_hosts(tmp_path: Path, fault: str) -> None:
    """A short version of `python -m benchmarks.late_ranks`."""
    run = tmp_path / "run"
    case = Case(fault=fault, seed=0, rank_count=3, rank=2, extra=6)
    outcome = run_case(case, run, steps=40, isolated=False)
    assert (outcome.is_right_rank, outcome.is_right_cause) == (True, True), outcome.sentence
    # Both hosts have the clock of this machine.
    first, second = command_json("show", "nodes", run=run)["nodes"]
    assert (first["clock_offset_ns"], first["clock_residual_ns"]) == (0, 0)
    assert abs(second["clock_offset_ns"]) <= second["clock_residual_ns"]
