"""Two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.cli import root
from stepscope.comparison.compare import comparison
from stepscope.comparison.conditions import parse_condition
from stepscope.comparison.programs import NOT_ALIKE
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.drawn_trace import event, kernel, launch, step

Imported = Callable[..., Run]
MS = 1_000_000
US = 1_000


def job(path: Path, *, wait: float, workers: int = 1, seed: int = 0) -> RunBuilder:
    run = RunBuilder(path)
    rank = run.rank(workers=workers, versions={"torch": "2.9"})
    rank.draw(f"wait=0 {wait} | forward 12 | backward 20 | optimizer 8", 90 + seed, jitter=0.1)
    run.metric("cpu_busy_ratio", 0.5)
    return run


def test_what_became_faster(tmp_path: Path) -> None:
    base = job(tmp_path / "base", wait=60).open()
    other = job(tmp_path / "other", wait=10, workers=4, seed=7).open()
    found = comparison([base], [other])
    assert found.steps is not None
    mean = found.steps.figures[0]
    assert mean.beyond_noise
    assert mean.base_ns == pytest.approx(base.ranks[0].steps.wall_ns[9:].mean())
    parts = {part.name: part for part in found.steps.parts}
    assert sum(part.change_ns for part in parts.values()) == pytest.approx(mean.change_ns)
    assert parts["data_wait"].change_ns == pytest.approx(-50 * MS, rel=0.1)
    assert not parts["forward"].beyond_noise
    assert "shorter; the largest part: data wait" in found.headline
    settings = {(each.group, each.name): (each.base, each.other) for each in found.settings}
    assert settings["data loader", "num_workers"] == ("1", "4")
    assert ("versions", "torch") not in settings
    figures = {each.name: each for each in found.figures}
    assert figures["steps"].other == 97
    assert figures["CPU busy"].change_ratio == pytest.approx(0)
    assert found.base.suspect == "data_pipeline"
    assert found.names_missing is not None


def test_the_same_run_is_noise(tmp_path: Path) -> None:
    signals = job(tmp_path / "run", wait=60).open()
    found = comparison([signals], [signals])
    assert found.steps is not None
    assert not any(each.beyond_noise for each in (*found.steps.figures, *found.steps.parts))
    assert found.settings == []
    assert "not change by more than noise" in found.headline


def recorded(gemm: int, *extra: str) -> list[dict[str, object]]:
    """Ten steps of 100 us; each launches a gemm and perhaps more."""
    events = [event("cpu_op", "aten::add", -10, 5)]
    for number in range(10):
        at = 100 * number
        events += [step(number, at, 100), event("cpu_op", "aten::mm", at + 5, 30)]
        events += [launch(10 * number + 1, at + 10), kernel("gemm", at + 20, gemm, 10 * number + 1)]
        for place, name in enumerate(extra, 2):
            events += [
                launch(10 * number + place, at + 10 + place),
                kernel(name, at + 60 + place, 4, 10 * number + place),
            ]
    return events


def test_recordings(imported: Imported, tmp_path: Path) -> None:
    imported(a=recorded(20, "relu"))
    (tmp_path / "run").rename(tmp_path / "base")
    other = imported(a=recorded(30))
    found = comparison([Run(open_run(tmp_path / "base"))], [other])
    assert found.steps is not None
    assert found.steps.source == "recorded"
    parts = {part.name: part for part in found.steps.parts}
    assert parts["kernel"].change_ns == pytest.approx((30 - 24) * US)
    assert sum(part.change_ns for part in parts.values()) == pytest.approx(
        found.steps.figures[0].change_ns, abs=1e-3
    )
    assert found.kernels is not None
    assert [(row.name, row.status, row.change_ns) for row in found.kernels.rows] == [
        ("gemm", "slower", pytest.approx(10 * US)),
        ("relu", "removed", pytest.approx(-4 * US)),
    ]
    assert found.kernels.change_ns == pytest.approx(6 * US)
    assert found.kernels.rows[0].base_calls == 1
    assert found.operators is not None
    # What is called before the first step counts for none.
    assert [row.name for row in found.operators.rows] == ["aten::mm"]


def test_a_job_and_a_recording_cannot_be_compared(imported: Imported, tmp_path: Path) -> None:
    found = comparison([job(tmp_path / "job", wait=60).open()], [imported(a=recorded(20))])
    assert found.steps is None
    assert found.steps_missing == NOT_ALIKE


def test_nothing_to_compare(tmp_path: Path) -> None:
    runs = [RunBuilder(tmp_path / name).open() for name in "ab"]
    found = comparison(runs[:1], runs[1:])
    assert found.steps_missing is not None
    assert "neither" in found.steps_missing


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = job(tmp_path / "base", wait=60).write()
    other = job(tmp_path / "other", wait=10).write()
    root.main(["compare", str(base), str(other), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["steps"]["source"] == "watched"
    root.main(["compare", str(base), str(other)], standalone_mode=False)
    assert "data wait" in capsys.readouterr().out


def test_nor_where_the_job_has_recordings_as_well(imported: Imported, tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "job")
    rank = run.rank()
    rank.draw("forward 30 | optimizer 2", 20)
    rank.draw("window ( forward 30 ( op:mm 20 ) | optimizer 2 )")
    found = comparison([imported(a=recorded(20))], [run.open()])
    assert (found.steps, found.steps_missing) == (None, NOT_ALIKE)


def test_too_few_steps_are_said_to_be(tmp_path: Path) -> None:
    runs = []
    for name, forward in (("a", 30), ("b", 60)):
        run = RunBuilder(tmp_path / name)
        run.rank().draw(f"forward {forward} | optimizer 2", 4)
        runs.append(run.open())
    found = comparison(runs[:1], runs[1:], conditions=[parse_condition("step_time>+5%")])
    assert found.headline.startswith("There are too few steps to tell")
    assert found.gate is not None
    assert found.gate.outcome == "not comparable"


def test_a_damaged_record_is_said_to_be_and_decides_nothing(tmp_path: Path) -> None:
    base, other = job(tmp_path / "a", wait=60).open(), job(tmp_path / "b", wait=60)
    other.open()
    segment = max((tmp_path / "b").rglob("spans/**/*.parquet"))
    segment.write_bytes(segment.read_bytes()[:500])
    damaged = Run(open_run(tmp_path / "b"))
    found = comparison([base], [damaged], conditions=[parse_condition("wall_time>1s")])
    assert len(found.notes) == 1
    assert segment.name in found.notes[0]
    assert found.gate is not None
    assert found.gate.outcome == "not comparable"
    assert "damaged" in found.gate.said


def repeats(path: Path, *forward: float, torch: str = "2.9") -> list[Run]:
    """Runs of one program on a machine that is in another state each time."""
    found = []
    for number, each in enumerate(forward):
        run = RunBuilder(path / str(number))
        rank = run.rank(versions={"torch": torch})
        rank.draw(f"forward {each} | optimizer 8", 30, jitter=0.02)
        found.append(run.open())
    return found


def test_of_several_runs_the_median_one_stands_for_its_program(tmp_path: Path) -> None:
    base = repeats(tmp_path / "a", 30, 29, 34, 31, 30.5)
    other = repeats(tmp_path / "b", 36, 35, 45, 37, 28.5)
    found = comparison(base, other, conditions=[parse_condition("step_time>+5%")])
    assert (found.base.run_id, found.base.of_runs) == (base[4].reader.info.run_id, 5)
    assert found.other.run_id == other[0].reader.info.run_id
    assert found.steps is not None
    mean = found.steps.figures[0]
    assert mean.change_ns == pytest.approx(5.5e6, rel=0.1)
    assert sum(part.change_ns for part in found.steps.parts) == pytest.approx(mean.change_ns)
    assert not mean.beyond_noise  # 36, 35, 45 and 37 are above all, but 28.5 is below all
    assert found.gate is not None
    assert found.gate.outcome == "passed"
    assert "Hodges" in found.steps.noise
    slower = repeats(tmp_path / "c", 36, 35, 45, 37, 35.5)
    assert comparison(base, slower).steps.figures[0].beyond_noise  # type: ignore[union-attr]


def test_two_runs_of_each_do_not_tell_how_runs_differ(tmp_path: Path) -> None:
    found = comparison(repeats(tmp_path / "a", 30, 29), repeats(tmp_path / "b", 36, 35))
    assert found.steps is not None
    assert "3 of each are needed" in found.steps.noise


def test_runs_that_are_not_of_one_program_decide_nothing(tmp_path: Path) -> None:
    base = repeats(tmp_path / "a", 30, 31)
    other = [*repeats(tmp_path / "b", 30), *repeats(tmp_path / "c", 31, torch="2.8")]
    found = comparison(base, other, conditions=[parse_condition("step_time>+5%")])
    assert found.gate is not None
    assert found.gate.outcome == "not comparable"
    assert "differ in software" in found.gate.said
