"""Collectives of real jobs, as PyTorch's flight recorder numbers them."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from stepscope.store import open_run
from tests.support.under_stepscope import E2E, TORCHRUN, FinishedJob, run_under

pytestmark = pytest.mark.extended("eight jobs; test_stuck_jobs.py shows what the recorder is for")

JOB = E2E / "stuck" / "recorded_collectives.py"
OPTIONS = ("--window", "off", "--no-rules")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


def run_case(tmp_path: Path, case: str, **environment: str) -> FinishedJob:
    return run_under(
        tmp_path / "run", sys.executable, str(JOB), case, options=OPTIONS,
        RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
        **environment,
    )  # fmt: skip


def numbers_of(job: FinishedJob) -> list[int]:
    """Return the numbers of the recorded all-reduces, in the order of the recorder."""
    rows = open_run(job.run).table(
        "collective_calls", condition="kind = 'all_reduce'", order_by="seq"
    )
    assert (rows["rank"] == 0).all()
    return list(rows["number"].tolist())


def test_a_dump_without_the_interpreter_lock_is_that_of_pytorch(tmp_path: Path) -> None:
    job = run_case(tmp_path, "read_directly")
    assert job.code == 0, job.stderr
    assert job.stdout.split("\n")[0] == "False True (50, 50)"
    assert numbers_of(job) == list(range(1, 51))


def test_a_fork_stops_the_reader_until_the_next_collective(tmp_path: Path) -> None:
    job = run_case(tmp_path, "fork")
    assert job.code == 0, job.stderr
    assert job.stdout.split("\n")[0] == "0 True True"
    assert numbers_of(job) == list(range(1, 11))


def test_groups_that_are_destroyed_keep_their_collectives(tmp_path: Path) -> None:
    job = run_case(tmp_path, "destroy")
    assert job.code == 0, job.stderr
    rows = open_run(job.run).table("collective_calls", order_by="seq")
    assert rows["kind"].tolist()[:3] == ["all_reduce"] * 3
    assert "broadcast" in rows["kind"].tolist()
    assert rows["seq"].tolist() == list(range(len(rows["seq"])))


def test_threads_that_start_the_reader_at_once_start_one(tmp_path: Path) -> None:
    job = run_case(tmp_path, "race")
    assert job.code == 0, job.stderr
    assert job.stdout.split("\n")[0] == "{1}"


def test_a_process_that_has_left_its_groups_waits_for_nobody(tmp_path: Path) -> None:
    job = run_case(tmp_path, "leave")
    assert job.code == 0, job.stderr
    assert job.stdout.split("\n")[0] == "(3, 2) (3, 3)"


def test_calls_that_were_overwritten_are_counted(tmp_path: Path) -> None:
    job = run_case(tmp_path, "flood", TORCH_FR_BUFFER_SIZE="50")
    assert job.code == 0, job.stderr
    count = len(numbers_of(job))
    arrivals = job.payload("show", "distributed")["arrivals"]
    assert 0 < count < 4000
    assert arrivals["skipped_count"] == 4000 - count
    assert "PyTorch has overwritten them before they were read" in arrivals["notes"][0]


def test_the_last_collectives_of_a_job_that_fails_are_recorded(tmp_path: Path) -> None:
    job = run_case(tmp_path, "fail")
    assert job.code == 1
    assert numbers_of(job) == list(range(1, 8))


def test_a_recorder_that_is_off_is_named(tmp_path: Path) -> None:
    job = run_case(tmp_path, "fork", TORCH_FR_BUFFER_SIZE="0")
    missing = job.payload("show", "distributed")["arrivals"]["missing"]
    assert "has no recorder of collectives, or it is off" in missing


@pytest.mark.parametrize("late_s", [0.01])
def test_a_late_rank_of_ddp_is_late_by_its_delay(tmp_path: Path, late_s: float) -> None:
    script = E2E / "stuck" / "late_rank.py"
    job = run_under(
        tmp_path / "run", *TORCHRUN, str(script), "40", str(late_s),
        options=OPTIONS, OMP_NUM_THREADS="1",
    )  # fmt: skip
    assert job.code == 0, job.stderr
    ranks = job.payload("show", "distributed")["arrivals"]["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert ranks[0]["call_count"] == ranks[1]["call_count"] == ranks[1]["matched_count"]
    assert ranks[0]["call_count"] >= 40  # all-reduces that only C++ code calls
    assert ranks[1]["median_ns"] >= 0.9 * 1e9 * late_s
    assert ranks[1]["last_ratio"] > 0.8 > 0.5 > ranks[0]["last_ratio"]
    rows = open_run(job.run).table("collective_calls", condition="rank = 1", order_by="seq")
    assert np.all(np.diff(rows["t_ns"]) >= 0)
