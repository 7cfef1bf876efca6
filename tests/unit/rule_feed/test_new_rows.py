"""Rows and steps of a growing run reach the rules once, however late they were written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope.rule_feed.feed import RuleFeed
from stepscope.rule_feed.steps import NewRows, StepFinder
from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support.tensor_rows import add_tensors

STEPS = 30


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_written_late_are_returned_once(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    builder = RunBuilder(tmp_path / "run")
    process = builder.rank(0)
    process.draw("forward 12 | backward 20 | optimizer 8", 20)
    run = builder.write()
    rows = [
        {"tensor": name, "log": log, "step": step, "seq": step}
        for name, log in (("a", "7r"), ("b", "8r"))
        for step in range(STEPS)
    ]
    # The end of the time that is evaluated moves on; a row is written up to ten steps later, but
    # not before the previous one of its log.
    delays = random.integers(0, 10, (2, STEPS))
    written = np.maximum.accumulate(np.arange(STEPS) + delays, axis=1).ravel().tolist()
    new_rows = NewRows()
    returned: list[tuple[str, int]] = []
    for now in range(4, STEPS + 12, 4):
        batch = [row for row, at in zip(rows, written, strict=True) if now - 4 <= at < now]
        if batch:
            add_tensors(run, process.info.process, batch)
        final = now >= STEPS + 8
        period = Run(open_run(run)).between(EPOCH_NS, EPOCH_NS + now * 10**9)
        for series in new_rows.tensors(period, final=final):
            assert final or series.t_ns.max() < EPOCH_NS + now * 10**9
            returned += [(series.name, step) for step in series.step.tolist()]
    assert sorted(returned) == sorted((row["tensor"], row["step"]) for row in rows)
    assert new_rows.tensors(Run(open_run(run)), final=True) == []


def test_a_matrix_is_returned_once_and_as_it_was_recorded(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    process = builder.rank(3)
    process.draw("forward 12 | backward 20 | optimizer 8", 20)
    run = builder.write()
    counts = {"cat": {"cat": 5.0, "dog": 1.0}, "dog": {"cat": 0.0, "dog": None}}
    number = iter(range(1000))
    rows = [
        {
            "tensor": name,
            "collection": collection,
            "step": step,
            "seq": next(number),
            "row_name": row,
            "column_name": column,
            "value": value,
        }
        for step in range(6)
        for name, collection in (("confusion/record", "predictions"), ("importance", "features"))
        for row, values in counts.items()
        for column, value in values.items()
    ]
    new_rows = NewRows()
    returned = []
    for first, now in ((0, 2), (2, 4), (4, 8)):
        batch = [row for row in rows if first <= row["step"] < now]
        add_tensors(run, process.info.process, batch, table="tensor_values")
        period = Run(open_run(run)).between(EPOCH_NS, EPOCH_NS + now * 10**9)
        matrices = new_rows.values(period, "predictions", final=now > 4)
        if now == 8:  # a collection that is read for the first time has all of its rows
            assert len(new_rows.values(period, "features", final=True)) == 6
        returned += matrices
    assert [matrix.step for matrix in returned] == list(range(6))
    for matrix in returned:
        assert (matrix.name, matrix.rank, matrix.mode) == ("confusion/record", 3, "TRAIN")
        assert matrix.t_ns == EPOCH_NS + matrix.step * 10**9
        assert (matrix.rows, matrix.columns) == (("cat", "dog"), ("cat", "dog"))
        assert np.array_equal(matrix.values, [[5, 1], [0, np.nan]], equal_nan=True)
        assert matrix.column("cat").tolist() == [5, 0]
    assert new_rows.values(Run(open_run(run)), "predictions", final=True) == []


STEP_MS = 80
SECOND_NS = 1_000_000_000


def draw(path: Path, *, is_recorded_until: int) -> Path:
    builder = RunBuilder(path).metric("outside_cpu_cores", 0)
    rank = builder.rank(0, world_size=2)
    for step in range(500):  # 40 s
        rank.draw("wait 10 | forward 20 | backward 40 | optimizer 10")
        if step < is_recorded_until:
            rank.collective(10 + 15)
    return builder.status(JobState.IN_PROGRESS).write()


@pytest.fixture
def feed(tmp_path: Path) -> Callable[[int], RuleFeed]:
    def make(count: int) -> RuleFeed:
        path = draw(tmp_path / str(count), is_recorded_until=count)
        return RuleFeed(open_run(path), scan_ns=SECOND_NS)

    return make


def test_steps_wait_for_their_collectives(feed: Callable[[int], RuleFeed]) -> None:
    (inputs,) = feed(400).ranges(final=False)
    (steps,), (settled,) = inputs.steps, inputs.settled_steps
    assert len(steps) > 450
    assert settled.number.tolist() == list(range(399)), "the last call is of step 399"
    assert settled.exchange_ns is not None
    assert set(settled.exchange_ns) == {15e6}


def test_steps_do_not_wait_forever(feed: Callable[[int], RuleFeed]) -> None:
    (inputs,) = feed(100).ranges(final=False)
    (settled,) = inputs.settled_steps
    assert 99 < len(settled) < len(inputs.steps[0]) - 200
    assert np.isnan(settled.exchange_ns[99:]).all()
    assert not np.isnan(settled.exchange_ns[:99]).any()


def test_the_end_of_a_job_settles_all_steps(feed: Callable[[int], RuleFeed]) -> None:
    ranges = feed(400)
    (growing,) = ranges.ranges(final=False)
    first = growing.settled_steps
    rest = [steps for inputs in ranges.ranges(final=True) for steps in inputs.settled_steps]
    numbers = np.concatenate([steps.number for steps in (*first, *rest)])
    assert numbers.tolist() == list(range(500))


def test_steps_that_no_rule_reads_are_not_kept(tmp_path: Path) -> None:
    reader = open_run(draw(tmp_path / "run", is_recorded_until=500))
    finder = StepFinder(reader)
    for second in range(1, 41):
        end_ns = EPOCH_NS + second * SECOND_NS
        finder.find(finder.read(reader.processes(), end_ns, final=False))
    settled = finder.unsettled.settle(end_ns, final=True)
    ends_ns = np.concatenate([steps.end_ns for steps in settled])
    # Until the range before the last one, steps wait for 20 seconds.
    assert end_ns - 22 * SECOND_NS < ends_ns.min() < end_ns - 18 * SECOND_NS
