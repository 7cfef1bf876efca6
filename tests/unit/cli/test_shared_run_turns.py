"""Turns of the launchers of a job: who writes the verdict, who begins an incarnation."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from stepscope.cli.job.job_run import (
    LOST_AFTER_S,
    OTHERS_TIMEOUT_S,
    POLL_S,
    SILENT_AFTER_S,
    await_turn,
    describe_registration,
    find_identity,
)
from stepscope.cli.job.places import RunDirectory, make_run
from stepscope.errors import RunExistsError
from stepscope.job_environment import JobIdentity
from stepscope.monitor import check_join, register_launcher
from stepscope.monitor.registration import CONFIRM_S
from stepscope.schema import Incarnation, JobState, JobStatus
from stepscope.store import HEARTBEAT_TIMEOUT_S, SharedRun
from tests.support.buckets import TestBucket
from tests.support.shared_runs import SharedJob, SteppedTime, describe_launcher, describe_run
from tests.support.store_outages import outages

SLURM = JobIdentity("slurm", "1.0", True)


@pytest.fixture
def job(tmp_path: Path) -> SharedJob:
    job = SharedJob(tmp_path / "run")
    job.add("a")
    job.add("b")
    return job


def wait_turn(job: SharedJob, node: str, clock: SteppedTime) -> bool:
    return await_turn(job.path, node, clock=clock, sleep=clock.sleep)


def test_the_holder_waits_for_the_others(job: SharedJob) -> None:
    clock = SteppedTime()
    job.run.take_lease(1, "a")
    job.beat("b")

    def end_after_five_seconds() -> None:
        job.beat("b", JobState.COMPLETED if clock.slept_s > 5 else JobState.IN_PROGRESS)

    clock.on_sleep = end_after_five_seconds
    assert wait_turn(job, "a", clock)
    assert clock.slept_s == pytest.approx(5, abs=2 * POLL_S)


def test_the_holder_does_not_wait_for_a_node_that_continues(
    job: SharedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SteppedTime()
    job.run.take_lease(1, "a")
    clock.on_sleep = lambda: job.beat("b")
    assert wait_turn(job, "a", clock)
    assert clock.slept_s == pytest.approx(OTHERS_TIMEOUT_S, abs=2 * POLL_S)
    message = capsys.readouterr().err
    assert "Waiting for the last records of node b." in message
    assert "The job still runs on node b: the verdict is of the records so far" in message


@pytest.mark.parametrize(
    ("age_s", "wait_s"), [(0, LOST_AFTER_S), (60, SILENT_AFTER_S), (-1e7, LOST_AFTER_S)]
)
def test_the_holder_waits_a_moment_for_a_lost_node(
    job: SharedJob, age_s: float, wait_s: float
) -> None:
    clock = SteppedTime()
    job.run.take_lease(1, "a")
    job.beat("b", age_s=age_s)
    assert wait_turn(job, "a", clock)
    assert clock.slept_s == pytest.approx(wait_s, abs=2 * POLL_S)


def test_the_others_leave_when_the_holder_lives_or_has_ended(job: SharedJob) -> None:
    clock = SteppedTime()
    job.run.take_lease(1, "a")
    job.beat("a", age_s=1e7)  # its clock may say anything

    def beat_after_two_seconds() -> None:
        if clock.slept_s > 2:
            job.beat("a", age_s=1e7)

    clock.on_sleep = beat_after_two_seconds
    assert not wait_turn(job, "b", clock)
    assert clock.slept_s == pytest.approx(2, abs=3 * POLL_S)
    job.beat("a", JobState.FAILED)
    assert not wait_turn(job, "b", clock)


def test_the_verdict_is_written_although_its_holder_was_killed(
    job: SharedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SteppedTime()
    job.run.take_lease(1, "a")
    job.beat("a")
    assert wait_turn(job, "b", clock)
    lease = job.run.read_lease()
    assert (lease.number, lease.node) == (2, "b")
    # The time in which it waits for the node to come back counts for both purposes.
    assert clock.slept_s == pytest.approx(HEARTBEAT_TIMEOUT_S, abs=2 * POLL_S)
    message = capsys.readouterr().err
    assert "Waiting for a heartbeat of node a, which writes the verdict; after 60 s" in message


def test_who_may_join(tmp_path: Path) -> None:
    job = SharedJob(tmp_path / "run")
    check_join(job.path, SLURM)
    nightly = SharedJob(tmp_path / "named", job="nightly")
    identity = find_identity("nightly", ["true"])
    nightly.add("a")
    nightly.beat("a", JobState.FAILED)
    check_join(nightly.path, identity)  # it is started again
    nightly.beat("a", JobState.COMPLETED)
    with pytest.raises(RunExistsError, match="of the job nightly, which has completed"):
        check_join(nightly.path, identity)
    # A scheduler gives no name twice: a task that is late has the same one.
    job.add("a")
    job.beat("a", JobState.COMPLETED)
    check_join(job.path, SLURM)


def test_ranks_of_an_unnamed_job_are_told_of_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPICH does not name its jobs."""
    job = SharedJob(tmp_path / "run", job=None)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(RunExistsError, match=r"already holds a run. Use a new directory\.$"):
        check_join(job.path, None)
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(RunExistsError, match="or name the job of its ranks with --job"):
        check_join(job.path, None)


@pytest.mark.parametrize(
    ("state", "slot", "incarnation"),
    [
        (JobState.FAILED, "here", 2),  # started again
        (JobState.COMPLETED, "here", 2),
        (JobState.IN_PROGRESS, "here", 1),  # another launcher on this machine
        (JobState.FAILED, "elsewhere", 2),  # the whole job is started again, on other machines
        (JobState.COMPLETED, "elsewhere", 1),  # a task that is late
        (JobState.IN_PROGRESS, "elsewhere", 1),
    ],
)
def test_the_incarnation_of_a_new_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: JobState, slot: str, incarnation: int
) -> None:
    monkeypatch.setenv("STEPSCOPE_NODE", "here")
    monkeypatch.delenv("RANK", raising=False)
    job = SharedJob(tmp_path / "run")
    job.add(slot)
    job.beat(slot, state)
    registration = register_launcher(job.path)
    assert registration.launcher.incarnation == incarnation
    assert registration.node == ("here~2" if slot == "here" else "here")


@pytest.mark.parametrize(("runs", "incarnation"), [(True, 1), (False, 2)])
def test_a_node_whose_clock_is_a_year_behind_is_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool, incarnation: int
) -> None:
    year_s = 365 * 86400
    monkeypatch.setenv("STEPSCOPE_NODE", "here")
    job, clock = SharedJob(tmp_path / "run"), SteppedTime()
    job.add("elsewhere")
    job.beat("elsewhere", age_s=year_s)
    if runs:
        clock.on_sleep = lambda: job.beat("elsewhere", age_s=year_s)
    registration = register_launcher(job.path, sleep=clock.sleep)
    assert registration.launcher.incarnation == incarnation
    assert clock.slept_s <= CONFIRM_S + POLL_S


def test_launchers_that_are_started_again_share_an_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SharedJob(tmp_path / "run")
    for node in "ab":
        job.add(node)
        job.beat(node, JobState.FAILED, incarnation=3)
    job.run.open_incarnation(Incarnation(number=3, world_size=2, started_ns=1, node="a"))
    for node in "ab":
        monkeypatch.setenv("STEPSCOPE_NODE", node)
        assert register_launcher(job.path).launcher.incarnation == 4


def test_what_a_launcher_says_about_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_NODE", "gpu01")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("stepscope.spool.machine_id", lambda: "here")
    job = SharedJob(tmp_path / "run")
    job.add("gpu01", slot="gpu01 rank 0")
    job.beat("gpu01")
    registration = register_launcher(job.path)
    directory = RunDirectory(job.path, is_joined=True)
    joined, samples = describe_registration(directory, "slurm 1.0", registration, "s3://b/run")
    assert joined == "Joined the run s3://b/run of the job slurm 1.0 as node gpu01~2."
    assert samples == (
        "gpu01 has 2 launchers of this job, each of which samples the machine. Start one per "
        "machine, for example of torchrun, to save that."
    )
    twin = describe_registration(directory, "slurm 1.0", register_launcher(job.path), job.path)[1]
    assert twin.startswith("Another launcher of this job runs as gpu01 rank 1 (process ")


def test_launchers_that_start_at_the_same_time(tmp_path: Path) -> None:
    info = describe_run(SLURM.text)

    def start(_: int) -> tuple[RunDirectory, list[str]]:
        directory = make_run(str(tmp_path / "run"), info, [], spool=None, identity=SLURM)
        registration = register_launcher(directory.path)
        return directory, describe_registration(directory, SLURM.text, registration, directory.path)

    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(start, range(8)))
    assert [directory.is_joined for directory, _ in started].count(False) == 1
    sentences = [sentence for _, described in started for sentence in described]
    assert sum(sentence.startswith("Joined the run") for sentence in sentences) == 7
    # Only the first of eight with the same name may find no other one.
    assert sum(s.startswith("Another launcher of this job runs as") for s in sentences) >= 7


def test_a_store_that_lists_late(bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    location, clock = bucket.url("runs/a"), SteppedTime()
    store = SharedRun(location)
    with outages(bucket.server.endpoint) as relay:
        monkeypatch.setenv("AWS_ENDPOINT_URL", relay.endpoint)
        late = SharedRun(location)
        relay.late_listings = {}
        assert late.read_lease() is None
        assert late.list_launchers() == []
        assert store.register("host", describe_launcher).node == "host"
        assert store.take_lease(1, "host")
        # Nothing is listed, and still no name and no lease is given away twice.
        assert late.list_launchers() == []
        assert late.register("host", describe_launcher).node == "host~2"
        assert not late.take_lease(1, "host~2")
        clock.on_sleep = lambda: setattr(relay, "late_listings", None)
        status = JobStatus(state=JobState.COMPLETED, heartbeat_ns=time.time_ns(), started_ns=1)
        bucket.put("runs/a/nodes/host/status.json", msgspec.json.encode(status))
        assert not await_turn(location, "host~2", clock=clock, sleep=clock.sleep)
        assert clock.slept_s == POLL_S
