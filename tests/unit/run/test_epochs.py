"""Epochs are the passes of the loader that feeds training."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.run.epochs import (
    NO_EPOCH,
    NO_LOADER,
    NO_STEPS,
    RESTARTED_LOADER,
    Epochs,
    find_epochs,
)
from stepscope.testing import RunBuilder
from stepscope.testing.runs import DrawnProcess

STEP = "wait 10 | forward 30 | backward 40 | optimizer 20"
S = 1_000_000_000


def training(path: Path, workers: int | None = 0) -> tuple[RunBuilder, DrawnProcess]:
    run = RunBuilder(path)
    return run, run.rank(workers=workers)


def epoch(process: DrawnProcess, steps: int = 9) -> None:
    """Draw an epoch: 0.1 s to start, 0.1 s per step, and nothing to find its end."""
    process.draw("start 100").draw(STEP, steps).draw("exhausted 0")


def test_passes_and_their_steps(tmp_path: Path) -> None:
    run, process = training(tmp_path / "run")
    for _ in range(3):
        epoch(process)
    assert find_epochs(run.open()) == Epochs(count=3, mean_ns=S, steps=9)


def test_what_is_done_between_passes_belongs_to_them(tmp_path: Path) -> None:
    run, process = training(tmp_path / "run")
    for _ in range(3):
        epoch(process)
        process.draw("save 500")
    # After the last pass nothing says where its epoch would end but its loader.
    assert find_epochs(run.open()) == Epochs(count=3, mean_ns=(2 * 1.5 + 1) * S / 3, steps=9)


def test_a_pass_that_the_record_cuts_off_does_not_count(tmp_path: Path) -> None:
    run, process = training(tmp_path / "run")
    epoch(process)
    epoch(process)
    process.draw("start 100").draw(STEP, 4)
    assert find_epochs(run.open()) == Epochs(count=2, mean_ns=S, steps=9)


def test_the_loader_of_an_evaluation_does_not_count(tmp_path: Path) -> None:
    """It is of the same dataset class, so its start bears the same name; its batches do not."""
    run, process = training(tmp_path / "run")
    process.fact("dataloader", name="Rows#1", dataset="job.Rows", batch_size=64, num_workers=0)
    for _ in range(3):
        epoch(process)
        process.draw("start:Rows 100").draw("wait:Rows#1 50 | predict 50", 4)
        process.draw("exhausted:Rows#1 0")
    epochs = find_epochs(run.open())
    assert isinstance(epochs, Epochs)
    assert (epochs.count, epochs.steps) == (3, 9)


@pytest.mark.parametrize(
    ("drawn", "why"),
    [
        (["annotation 1000"], NO_STEPS),
        (["start 100", *[STEP] * 9], NO_EPOCH),
        (["start 10", STEP] * 9, RESTARTED_LOADER),
    ],
)
def test_why_epochs_are_not_known(tmp_path: Path, drawn: list[str], why: str) -> None:
    run, process = training(tmp_path / "run")
    for text in drawn:
        process.draw(text)
    assert find_epochs(run.open()) == why


def test_without_a_loader(tmp_path: Path) -> None:
    run, process = training(tmp_path / "run", workers=None)
    process.draw("forward 30 | backward 40 | optimizer 20", 9)
    assert find_epochs(run.open()) == NO_LOADER
