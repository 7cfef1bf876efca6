"""Steps of a growing run whose collectives are written later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope.rule_feed.feed import RuleFeed
from stepscope.rule_feed.steps import StepFinder
from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS

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
    assert settled.exchange_ns is not None
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
