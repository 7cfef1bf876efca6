"""The lease of a run that several nodes write: taken once, kept by heartbeats, taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.monitor.registration import LeaseKeeper
from stepscope.schema import JobState
from stepscope.store import HEARTBEAT_TIMEOUT_S
from tests.support.shared_runs import SharedJob, SteppedTime


@pytest.fixture
def job(tmp_path: Path) -> SharedJob:
    return SharedJob(tmp_path / "run")


def keepers(job: SharedJob, clock: SteppedTime) -> tuple[LeaseKeeper, LeaseKeeper]:
    return LeaseKeeper(str(job.path), "a", clock), LeaseKeeper(str(job.path), "b", clock)


def test_the_first_takes_it_and_keeps_it_with_heartbeats(job: SharedJob) -> None:
    clock = SteppedTime()
    first, second = keepers(job, clock)
    assert first.poll()
    for _ in range(5):
        job.beat("a")
        assert not second.poll()
        clock.now_s += HEARTBEAT_TIMEOUT_S - 1
        assert first.poll()
    lease = job.run.read_lease()
    assert lease is not None
    assert (lease.number, lease.node) == (1, "a")


@pytest.mark.parametrize("age_s", [0, 365 * 86400, -365 * 86400])
def test_it_is_taken_over_a_minute_after_the_last_heartbeat(job: SharedJob, age_s: float) -> None:
    """Whatever the clock of the holder says."""
    clock = SteppedTime()
    first, second = keepers(job, clock)
    assert first.poll()
    job.beat("a", age_s=age_s)
    assert not second.poll()
    clock.now_s += HEARTBEAT_TIMEOUT_S - 0.001
    assert not second.poll()
    clock.now_s += 0.001
    assert second.poll()
    lease = job.run.read_lease()
    assert lease is not None
    assert (lease.number, lease.node) == (2, "b")
    assert not first.poll()  # a holder that was only suspended has lost it


def test_of_two_that_take_it_over_one_has_it(job: SharedJob) -> None:
    clock = SteppedTime()
    dead = LeaseKeeper(str(job.path), "dead", clock)
    assert dead.poll()
    first, second = keepers(job, clock)
    assert [first.poll(), second.poll()] == [False, False]
    clock.now_s += HEARTBEAT_TIMEOUT_S
    assert [first.poll(), second.poll()] == [True, False]


def test_it_moves_when_the_job_has_ended_on_its_node_only(job: SharedJob) -> None:
    clock = SteppedTime()
    first, second = keepers(job, clock)
    assert first.poll()
    job.beat("a", JobState.COMPLETED)
    assert not second.poll()
    clock.now_s += HEARTBEAT_TIMEOUT_S
    assert second.poll()


@pytest.mark.parametrize(
    ("age_s", "note"),
    [
        (0, None),
        (20, None),  # a heartbeat that was seen late
        (365 * 86400, "the clock of a is 365 d behind that of b"),
        (-3600, "the clock of a is 1 h ahead of that of b"),
    ],
)
def test_clocks_that_differ_are_named(job: SharedJob, age_s: float, note: str | None) -> None:
    first, second = keepers(job, SteppedTime())
    assert first.poll()
    job.beat("a", age_s=age_s)
    second.poll()
    assert second.note is None  # the heartbeat may be of a holder that was killed long ago
    job.beat("a", age_s=age_s)
    second.poll()
    expected = None if note is None else f"{note}: times of the two nodes cannot be compared"
    assert second.note == expected
    job.beat("a")  # its clock was set
    second.poll()
    assert second.note is None
