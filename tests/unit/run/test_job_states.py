"""The state of a job from the ends of all its launchers."""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest

from stepscope.run import explain_lost_node, has_ended, job_state, node_state
from stepscope.schema import JobState, JobStatus

RUNNING, COMPLETED, FAILED = JobState.IN_PROGRESS, JobState.COMPLETED, JobState.FAILED
UNKNOWN, STOPPING = JobState.UNKNOWN, JobState.STOPPING


class Launcher(NamedTuple):
    """State of one launcher, and the age of its heartbeat."""

    state: JobState
    age_s: float = 0
    incarnation: int = 1

    def status(self) -> JobStatus:
        """Return its status as of now."""
        heartbeat_ns = time.time_ns() - round(1e9 * self.age_s)
        return JobStatus(
            state=self.state,
            heartbeat_ns=heartbeat_ns,
            started_ns=1,
            incarnation=self.incarnation,
        )


@pytest.mark.parametrize(
    ("launchers", "expected"),
    [
        ([], None),
        ([Launcher(RUNNING), Launcher(COMPLETED)], RUNNING),
        ([Launcher(COMPLETED), Launcher(COMPLETED)], COMPLETED),
        ([Launcher(COMPLETED), Launcher(FAILED)], FAILED),
        # A host that was killed.
        ([Launcher(COMPLETED), Launcher(RUNNING, 60)], UNKNOWN),
        ([Launcher(FAILED), Launcher(RUNNING, 60)], FAILED),
        ([Launcher(RUNNING), Launcher(RUNNING, 60)], RUNNING),
        ([Launcher(STOPPING, 60), Launcher(JobState.STOPPED)], JobState.STOPPED),
        # Of a job that has no other node, a restart of the monitor may still tell.
        ([Launcher(RUNNING, 60)], RUNNING),
        ([Launcher(RUNNING, 60), Launcher(RUNNING, 90)], RUNNING),
        # The latest start counts.
        ([Launcher(FAILED), Launcher(COMPLETED, incarnation=2)], COMPLETED),
        ([Launcher(RUNNING, 60), Launcher(COMPLETED, incarnation=2)], COMPLETED),
        ([Launcher(COMPLETED), Launcher(RUNNING, 60, incarnation=2)], RUNNING),
    ],
)
def test_the_state_of_a_job(launchers: list[Launcher], expected: JobState | None) -> None:
    statuses = [launcher.status() for launcher in launchers]
    assert job_state(statuses) is expected
    assert has_ended(statuses) == (expected is None or expected.is_final)


def test_the_state_of_a_lost_node() -> None:
    lost, ended = Launcher(RUNNING, 3600).status(), Launcher(COMPLETED).status()
    assert node_state(lost, [lost, ended]) is UNKNOWN
    assert explain_lost_node(lost, [lost, ended]) == (
        "its monitor has sent no heartbeat for 1 h: the host, or stepscope on it, was killed or is "
        "cut off"
    )
    assert node_state(ended, [lost, ended]) is COMPLETED
    assert explain_lost_node(ended, [lost, ended]) is None
    # The only node keeps its state; readers say separately that its monitor is silent.
    assert node_state(lost, [lost]) is RUNNING
