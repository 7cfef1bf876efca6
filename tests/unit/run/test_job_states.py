"""The state of a job from the ends of all its launchers."""

from __future__ import annotations

import time

import pytest

from stepscope.run import explain_lost_node, has_ended, job_state, node_state
from stepscope.schema import JobState, JobStatus

RUNNING, COMPLETED, FAILED = JobState.IN_PROGRESS, JobState.COMPLETED, JobState.FAILED
UNKNOWN, STOPPING = JobState.UNKNOWN, JobState.STOPPING


def status(state: JobState, age_s: float = 0, incarnation: int = 1) -> JobStatus:
    heartbeat_ns = time.time_ns() - round(1e9 * age_s)
    return JobStatus(state=state, heartbeat_ns=heartbeat_ns, started_ns=1, incarnation=incarnation)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], None),
        ([status(RUNNING), status(COMPLETED)], RUNNING),
        ([status(COMPLETED), status(COMPLETED)], COMPLETED),
        ([status(COMPLETED), status(FAILED)], FAILED),
        # A host that was killed.
        ([status(COMPLETED), status(RUNNING, 60)], UNKNOWN),
        ([status(FAILED), status(RUNNING, 60)], FAILED),
        ([status(RUNNING), status(RUNNING, 60)], RUNNING),
        ([status(STOPPING, 60), status(JobState.STOPPED)], JobState.STOPPED),
        # Of a job that has no other node, a restart of the monitor may still tell.
        ([status(RUNNING, 60)], RUNNING),
        ([status(RUNNING, 60), status(RUNNING, 90)], RUNNING),
        # The latest start counts.
        ([status(FAILED), status(COMPLETED, incarnation=2)], COMPLETED),
        ([status(RUNNING, 60), status(COMPLETED, incarnation=2)], COMPLETED),
        ([status(COMPLETED), status(RUNNING, 60, incarnation=2)], RUNNING),
    ],
)
def test_the_state_of_a_job(statuses: list[JobStatus], expected: JobState | None) -> None:
    assert job_state(statuses) is expected
    assert has_ended(statuses) == (expected is None or expected.is_final)


def test_the_state_of_a_lost_node() -> None:
    lost, ended = status(RUNNING, 3600), status(COMPLETED)
    assert node_state(lost, [lost, ended]) is UNKNOWN
    assert explain_lost_node(lost, [lost, ended]) == (
        "its monitor has sent no heartbeat for 1 h: the host, or stepscope on it, was killed or is "
        "cut off"
    )
    assert node_state(ended, [lost, ended]) is COMPLETED
    assert explain_lost_node(ended, [lost, ended]) is None
    # The only node keeps its state; readers say separately that its monitor is silent.
    assert node_state(lost, [lost]) is RUNNING
