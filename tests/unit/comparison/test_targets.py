"""Targets of a fix of the data pipeline: reached, missed, or unknown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from stepscope.cli.writers.compare import write_comparison
from stepscope.cli.writers.compare_files import markdown_of
from stepscope.comparison.compare import compare_runs
from stepscope.comparison.conditions import TargetOutcome
from stepscope.run import Run
from stepscope.testing import RunBuilder

SLOW = "wait 600 | forward 120 | backward 200 | optimizer 80"
"""Step of one second: 60% waits for batches."""
FAST = "wait {wait} | forward 300 | backward 480 | optimizer {optimizer}"
STEPS = 520
"""Seconds, in which more GPU samples are taken than LowGPUUtilization skips."""


def record(path: Path, step: str, gpu: float | None, steps: int = STEPS) -> Run:
    run = RunBuilder(path)
    run.rank(workers=2).draw(step, steps)
    if gpu is not None:
        run.metric("gpu_busy_ratio", gpu, device="0")
    return run.open()


def fast(wait: int) -> str:
    return FAST.format(wait=wait, optimizer=220 - wait)


def compare(base: Run, fixed: Run) -> dict[str, TargetOutcome]:
    return {target.name: target for target in compare_runs([base], [fixed]).targets}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return record(tmp_path_factory.mktemp("slow") / "run", SLOW, 0.4)


@pytest.mark.parametrize(
    ("wait", "gpu", "reached"),
    [
        (50, 0.88, (True, True, True)),
        (0, 0.97, (True, True, True)),
        (199, 0.85, (True, True, True)),
        (199, 0.8496, (False, True, True)),
        (50, 0.65, (False, True, False)),  # LowGPUUtilization: below 70%
        (200, 0.88, (True, False, True)),  # the rule fires above 20%, the target is below it
    ],
)
@pytest.mark.seed("DIAG-08")
def test_targets_are_reached_or_not(
    slow: Run, tmp_path: Path, wait: int, gpu: float, reached: tuple[bool, ...]
) -> None:
    outcomes = compare(slow, record(tmp_path / "run", fast(wait), gpu))
    names = ("gpu_utilization", "data_loading", "rules")
    assert tuple(outcomes[name].is_reached for name in names) == reached
    assert outcomes["gpu_utilization"].base_value == "40%"
    assert outcomes["data_loading"].base_value == "60%"
    shown = float(outcomes["gpu_utilization"].other_value.rstrip("%"))
    assert (shown >= 85) is reached[0]
    assert shown == pytest.approx(100 * gpu, abs=0.5)


def test_a_run_without_samples_does_not_tell(slow: Run, tmp_path: Path) -> None:
    outcomes = compare(slow, record(tmp_path / "run", fast(50), None, steps=60))
    assert outcomes["gpu_utilization"].is_reached is None
    assert outcomes["gpu_utilization"].other_value == "n/a"
    assert outcomes["data_loading"].is_reached is True
    assert outcomes["rules"].is_reached is None  # LowGPUUtilization fired before
    assert outcomes["rules"].base_value == "issues found by 2 of 2"
    assert outcomes["rules"].other_value == (
        "issues found by 0 of 1 (LowGPUUtilization not applicable)"
    )


@pytest.mark.parametrize(("step", "gpu"), [(SLOW, None), (fast(50), 0.4)])
def test_no_targets_without_a_gpu_or_another_suspect(
    tmp_path: Path, step: str, gpu: float | None
) -> None:
    base = record(tmp_path / "base", step, gpu, steps=60)
    assert not compare(base, record(tmp_path / "other", fast(50), 0.9, steps=60))


def test_the_outcome_is_written_in_text_and_markdown(slow: Run, tmp_path: Path) -> None:
    comparison = compare_runs([slow], [record(tmp_path / "run", fast(50), 0.65)])
    out = io.StringIO()
    write_comparison(Console(file=out, width=200), comparison)
    (line,) = [line for line in out.getvalue().splitlines() if "GPU utilization of 85%" in line]
    assert line.split()[-3:] == ["40%", "65%", "no"]
    assert "| GPU utilization of 85% to 90% while training | 40% | 65% | no |" in markdown_of(
        comparison
    )
