"""Comparison of two runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.cli import root
from stepscope.comparison.compare import compare_runs
from stepscope.comparison.conditions import parse_condition
from stepscope.comparison.programs import DIFFERENT_SOURCES
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.drawn_trace import event, kernel, launch, step

Imported = Callable[..., Run]
MS = 1_000_000
US = 1_000


def draw_job(path: Path, *, wait: float, workers: int = 1, seed: int = 0) -> RunBuilder:
    run = RunBuilder(path)
    rank = run.rank(workers=workers, versions={"torch": "2.9"})
    rank.draw(f"wait=0 {wait} | forward 12 | backward 20 | optimizer 8", 90 + seed, jitter=0.1)
    run.metric("cpu_busy_ratio", 0.5)
    return run


def test_a_faster_run(tmp_path: Path) -> None:
    base = draw_job(tmp_path / "base", wait=60).open()
    candidate = draw_job(tmp_path / "other", wait=10, workers=4, seed=7).open()
    result = compare_runs([base], [candidate])
    assert result.steps is not None
    mean = result.steps.figures[0]
    assert mean.beyond_noise
    assert mean.base_ns == pytest.approx(base.ranks[0].steps.wall_ns[9:].mean())
    parts = {part.name: part for part in result.steps.parts}
    assert sum(part.change_ns for part in parts.values()) == pytest.approx(mean.change_ns)
    assert parts["data_wait"].change_ns == pytest.approx(-50 * MS, rel=0.1)
    assert not parts["forward"].beyond_noise
    assert re.fullmatch(
        r"Steps are 1\.\d+x faster: 1\d\d → \d+\.?\d* ms; data wait 6\d.* → 1\d.* ms\.",
        result.headline,
    )
    settings = {(s.group, s.name): (s.base_value, s.other_value) for s in result.settings}
    assert settings["data loader", "num_workers"] == ("1", "4")
    assert ("versions", "torch") not in settings
    figures = {figure.name: figure for figure in result.figures}
    assert figures["steps"].other_value == 97
    assert figures["CPU busy"].change_ratio == pytest.approx(0)
    assert result.base_run.suspect == "data_pipeline"
    assert result.names_missing is not None


def test_the_same_run_is_noise(tmp_path: Path) -> None:
    run = draw_job(tmp_path / "run", wait=60).open()
    result = compare_runs([run], [run])
    assert result.steps is not None
    assert not any(change.beyond_noise for change in (*result.steps.figures, *result.steps.parts))
    assert result.settings == []
    assert "No change of the step beyond noise: mean unchanged" in result.headline


def draw_steps(gemm: int, *extra: str) -> list[dict[str, object]]:
    """Draw ten steps of 100 µs; each launches a gemm and optional kernels."""
    events = [event("cpu_op", "aten::add", -10, 5)]
    for number in range(10):
        at = 100 * number
        events += [step(number, at, 100), event("cpu_op", "aten::mm", at + 5, 30)]
        events += [launch(10 * number + 1, at + 10), kernel("gemm", at + 20, gemm, 10 * number + 1)]
        for index, name in enumerate(extra, 2):
            events += [
                launch(10 * number + index, at + 10 + index),
                kernel(name, at + 60 + index, 4, 10 * number + index),
            ]
    return events


@pytest.mark.seed("PTP-11")
def test_traces(imported: Imported) -> None:
    result = compare_runs([imported(a=draw_steps(20, "relu"))], [imported(a=draw_steps(30))])
    assert result.steps is not None
    assert result.steps.source == "recorded"
    parts = {part.name: part for part in result.steps.parts}
    assert parts["kernel"].change_ns == pytest.approx((30 - 24) * US)
    assert sum(part.change_ns for part in parts.values()) == pytest.approx(
        result.steps.figures[0].change_ns, abs=1e-3
    )
    assert result.kernels is not None
    assert [(row.name, row.status, row.change_ns) for row in result.kernels.rows] == [
        ("gemm", "slower", pytest.approx(10 * US)),
        ("relu", "removed", pytest.approx(-4 * US)),
    ]
    assert result.kernels.change_ns == pytest.approx(6 * US)
    assert result.kernels.rows[0].base_calls == 1
    assert result.operators is not None
    # Calls before the first step do not count.
    assert [row.name for row in result.operators.rows] == ["aten::mm"]


def test_a_job_and_a_trace_cannot_be_compared(imported: Imported, tmp_path: Path) -> None:
    result = compare_runs(
        [draw_job(tmp_path / "job", wait=60).open()], [imported(a=draw_steps(20))]
    )
    assert result.steps is None
    assert result.steps_missing == DIFFERENT_SOURCES


def test_nothing_to_compare(tmp_path: Path) -> None:
    runs = [RunBuilder(tmp_path / name).open() for name in "ab"]
    result = compare_runs(runs[:1], runs[1:])
    assert result.steps_missing is not None
    assert "neither" in result.steps_missing


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = draw_job(tmp_path / "base", wait=60).write()
    candidate = draw_job(tmp_path / "other", wait=10).write()
    root.main(["compare", str(base), str(candidate), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["steps"]["source"] == "watched"
    root.main(["compare", str(base), str(candidate)], standalone_mode=False)
    assert "data wait" in capsys.readouterr().out


def test_a_job_with_traces_and_a_trace_cannot_be_compared(
    imported: Imported, tmp_path: Path
) -> None:
    run = RunBuilder(tmp_path / "job")
    rank = run.rank()
    rank.draw("forward 30 | optimizer 2", 20)
    rank.draw("window ( forward 30 ( op:mm 20 ) | optimizer 2 )")
    result = compare_runs([imported(a=draw_steps(20))], [run.open()])
    assert (result.steps, result.steps_missing) == (None, DIFFERENT_SOURCES)


def test_too_few_steps(tmp_path: Path) -> None:
    runs = []
    for name, forward in (("a", 30), ("b", 60)):
        run = RunBuilder(tmp_path / name)
        run.rank().draw(f"forward {forward} | optimizer 2", 4)
        runs.append(run.open())
    result = compare_runs(runs[:1], runs[1:], conditions=[parse_condition("step_time>+5%")])
    assert "; too few to tell that from noise: at least" in result.headline
    assert result.gate is not None
    assert result.gate.outcome == "not comparable"


def test_a_damaged_run_decides_nothing(tmp_path: Path) -> None:
    base = draw_job(tmp_path / "a", wait=60).open()
    draw_job(tmp_path / "b", wait=60).open()
    segment = max((tmp_path / "b").rglob("spans/**/*.parquet"))
    segment.write_bytes(segment.read_bytes()[:500])
    damaged = Run(open_run(tmp_path / "b"))
    result = compare_runs([base], [damaged], conditions=[parse_condition("wall_time>1s")])
    assert len(result.notes) == 1
    assert segment.name in result.notes[0]
    assert result.gate is not None
    assert result.gate.outcome == "not comparable"
    assert "damaged" in result.gate.explanation


def draw_repeats(path: Path, *forward: float, torch: str = "2.9") -> list[Run]:
    """Draw runs of one program on a machine in another state each time."""
    runs = []
    for number, forward_ms in enumerate(forward):
        run = RunBuilder(path / str(number))
        rank = run.rank(versions={"torch": torch})
        rank.draw(f"forward {forward_ms} | optimizer 8", 30, jitter=0.02)
        runs.append(run.open())
    return runs


def test_the_median_of_several_runs_represents_its_program(tmp_path: Path) -> None:
    base = draw_repeats(tmp_path / "a", 30, 29, 34, 31, 30.5)
    candidates = draw_repeats(tmp_path / "b", 36, 35, 45, 37, 28.5)
    result = compare_runs(base, candidates, conditions=[parse_condition("step_time>+5%")])
    assert (result.base_run.run_id, result.base_run.of_runs) == (base[4].reader.info.run_id, 5)
    assert result.other_run.run_id == candidates[0].reader.info.run_id
    assert result.steps is not None
    mean = result.steps.figures[0]
    assert mean.change_ns == pytest.approx(5.5e6, rel=0.1)
    assert sum(part.change_ns for part in result.steps.parts) == pytest.approx(mean.change_ns)
    assert not mean.beyond_noise  # 36, 35, 45 and 37 exceed all base runs, but 28.5 is below all
    assert result.gate is not None
    assert result.gate.outcome == "passed"
    assert "Hodges" in result.steps.noise
    slower = draw_repeats(tmp_path / "c", 36, 35, 45, 37, 35.5)
    assert compare_runs(base, slower).steps.figures[0].beyond_noise  # type: ignore[union-attr]


def test_two_runs_of_each_do_not_give_the_noise_between_runs(tmp_path: Path) -> None:
    result = compare_runs(
        draw_repeats(tmp_path / "a", 30, 29), draw_repeats(tmp_path / "b", 36, 35)
    )
    assert result.steps is not None
    assert "needs 3 runs of each program" in result.steps.noise


def test_runs_of_different_programs_decide_nothing(tmp_path: Path) -> None:
    base = draw_repeats(tmp_path / "a", 30, 31)
    candidates = [*draw_repeats(tmp_path / "b", 30), *draw_repeats(tmp_path / "c", 31, torch="2.8")]
    result = compare_runs(base, candidates, conditions=[parse_condition("step_time>+5%")])
    assert result.gate is not None
    assert result.gate.outcome == "not comparable"
    assert "differ in software" in result.gate.explanation
