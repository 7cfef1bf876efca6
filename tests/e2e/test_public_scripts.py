"""Scripts in the shape of the usual public examples work unchanged, and their steps are counted.

The number of steps that a script takes stands at its top as EXPECTED_STEPS.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.under_stepscope import HERE, Finished, label, run_under

pytestmark = pytest.mark.e2e

SCRIPTS = HERE / "scripts"


def run_script(
    tmp_path: Path, name: str, *arguments: str, options: tuple[str, ...] = ()
) -> Finished:
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


@pytest.mark.parametrize(
    ("name", "batches", "evaluates"),
    [
        ("mnist_cnn", 1, True),
        ("hf_trainer", 1, True),
        ("lightning_fit", 1, True),
        ("char_gpt", 0, True),  # no DataLoader
        ("gan", 1, False),
        ("iterable_dataset", 1, False),
        ("plain_loop", 0, False),
        ("lbfgs", 0, False),
        ("compiled", 1, False),
    ],
)
def test_steps_are_counted(tmp_path: Path, name: str, batches: int, evaluates: bool) -> None:
    steps = run_script(tmp_path, name).steps()
    assert steps["step_count"] == int(label(SCRIPTS / f"{name}.py", "EXPECTED_STEPS"))
    assert steps["source"] == "optimizer"
    assert steps["fetches_per_step"] == pytest.approx(batches, abs=0.2)
    assert (steps["evaluation_ns"] > 0) == evaluates
    found = shares(steps)
    assert sum(found.values()) == pytest.approx(1, abs=1e-6)
    for phase in ("forward", "backward", "optimizer"):
        assert found[phase] > 0
    assert (found["data_wait"] > 0) == bool(batches)


def test_skipped_steps_are_steps(tmp_path: Path) -> None:
    job = run_script(tmp_path, "grad_scaler")
    assert job.steps()["step_count"] == int(label(SCRIPTS / "grad_scaler.py", "EXPECTED_STEPS"))


def test_accumulation_makes_one_step_of_its_micro_batches(tmp_path: Path) -> None:
    job = run_script(tmp_path, "char_gpt")
    spans = open_run(job.run).table("spans", ["kind"], condition="kind = 'backward'")
    assert len(spans["kind"]) == 4 * job.steps()["step_count"]


def test_a_process_replaced_by_exec_goes_on_being_recorded(tmp_path: Path) -> None:
    job = run_script(tmp_path, "execs")
    assert job.steps()["step_count"] == int(label(SCRIPTS / "execs.py", "EXPECTED_STEPS"))


def test_children_that_fork_and_vanish_change_nothing(tmp_path: Path) -> None:
    job = run_script(tmp_path, "forks")
    assert job.steps()["step_count"] == int(label(SCRIPTS / "forks.py", "EXPECTED_STEPS"))


def test_a_script_without_torch_is_told_so(tmp_path: Path) -> None:
    job = run_script(tmp_path, "no_torch")
    verdict = job.verdict
    assert verdict["suspect"] == "insufficient_evidence"
    assert "imports PyTorch" in verdict["headline"]
    assert job.payload("show", "system")["nodes"]


def test_torchrun_gives_every_rank_its_steps(tmp_path: Path) -> None:
    script = SCRIPTS / "ddp_gloo.py"
    out = tmp_path / "out"
    job = run_under(
        tmp_path / "run",
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(script),
        "--out",
        str(out),
    )
    assert job.code == 0, job.stderr
    ranks = job.payload("show", "steps")["ranks"]
    assert [rank["rank"] for rank in ranks] == ["rank 0", "rank 1"]
    assert {rank["step_count"] for rank in ranks} == {int(label(script, "EXPECTED_STEPS"))}
    accounts = [f for p in open_run(job.run).processes() for f in p.facts if f["fact"] == "ddp"]
    assert accounts
    assert accounts[-1]["backward_comm_ns"] > 0
