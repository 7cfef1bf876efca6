"""Jobs that hang, and jobs whose ranks do not meet in a collective: the process or rank to blame is
named, and its line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.diagnosis import explain_stuck
from stepscope.schema import StuckNode
from tests.support.tiers import extend_all_but
from tests.support.under_stepscope import E2E, TORCHRUN, FinishedJob, run_under

pytestmark = pytest.mark.quiet  # beside other jobs, a rank may not have begun when another waits

JOB = E2E / "stuck" / "faulty_job.py"
PIPELINE = E2E / "stuck" / "pipeline_job.py"
HANGING = E2E / "stuck" / "hanging_job.py"
FAULTY_NUMBER = 26
"""Number of the second collective of the thirteenth step."""
STUCK_AFTER_S = 4
STOP = ("--on-stuck", "stop", "--stop-grace", "1")


def run_faulty(
    tmp_path: Path, fault: str, ranks: int, *options: str, seconds: float = 600, script: Path = JOB
) -> FinishedJob:
    launcher = [
        word.replace("--nproc-per-node=2", f"--nproc-per-node={ranks}") for word in TORCHRUN
    ]
    launcher.append("--monitor-interval=1")  # the ranks that one leaves behind end by themselves
    return run_under(
        tmp_path / "run", *launcher, str(script), fault, str(seconds),
        options=("--window", "off", "--stuck-after", str(STUCK_AFTER_S), *options),
        OMP_NUM_THREADS="1",
    )  # fmt: skip


def stop_when_stuck(
    tmp_path: Path, fault: str, ranks: int, script: Path = JOB
) -> tuple[FinishedJob, dict[str, Any]]:
    job = run_faulty(tmp_path, fault, ranks, *STOP, script=script)
    return job, job.verdict["stuck"]


def line_of(text: str, script: Path = JOB) -> int:
    return 1 + next(n for n, line in enumerate(script.read_text().splitlines()) if text in line)


@pytest.mark.parametrize("ranks", extend_all_but({2}, [2, 3], "another number of ranks"))
@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    extend_all_but(
        [("sleep", "missing", "time.sleep(seconds)  # asleep")],
        [
            ("sleep", "missing", "time.sleep(seconds)  # asleep"),
            ("kind", "differs", "dist.broadcast(second, 0)"),
            ("skip", "differs", ""),
            ("shape", "differs", ""),
            ("dtype", "differs", ""),
            ("kill", "ended first", ""),
        ],
        "another fault",
    ),
)
def test_the_rank_to_blame_is_named(
    tmp_path: Path, fault: str, kind: str, text: str, ranks: int
) -> None:
    job, stuck = stop_when_stuck(tmp_path, fault, ranks)
    assert stuck is not None, job.stderr
    assert (stuck["culprits"], stuck["kind"]) == ([1], kind)
    assert stuck["number"] == FAULTY_NUMBER
    assert stuck["headline"].split(":")[0].split("(")[0] in " ".join(job.stderr.split())
    if text:  # it is stuck, not dead
        (culprit,) = (rank for rank in stuck["ranks"] if rank["rank"] == 1)
        assert culprit["location"] == f"{JOB}:{line_of(text)}"
        assert stuck["duration_ns"] < (STUCK_AFTER_S + 10) * 1e9
        assert "--on-stuck stopped the job (signal 15), because it was stuck" in job.stderr


@pytest.mark.extended("six jobs that wait; test_the_rank_to_blame_is_named has one")
@pytest.mark.parametrize(
    ("fault", "culprits", "headline"),
    [
        ("sleep", [1], " at irecv (4x8 float32) from rank 1, at which rank "),
        ("batched", [1], ": rank 1 has not sent it."),
        ("cross", [0, 1], ": ranks 0 and 1 wait for transfers of each other."),
        (
            "kill",
            [1],
            "The job failed because rank 1 was killed, while ranks 0 and 2 were at irecv",
        ),
    ],
)
def test_a_pipeline_of_sends_and_receives_is_found_stuck(
    tmp_path: Path, fault: str, culprits: list[int], headline: str
) -> None:
    job, stuck = stop_when_stuck(tmp_path, fault, 3, PIPELINE)
    assert stuck is not None, job.stderr
    assert stuck["culprits"] == culprits
    assert headline in stuck["headline"]
    if fault != "kill":
        assert stuck["duration_ns"] < (STUCK_AFTER_S + 10) * 1e9
        assert "--on-stuck stopped the job (signal 15), because it was stuck" in job.stderr
    if fault == "sleep":
        (culprit,) = (rank for rank in stuck["ranks"] if rank["rank"] == 1)
        assert culprit["location"] == f"{PIPELINE}:{line_of('# asleep', PIPELINE)}"


@pytest.mark.extended("the opposite case")
def test_a_healthy_pipeline_is_not_stuck(tmp_path: Path) -> None:
    job = run_faulty(tmp_path, "none", 3, script=PIPELINE)
    assert job.code == 0, job.stderr
    assert job.verdict["stuck"] is None


@pytest.mark.extended("two jobs that wait; the sentence is in tests/unit/diagnosis")
@pytest.mark.parametrize(
    ("fault", "function"), [("checkpoint", "save"), ("checkpoint-by-hand", "save_checkpoint")]
)
def test_a_checkpoint_is_called_a_checkpoint(tmp_path: Path, fault: str, function: str) -> None:
    """Others wait for one that saves: that stops nothing, and the job completes."""
    accounts = tmp_path / "accounts"
    command = f"cat >> {accounts}"
    job = run_faulty(tmp_path, fault, 2, "--on-stuck", command, seconds=12)
    assert job.code == 0, job.stderr
    assert not accounts.exists()
    (document,) = (tmp_path / "run" / "stuck").iterdir()
    content = document.read_bytes()
    account = json.loads(content)
    assert account["resolved_ns"] is not None
    then = msgspec.structs.replace(msgspec.json.decode(content, type=StuckNode), resolved_ns=None)
    explained = explain_stuck({"n": then})
    assert explained is not None
    assert explained.headline.startswith("Not stuck: rank 0 writes a checkpoint, for which the ")
    functions = {
        frame["function"] for rank in account["ranks"] if rank["rank"] == 0
        for frame in rank["frames"]
    }  # fmt: skip
    assert function in functions
    assert job.verdict["stuck"] is None


@pytest.mark.extended("the opposite case")
def test_a_healthy_job_is_not_stuck(tmp_path: Path) -> None:
    job = run_faulty(tmp_path, "none", 2)
    assert job.code == 0, job.stderr
    assert job.verdict["stuck"] is None
    assert not (tmp_path / "run" / "stuck").exists()


@pytest.mark.extended("a job that waits; commands on findings are in test_watch.py")
def test_a_command_gets_the_account(tmp_path: Path) -> None:
    """A job that goes on after some time: the command is run once, while it is stuck."""
    accounts = tmp_path / "accounts"
    command = f"{sys.executable} -c 'import sys; print(sys.stdin.read())' >> {accounts}"
    job = run_faulty(tmp_path, "sleep", 2, "--on-stuck", command, seconds=14)
    assert job.code == 0, job.stderr
    (line,) = accounts.read_text().splitlines()
    alert = json.loads(line)
    assert alert["rule"] == "Stuck"
    assert alert["finding"]["Details"]["culprits"] == [1]
    assert alert["finding"]["Details"]["number"] == FAULTY_NUMBER
    assert "rank 1 has not called it" in alert["text"]


def run_hanging(tmp_path: Path, fault: str) -> FinishedJob:
    return run_under(
        tmp_path / "run", sys.executable, str(HANGING), fault,
        options=(*("--window", "off", "--stuck-after", "3"), *STOP),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "role", "text"),
    extend_all_but(
        [("worker", "dataloader_worker", "# by the same thread")],
        [
            ("worker", "dataloader_worker", "# by the same thread"),
            ("event", "main", "# which nothing sets"),
        ],
        "the training thread itself; its sentences are in tests/unit/diagnosis",
    ),
)
def test_a_job_without_ranks_that_hangs_is_stopped(
    tmp_path: Path, fault: str, role: str, text: str
) -> None:
    job = run_hanging(tmp_path, fault)
    assert "--on-stuck stopped the job (signal 15), because it was stuck" in job.stderr
    stuck = job.verdict["stuck"]
    assert (stuck["kind"], stuck["has_ended"]) == ("hang", True)
    blamed = stuck["processes"][0]
    assert (blamed["role"], blamed["is_blamed"]) == (role, True)
    assert blamed["location"] == f"{HANGING}:{line_of(text, HANGING)}"
    assert stuck["headline"] in " ".join(job.stderr.split())


@pytest.mark.extended("the opposite case; limits are in tests/unit/monitor/test_hang_watch.py")
def test_a_job_that_evaluates_for_long_is_not_stuck(tmp_path: Path) -> None:
    job = run_hanging(tmp_path, "none")
    assert job.code == 0, job.stderr
    assert job.verdict["stuck"] is None
    assert not (tmp_path / "run" / "stuck").exists()
