"""Stops of a job are passed on to the other nodes of its run, once, and not to later starts."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest

from stepscope.monitor.config import Handshake, StopSignal
from stepscope.monitor.control import StopRelay
from stepscope.schema import LauncherInfo
from tests.support.shared_runs import SharedJob


class Node:
    """Launcher and monitor of one node."""

    def __init__(self, job: SharedJob, spool: Path, launcher: LauncherInfo) -> None:
        spool.mkdir()
        self.handshake = Handshake(spool)
        self.relay = StopRelay(str(job.path), launcher, self.handshake)

    def stop(self, **cause: str) -> None:
        """Stop the job as its launcher does."""
        self.handshake.write_stop(StopSignal(signal=signal.SIGTERM, **cause))


@pytest.fixture
def job(tmp_path: Path) -> SharedJob:
    return SharedJob(tmp_path / "run")


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (
            {"rule": "Stuck"},
            "--on-stuck stopped the job on node a (signal 15), because it was stuck",
        ),
        (
            {"rule": "IOBottleneck"},
            "the rule IOBottleneck fired on node a and stopped the job (signal 15)",
        ),
        ({"by": "ann"}, "ann stopped the job on node a (signal 15)"),
    ],
)
def test_a_stop_reaches_the_other_nodes_with_its_cause(
    tmp_path: Path, job: SharedJob, cause: dict[str, str], reason: str
) -> None:
    first, second = (Node(job, tmp_path / name, job.add(name)) for name in "ab")
    second.relay.poll()
    assert second.handshake.read_stop_elsewhere() is None
    first.stop(**cause)
    for _ in range(2):
        first.relay.poll()
        second.relay.poll()
    stop = second.handshake.read_stop_elsewhere()
    assert stop is not None
    assert stop.reason == reason
    second.handshake.write_stop(stop)  # its launcher has followed
    second.relay.poll()
    assert first.handshake.read_stop_elsewhere() is None
    assert len(job.run.read_stops()) == 1


def test_a_signal_that_is_no_request_stays_on_its_node(tmp_path: Path, job: SharedJob) -> None:
    first, second = (Node(job, tmp_path / name, job.add(name)) for name in "ab")
    first.stop()
    first.relay.poll()
    second.relay.poll()
    assert second.handshake.read_stop_elsewhere() is None


def test_a_launcher_that_is_started_again_is_not_stopped(tmp_path: Path, job: SharedJob) -> None:
    first = Node(job, tmp_path / "a", job.add("a"))
    first.stop(rule="Stuck")
    first.relay.poll()
    launcher = job.add("b")
    later = Node(job, tmp_path / "b", msgspec.structs.replace(launcher, incarnation=2))
    later.relay.poll()
    assert later.handshake.read_stop_elsewhere() is None
    late = Node(job, tmp_path / "c", job.add("c"))  # of the start that was stopped
    late.relay.poll()
    assert late.handshake.read_stop_elsewhere() is not None


def test_a_run_of_one_launcher_passes_nothing_on(tmp_path: Path, job: SharedJob) -> None:
    handshake = Handshake(tmp_path)
    handshake.write_stop(StopSignal(signal=signal.SIGTERM, rule="Stuck"))
    StopRelay(str(job.path), None, handshake).poll()
    assert job.run.read_stops() == []
