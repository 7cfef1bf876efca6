"""Unmodified scripts in the style of common public examples: they work, and steps are counted.

EXPECTED_STEPS at the top of a script is its number of steps. Trainers, compiled models and mixed
precision are in test_framework_contracts.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, TORCHRUN, FinishedJob, label, run_under

SCRIPTS = E2E / "scripts"
in_detail = pytest.mark.extended(
    "another script; test_framework_contracts.py counts the steps of a loop"
)


def run_script(
    tmp_path: Path, name: str, *arguments: str, options: tuple[str, ...] = ()
) -> FinishedJob:
    job = run_under(
        tmp_path / "run", sys.executable, str(SCRIPTS / f"{name}.py"), *arguments, options=options
    )
    assert job.code == 0, job.stderr
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED
    assert not [note for p in open_run(job.run).processes() for note in p.notes]
    return job


def shares(steps: dict) -> dict[str, float]:
    return {phase["name"]: phase["share_ratio"] for phase in steps["phases"]}


@in_detail
@pytest.mark.seed("SMP-06", "DBP-12", "DBP-16", "DIAG-02")
@pytest.mark.parametrize(
    ("name", "batches", "evaluates"),
    [
        ("mnist_cnn", 1, True),
        ("char_gpt", 0, True),  # no DataLoader
        ("gan", 1, False),
        ("iterable_dataset", 1, False),
        ("plain_loop", 0, False),
        ("lbfgs", 0, False),
    ],
)
def test_steps_are_counted(tmp_path: Path, name: str, batches: int, evaluates: bool) -> None:
    steps = run_script(tmp_path, name).steps()
    assert steps["step_count"] == int(label(SCRIPTS / f"{name}.py", "EXPECTED_STEPS"))
    assert steps["source"] == "optimizer"
    assert steps["fetches_per_step"] == pytest.approx(batches, abs=0.2)
    assert (steps["evaluation_ns"] > 0) == evaluates
    phase_shares = shares(steps)
    assert sum(phase_shares.values()) == pytest.approx(1, abs=1e-6)
    for phase in ("forward", "backward", "optimizer"):
        assert phase_shares[phase] > 0
    assert (phase_shares["data_wait"] > 0) == bool(batches)


@in_detail
def test_micro_batches_are_accumulated_into_one_step(tmp_path: Path) -> None:
    job = run_script(tmp_path, "char_gpt")
    spans = open_run(job.run).table("spans", ["kind"], condition="kind = 'backward'")
    assert len(spans["kind"]) == 4 * job.steps()["step_count"]


@in_detail
def test_a_process_is_recorded_across_exec(tmp_path: Path) -> None:
    job = run_script(tmp_path, "execs")
    assert job.steps()["step_count"] == int(label(SCRIPTS / "execs.py", "EXPECTED_STEPS"))


@in_detail
def test_forked_children_do_not_change_the_steps(tmp_path: Path) -> None:
    job = run_script(tmp_path, "forks")
    assert job.steps()["step_count"] == int(label(SCRIPTS / "forks.py", "EXPECTED_STEPS"))


@pytest.mark.seed("DBP-16")
def test_a_script_without_torch_is_reported(tmp_path: Path) -> None:
    job = run_script(tmp_path, "no_torch")
    verdict = job.verdict
    assert verdict["suspect"] == "insufficient_evidence"
    assert "imports PyTorch" in verdict["headline"]
    assert job.payload("show", "system")["nodes"]


@pytest.mark.seed("DBP-12")
def test_torchrun_gives_every_rank_its_steps(tmp_path: Path) -> None:
    script = SCRIPTS / "ddp_gloo.py"
    out = tmp_path / "out"
    job = run_under(tmp_path / "run", *TORCHRUN, str(script), "--out", str(out))
    assert job.code == 0, job.stderr
    ranks = job.payload("show", "steps")["ranks"]
    assert [rank["rank"] for rank in ranks] == ["rank 0", "rank 1"]
    assert {rank["step_count"] for rank in ranks} == {int(label(script, "EXPECTED_STEPS"))}
    statistics = [f for p in open_run(job.run).processes() for f in p.facts if f["fact"] == "ddp"]
    assert statistics
    assert statistics[-1]["backward_comm_ns"] > 0
