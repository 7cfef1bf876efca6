"""Sentences of a verdict on records that are missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.diagnosis import diagnose
from stepscope.schema import JobState
from stepscope.testing import RunBuilder

RunMaker = Callable[..., RunBuilder]
STEPS = "forward 60 | backward 30 | optimizer 10"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("spool_limit", "the spool was full; raise --spool-limit"),
        ("ENOSPC", "the file system of the spool was full"),
        ("EDQUOT", "the disk quota of the spool was exhausted"),
        ("EFBIG", "the limit on file sizes (ulimit -f)"),
        ("ENOENT", "the spool was deleted"),
        ("EMFILE", "too many files were open in one process; raise the limit (ulimit -n)"),
        ("ENFILE", "too many files were open on the machine; raise the limit (fs.file-max)"),
        ("EIO", "the spool could not be written: Input/output error"),
    ],
)
def test_each_cause_of_dropped_records_has_its_sentence(
    new_run: RunMaker, cause: str, words: str
) -> None:
    run = new_run()
    run.rank(dropped_count=700, dropped_by_cause={cause: 700})
    verdict = diagnose(run.open())
    start = "No verdict: no training step was recorded: 700 of 700 records were dropped because "
    assert verdict.headline.startswith(start + words)
    assert f"700 records dropped because {words}" in verdict.notes[0]


def test_most_of_the_dropped_records_give_the_reason(new_run: RunMaker) -> None:
    """Too few steps are not advice to run longer when most records were dropped."""
    run = new_run()
    causes = {"EFBIG": 1, "ENOSPC": 99}
    run.rank(dropped_count=100, dropped_by_cause=causes).draw(STEPS, 5)  # 15 records
    headline = diagnose(run.open()).headline
    assert "100 of 115 records were dropped because the file system" in headline


def test_a_process_of_which_nothing_could_be_recorded(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(refusal="ENOSPC")
    headline = diagnose(run.open()).headline
    assert "could not be recorded because the file system of the spool was full" in headline


def test_a_loss_that_the_monitor_noted(new_run: RunMaker) -> None:
    run = new_run()
    run.rank()
    run.status(JobState.COMPLETED, losses=["the spool was deleted while the job ran"])
    headline = diagnose(run.open()).headline
    assert headline == (
        "No verdict: no training step was recorded: the spool was deleted while the job ran."
    )


@pytest.mark.parametrize("has_processes", [True, False])
def test_records_that_are_still_in_the_spool(new_run: RunMaker, has_processes: bool) -> None:
    run = new_run()
    if has_processes:
        run.rank()
    silent: dict[str, Any] = {"heartbeat_ns": time.time_ns() - 3600 * 10**9, "monitor_pid": 4711}
    run.status(JobState.IN_PROGRESS, ended_ns=None, **silent)
    headline = diagnose(run.open()).headline
    assert headline == (
        "No verdict: no training step is in the run: its last records are still in the spool."
    )


def test_a_verdict_begins_with_the_loss(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(dropped_count=3, dropped_by_cause={"ENOSPC": 3}).draw(STEPS, 200)
    verdict = diagnose(run.open())
    assert verdict.suspect == "healthy"
    assert verdict.headline.startswith("3 of 603 records were dropped because the file system of ")
    assert ". No bottleneck found: " in verdict.headline


def test_compiled_functions_without_state(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait 1 | dispatch:predict 5", 9)
    headline = diagnose(run.open()).headline
    assert "no compiled function that was called returns state" in headline
    assert "mark the steps with stepscope.steps(loader)" in headline


def test_a_job_of_which_no_process_recorded_anything(new_run: RunMaker) -> None:
    headline = diagnose(new_run().open()).headline
    assert "imports PyTorch, TensorFlow, Keras, JAX or XGBoost" in headline
