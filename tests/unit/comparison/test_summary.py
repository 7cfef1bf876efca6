"""Summaries of runs, and their comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.cli import root
from stepscope.comparison import (
    compare_runs,
    compare_summaries,
    describe_metric,
    parse_condition,
    read_summary,
    summarise_run,
)
from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.testing import RunBuilder

DATA_WAIT = "data_wait>+3ms"


def draw_job(path: Path, *, wait: float, workers: int = 1, seed: int = 0) -> RunBuilder:
    run = RunBuilder(path)
    rank = run.rank(workers=workers, versions={"torch": "2.9"})
    rank.draw(f"wait=0 {wait} | forward 12 | backward 20 | optimizer 8", 90 + seed, jitter=0.1)
    run.metric("cpu_busy_ratio", 0.5)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    root_directory = tmp_path_factory.mktemp("summaries")
    base = draw_job(root_directory / "base", wait=60).open()
    return base, draw_job(root_directory / "other", wait=10, workers=4, seed=7).open()


def test_a_summary_is_flat_and_read_back(runs: tuple[Run, Run], tmp_path: Path) -> None:
    run = runs[0]
    summary = summarise_run(run)
    (tmp_path / "s.json").write_bytes(summary.encode())
    flat = json.loads((tmp_path / "s.json").read_text())
    assert {type(value) for value in flat.values()} <= {str, int, float}
    assert read_summary(tmp_path / "s.json") == summary
    steps = run.ranks[0].steps
    assert flat["step/mean_ns"] == pytest.approx(steps.wall_ns[steps.measured()].mean())
    assert flat["verdict/suspect"] == "data_pipeline"
    assert flat["job/steps_count"] == len(steps)
    assert flat["job/cpu_busy_ratio"] == pytest.approx(0.5)
    parts = [f"step/{name}_ns" for name in steps.phase_ns]
    assert sum(flat.get(name, 0) for name in parts) == pytest.approx(flat["step/mean_ns"])


def test_every_number_is_described(runs: tuple[Run, Run]) -> None:
    descriptions = {name: describe_metric(name) for name in summarise_run(runs[0]).metrics}
    assert len(descriptions) > 40
    for name, text in descriptions.items():
        assert text[0].isupper(), name
        assert "  " not in text, name


@pytest.mark.parametrize(
    "condition", ["step_time>+5%", "step_time>-50%", DATA_WAIT, "cpu_busy<60%", "gpu_busy<60%"]
)
def test_summaries_are_compared_like_runs(runs: tuple[Run, Run], condition: str) -> None:
    conditions = [parse_condition(condition)]
    expected = compare_runs([runs[0]], [runs[1]], conditions=conditions)
    result = compare_summaries(*map(summarise_run, runs), conditions=conditions)
    assert result.steps is not None
    assert expected.steps is not None
    pairs = zip(
        [*result.steps.figures, *result.steps.parts],
        [*expected.steps.figures, *expected.steps.parts],
        strict=True,
    )
    for change, reference in pairs:
        assert (change.name, change.beyond_noise) == (reference.name, reference.beyond_noise)
        assert change.base_ns == pytest.approx(reference.base_ns)
        assert change.other_ns == pytest.approx(reference.other_ns)
        assert change.noise_ns == pytest.approx(reference.noise_ns)
        # The resampled interval is that of the normal distribution within a tenth of the change.
        slack = 0.1 * abs(reference.change_ns) + 1e6
        assert change.low_ns == pytest.approx(reference.low_ns, abs=slack)
    assert result.contract == expected.contract
    assert result.figures == expected.figures
    assert result.gate is not None
    assert expected.gate is not None
    assert result.gate.outcome == expected.gate.outcome
    assert result.headline.split(";")[0] == expected.headline.split(";")[0]


def test_the_command_takes_a_file_in_place_of_a_run(
    runs: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (str(run.reader.directory) for run in runs)
    file = str(tmp_path / "base.json")
    root.main(["export", before, "--to", "summary", "-o", file], standalone_mode=False)
    assert "numbers" in capsys.readouterr().out
    arguments = ["compare", file, after, "--fail-if", DATA_WAIT]
    assert root.main(arguments, standalone_mode=False) == 0
    assert "x faster: 102 → 51 ms; data wait" in capsys.readouterr().out
    assert root.main(["compare", after, file, *arguments[3:]], standalone_mode=False) == 3


def test_a_summary_is_compared_with_one_run(runs: tuple[Run, Run], tmp_path: Path) -> None:
    (tmp_path / "base.json").write_bytes(summarise_run(runs[0]).encode())
    for name in "ab":
        draw_job(tmp_path / "runs" / name, wait=60).write()
    arguments = ["compare", str(tmp_path / "base.json"), str(tmp_path / "runs")]
    with pytest.raises(UsageError, match="runs, and a summary is compared with one; pass one run"):
        root.main(arguments, standalone_mode=False)


def test_of_a_run_without_steps_the_job_is_compared(runs: tuple[Run, Run], tmp_path: Path) -> None:
    empty = summarise_run(RunBuilder(tmp_path / "empty").open())
    result = compare_summaries(summarise_run(runs[0]), empty)
    assert result.steps is None
    assert result.steps_missing == "the summary of drawn has no steps"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda flat: flat | {"stepscope_summary": 2}, "is a summary of version 2"),
        (lambda flat: {k: v for k, v in flat.items() if k != "verdict/cause"}, "no verdict/cause"),
        (lambda flat: flat | {"x": [1]}, "is a damaged summary"),
        (lambda flat: flat | {"verdict/suspect": 1}, "no verdict/suspect"),
        (lambda flat: flat | {"verdict/share_ratio": "x"}, "no verdict/share_ratio"),
        (lambda flat: flat | {"step/mean_ns": 10**400}, "is a damaged summary"),
    ],
)
def test_other_files_are_refused_in_one_sentence(
    runs: tuple[Run, Run], tmp_path: Path, change: object, reason: str
) -> None:
    flat = json.loads(summarise_run(runs[0]).encode())
    (tmp_path / "s.json").write_bytes(json.dumps(change(flat)).encode())  # type: ignore[operator]
    with pytest.raises(UsageError, match=reason):
        root.main(["compare", str(tmp_path / "s.json"), "x"], standalone_mode=False)
