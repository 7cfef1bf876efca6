"""Jobs whose ranks do not meet in a collective: the rank to blame is named, and its line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.under_stepscope import E2E, TORCHRUN, FinishedJob, run_under

JOB = E2E / "stuck" / "faulty_job.py"
FAULTY_NUMBER = 26
"""Number of the second collective of the thirteenth step."""
STUCK_AFTER_S = 4


def run_faulty(
    tmp_path: Path, fault: str, ranks: int, *options: str, seconds: float = 600
) -> FinishedJob:
    launcher = [
        word.replace("--nproc-per-node=2", f"--nproc-per-node={ranks}") for word in TORCHRUN
    ]
    return run_under(
        tmp_path / "run", *launcher, str(JOB), fault, str(seconds),
        options=("--window", "off", "--stuck-after", str(STUCK_AFTER_S), *options),
        OMP_NUM_THREADS="1",
    )  # fmt: skip


def stop_when_stuck(tmp_path: Path, fault: str, ranks: int) -> tuple[FinishedJob, dict[str, Any]]:
    job = run_faulty(tmp_path, fault, ranks, "--on-stuck", "stop", "--stop-grace", "1")
    return job, job.verdict["stuck"]


def line_of(text: str) -> int:
    return 1 + next(n for n, line in enumerate(JOB.read_text().splitlines()) if text in line)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("sleep", "missing", "time.sleep(seconds)  # asleep"),
        ("kind", "differs", "dist.broadcast(second, 0)"),
        ("skip", "differs", ""),
        ("shape", "differs", ""),
        ("dtype", "differs", ""),
        ("kill", "ended first", ""),
    ],
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
        assert "the rule Stuck fired and stopped the job" in job.stderr


def test_a_checkpoint_is_called_a_checkpoint(tmp_path: Path) -> None:
    """Others wait for one that saves: that stops nothing, and the job completes."""
    accounts = tmp_path / "accounts"
    command = f"cat >> {accounts}"
    job = run_faulty(tmp_path, "checkpoint", 2, "--on-stuck", command, seconds=12)
    assert job.code == 0, job.stderr
    assert not accounts.exists()
    (document,) = (tmp_path / "run" / "stuck").iterdir()
    account = json.loads(document.read_text())
    assert account["resolved_ns"] is not None
    functions = {
        frame["function"] for rank in account["ranks"] if rank["rank"] == 0
        for frame in rank["frames"]
    }  # fmt: skip
    assert "save" in functions
    assert job.verdict["stuck"] is None


def test_a_healthy_job_is_not_stuck(tmp_path: Path) -> None:
    job = run_faulty(tmp_path, "none", 2)
    assert job.code == 0, job.stderr
    assert job.verdict["stuck"] is None
    assert not (tmp_path / "run" / "stuck").exists()


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
