"""`step-series` against the durations that were drawn, group by group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.steps.step_series import show_step_series
from stepscope.views.steps.steps import show_steps
from tests.support.ui_runs import two_ranks

MS = 1_000_000
COUNT, SLOW = 100, (60, 61)
"""Steps of rank 1, of which two wait longer."""


def drawn(path: Path) -> RunBuilder:
    builder = RunBuilder(path)
    builder.rank(0).draw("wait 10 | forward 10 | optimizer 10", COUNT)
    slow = builder.rank(1)
    for step in range(COUNT):
        wait = 10 + step % 4 + {SLOW[0]: 300, SLOW[1]: 400}.get(step, 0)
        slow.draw(f"wait {wait} | forward 20 | optimizer 10", 1)
    return builder


def short(path: Path) -> RunBuilder:
    builder = RunBuilder(path)
    builder.rank(0).draw("forward 10", 1)
    return builder


@pytest.fixture
def run(drawn_once: Callable[..., Run]) -> Run:
    return drawn_once(drawn)


def waits(first: int, end: int) -> list[int]:
    return [(10 + step % 4 + {60: 300, 61: 400}.get(step, 0)) * MS for step in range(first, end)]


@pytest.mark.parametrize("pixels", [2000, 60, 2])
def test_groups_are_means_of_their_steps(run: Run, pixels: int) -> None:
    series = show_step_series(run, ViewOptions(rank=1, pixels=pixels))
    size = series.group_step_count
    assert size == -(-COUNT // (pixels // 2))
    first = list(range(0, COUNT, size))
    assert series.steps == [*first, COUNT]
    groups = [waits(i, min(COUNT, i + size)) for i in first]
    phases = {phase.name: phase.mean_ns for phase in series.phases}
    assert list(phases) == ["data_wait", "forward", "optimizer"]
    assert phases["data_wait"] == pytest.approx([np.mean(group) for group in groups])
    assert phases["forward"] == pytest.approx([20 * MS] * len(first))
    durations = np.array(waits(0, COUNT)) + 30 * MS
    window = min(COUNT, max(25, 3 * size))
    for group, median in zip(first, series.median_ns, strict=True):
        middle = group + min(size, COUNT - group) // 2
        start = min(max(0, middle - window // 2), COUNT - window)
        assert median == np.median(durations[start : start + window])
    assert series.outlier_count == 2
    shown = SLOW if size == 1 else SLOW[1:]
    assert [outlier.step for outlier in series.outliers] == list(shown)
    assert {outlier.phase for outlier in series.outliers} == {"data_wait"}
    assert series.outliers[-1].duration_ns == durations[61]
    assert series.outliers[-1].excess_ns == waits(61, 62)[0] - np.median(waits(10, COUNT))


def test_figures_equal_those_of_the_steps(run: Run) -> None:
    for number, rank in enumerate(show_steps(run).ranks):
        series = show_step_series(run, ViewOptions(rank=number))
        assert series.rank is not None
        assert (series.rank.name, series.step_count) == (rank.rank, rank.step_count)
        assert rank.step_ns is not None
        assert series.outlier_count == rank.step_ns.outlier_count
        assert series.outlier_threshold_ns == rank.step_ns.outlier_threshold
        assert sum(series.counts) == rank.measured_count - series.outlier_count
    assert [(rank.rank, rank.name) for rank in series.ranks] == [(0, "rank 0"), (1, "rank 1")]


def test_a_range_has_its_own_groups(run: Run) -> None:
    complete = show_step_series(run, ViewOptions(rank=1))
    start = complete.start_after_ns[50]
    part = VIEWS["step-series"](run, ViewOptions(rank=1, from_ns=start, pixels=20))
    assert (part.steps[0], part.steps[-1], part.group_step_count) == (50, COUNT, 5)
    assert part.start_after_ns[0] == start
    assert part.range is not None


def test_steps_of_traces_are_those_that_the_traces_name(tmp_path: Path) -> None:
    run = Run(open_run(two_ranks(tmp_path / "run", tmp_path / "files")))
    for number, trace in enumerate(show_steps(run).traces):
        for options in (ViewOptions(rank=number), ViewOptions(trace=trace.trace)):
            series = show_step_series(run, options)
            assert series.rank == series.ranks[number]
            assert [str(step) for step in series.steps[:-1]] == [row.step for row in trace.steps]
            totals = np.sum([phase.mean_ns for phase in series.phases], axis=0)
            assert totals.tolist() == [row.wall_ns for row in trace.steps]
            means = {phase.name: np.mean(phase.mean_ns) for phase in series.phases}
            for category in trace.categories:
                assert means.get(category.category, 0) == pytest.approx(category.mean_ns or 0)


def test_without_steps(drawn_once: Callable[..., Run], run: Run) -> None:
    empty = drawn_once(short)
    series = show_step_series(empty)
    assert (series.steps, series.rank) == ([], None)
    assert series.missing is not None
    with pytest.raises(UsageError):
        show_step_series(run, ViewOptions(rank=7))
