"""The verdict and the views of a run whose records were rounded to limit its size."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.comparison import compare_runs
from stepscope.cost import report_cost
from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from tests.support.segmented_runs import segment_tables

STEPS = "wait 60 | forward 12 | backward 20 | optimizer 8"
FETCH = "fetch ( samples ( do:decode 118 ) | collate 2 )"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A run before and after its tables were rounded as far as possible."""
    path = tmp_path_factory.mktemp("rounded") / "run"
    builder = RunBuilder(path, code={"decode": "fetch > Rows.__getitem__ > decode"})
    rank = builder.rank(workers=2)
    rank.draw(STEPS, 400, jitter=0.1)
    for worker in rank.workers:
        worker.draw(FETCH, 300, jitter=0.1)
    builder.metric("outside_cpu_cores", lambda seconds: seconds % 3)
    builder.write()
    info = path / "run.json"
    options = {**msgspec.json.decode(info.read_bytes()), "options": {"max_run_size_bytes": 2**22}}
    info.write_bytes(msgspec.json.encode(options))
    segment_tables(path, ("spans", "metrics"))
    exact = Path(shutil.copytree(path, path.with_name("exact")))
    with RunWriter(path, "n0") as writer:
        writer.limit_size(0)
    return Run(open_run(exact)), Run(open_run(path))


def figures(value: Any) -> dict[str, float]:
    """Return the numbers of a payload by their path."""
    numbers: dict[str, float] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                visit(inner, f"{path}.{name}")
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                visit(inner, f"{path}.{number}")
        elif isinstance(value, int | float):
            numbers[path] = value

    visit(msgspec.to_builtins(value), "")
    return numbers


def test_steps_and_phases_are_equal(runs: tuple[Run, Run]) -> None:
    before, after = (run.ranks[0].steps for run in runs)
    assert len(before) == len(after) == 400
    assert before.wall_ns.sum() == after.wall_ns.sum()
    assert before.fetches.tolist() == after.fetches.tolist()
    for phase, times in before.phase_ns.items():
        assert times.sum() == after.phase_ns[phase].sum()


def test_the_verdict_is_equal(runs: tuple[Run, Run]) -> None:
    before, after = map(diagnose, runs)
    assert before.headline == after.headline
    assert figures(after) == pytest.approx(figures(before), rel=1e-3)
    assert before.notes == []


@pytest.mark.parametrize("view", ["steps", "system", "timeline"])
def test_verdict_and_views_name_the_rounded_time(runs: tuple[Run, Run], view: str) -> None:
    exact, rounded = runs
    sentence = VIEWS[view](rounded, ViewOptions()).rounding
    assert sentence.startswith("Spans and samples of the first 40.")
    assert "to keep the run within 4 MiB (--max-run-size)" in sentence
    assert diagnose(rounded).notes == [sentence]
    assert VIEWS[view](exact, ViewOptions()).rounding is None


def test_cost_and_comparison_name_the_rounded_time(runs: tuple[Run, Run]) -> None:
    exact, rounded = runs
    (sentence,) = diagnose(rounded).notes
    assert report_cost(rounded).rounding == sentence
    assert report_cost(exact).rounding is None
    assert compare_runs([exact], [rounded]).notes == [f"{rounded.reader.info.run_id}: {sentence}"]
    assert compare_runs([exact], [exact]).notes == []


def test_a_range_after_the_rounded_time_is_exact(runs: tuple[Run, Run]) -> None:
    _, rounded = runs
    later = ViewOptions(from_ns=3600 * 10**9, to_ns=3601 * 10**9)
    assert VIEWS["system"](rounded, later).rounding is None
