"""Verdicts on jobs that were recorded from outside: what stacks carry, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.analysis import ThreadActivity, estimate_wait_share
from stepscope.diagnosis import Verdict, diagnose
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder

CODE = {
    "next": "main > _BaseDataLoaderIter.__next__@torch/utils/data/dataloader.py > "
    "poll@python:selectors.py",
    "backward": "main > Tensor.backward@torch/_tensor.py",
    "update": "main > Optimizer.profile_hook_step.<locals>.wrapper@torch/optim/optimizer.py",
    "crop": "_worker_loop@torch/utils/data/_utils/worker.py > fetch > Rows.__getitem__ > crop",
    "idle": "_worker_loop@torch/utils/data/_utils/worker.py > Queue.get@python:queue.py",
    "inline": "main > _BaseDataLoaderIter.__next__@torch/utils/data/dataloader.py > fetch > "
    "Rows.__getitem__ > crop",
    "prices": "main > solve",
}
SECONDS = 20


def judge(
    path: Path, training: str, worker: str = "", *, gpu: float | None = None, repeats: int = SECONDS
) -> Verdict:
    """Diagnose a job of which stacks were drawn, one second at a time."""
    builder = RunBuilder(path, code=CODE, sampling_ms=100)
    rank = builder.rank(workers=1 if worker else None)
    rank.draw(training, repeats)
    for process in rank.workers:
        process.draw(worker, repeats)
    if gpu is not None:
        builder.metric("gpu_busy_ratio", gpu, device="0")
    run = builder.write()
    description = json.loads((run / "run.json").read_text())
    description["options"] = {"attached_pid": rank.info.pid}
    (run / "run.json").write_text(json.dumps(description))
    return diagnose(Run(open_run(run)))


def test_waiting_for_busy_workers_is_the_pipeline(tmp_path: Path) -> None:
    verdict = judge(
        tmp_path / "run", "do:next 700 | do:backward 200 | do:update 100", "do:crop 1000"
    )
    assert verdict.suspect == "data_pipeline"
    assert verdict.cause == "slow_augmentation"
    assert verdict.share_ratio == pytest.approx(0.7)
    assert verdict.phases == pytest.approx({"data_wait": 0.7, "backward": 0.2, "optimizer": 0.1})
    assert "1 DataLoader worker created batches in 100% of the samples" in verdict.evidence[2].text
    assert verdict.headline.startswith("Attached from outside: ")
    assert verdict.confidence_ratio <= 0.5  # no such verdict was ever checked


def test_the_cause_is_unknown_where_workers_idle(tmp_path: Path) -> None:
    verdict = judge(tmp_path / "run", "do:next 700 | do:backward 300", "do:idle 900 | do:crop 100")
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "unknown")
    assert "stepscope run -- CMD" in verdict.fixes[0].instructions


def test_batches_of_the_training_thread_itself(tmp_path: Path) -> None:
    verdict = judge(tmp_path / "run", "do:inline 600 | do:backward 400")
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "slow_augmentation")
    assert "The training thread itself created batches in 60%" in verdict.evidence[2].text


def test_waiting_that_hides_behind_busy_gpus_is_none(tmp_path: Path) -> None:
    training = "do:next 700 | do:backward 300"
    verdict = judge(tmp_path / "run", training, "do:crop 1000", gpu=0.95)
    assert verdict.suspect == "insufficient_evidence"
    assert "waited for batches in 70% of 200 stack samples" in verdict.headline
    assert "GPUs were busy for 95%" in verdict.headline
    idle = judge(tmp_path / "idle", training, "do:crop 1000", gpu=0.3)
    assert idle.suspect == "data_pipeline"
    assert "The GPUs in use had no work for 70% of the time." in idle.evidence[2].text


@pytest.mark.parametrize(
    ("training", "repeats", "obstacle"),
    [
        ("do:next 100 | do:backward 900", SECONDS, "waited for batches in 10%"),
        ("do:next 250 | do:backward 750", 12, "waited for batches in"),  # not surely above 20%
        ("do:next 900 | do:backward 100", 5, "a verdict needs 10; attach for longer"),
        ("do:prices 1000", SECONDS, "no process ran a DataLoader, a module"),
        ("", 1, "no stacks were sampled"),
    ],
)
def test_abstains_with_the_recording_that_would_tell(
    training: str, repeats: int, obstacle: str, tmp_path: Path
) -> None:
    verdict = judge(tmp_path / "run", training, repeats=repeats)
    assert verdict.suspect == "insufficient_evidence"
    assert verdict.headline.startswith("No verdict: attached from outside: ")
    assert obstacle in verdict.headline
    assert "start the job with `stepscope run -- CMD`" in verdict.headline


def test_a_window_tells_what_stacks_do_not(tmp_path: Path) -> None:
    verdict = judge(tmp_path / "run", "do:next 50 | do:backward 150 | op:aten::mm 800")
    assert verdict.evidence_kind == "traced"
    assert verdict.suspect == "healthy"
    assert verdict.share_of.endswith("in the traces")


def test_the_error_of_a_share_follows_from_seconds() -> None:
    """s / sqrt(n) for the shares 0, 1, 0, 1 of four seconds: s² = 1/3, so 1 / sqrt(12)."""
    thread = ThreadActivity(
        sample_count=40, counts={"data_wait": 20, "backward": 20}, wait_blocks=[0, 1, 0, 1]
    )
    share = estimate_wait_share([thread])
    assert share.ratio == 0.5
    assert share.standard_error == pytest.approx(12**-0.5)
