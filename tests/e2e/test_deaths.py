"""Jobs that end badly: what ended them is said first, with its place and step."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.tiers import extend_all_but
from tests.support.under_stepscope import E2E, STEPSCOPE, TORCHRUN, FinishedJob, run_under

JOB = E2E / "deaths" / "dying_job.py"
RANK = E2E / "deaths" / "dying_rank.py"
STEPS = "after 30 steps"
OPTIONS = ("--no-rules", "--window", "off")


def line_of(mark: str, script: Path = JOB) -> str:
    lines = script.read_text().splitlines()
    number = 1 + next(n for n, line in enumerate(lines) if line.endswith(f"# {mark}"))
    return f"{script.name}:{number} in "


def run_dying(tmp_path: Path, kind: str, *options: str) -> FinishedJob:
    run = tmp_path / "run"
    return run_under(run, sys.executable, str(JOB), kind, options=(*OPTIONS, *options))


ENDS = {
    "6": ("Signal 6 (SIGABRT) ended the job", "signal", "crash"),
    "9": ("Signal 9 (SIGKILL) ended the job", "", "outside_signal"),
    "11": ("Signal 11 (SIGSEGV) ended the job", "signal", "crash"),
    "15": ("Signal 15 (SIGTERM) ended the job", "", "outside_signal"),
    "native": ("Signal 11 (SIGSEGV) ended the job", "native", "crash"),
    "exit": ("The job exited with status 1", "", "exit_status"),
    "raise": ("RuntimeError ended the job", "raised", "exception"),
    "worker": ("ValueError in DataLoader worker 0 ended the job", "in a worker", "exception"),
    "oom": ("OutOfMemoryError ended the job", "oom", "device_memory"),
    "disk": ("ended the job", "disk", "disk_full"),
}
PRINTED = {"exit": ["giving up"], "worker": ["Traceback (most recent call last):"]}


@pytest.mark.parametrize("kind", extend_all_but({"native", "worker"}, ENDS, "another end"))
def test_the_end_of_a_job_is_said_first_with_its_place_and_step(tmp_path: Path, kind: str) -> None:
    start, mark, cause = ENDS[kind]
    job = run_dying(tmp_path, kind)
    death = job.verdict["death"]
    headline = death["headline"]
    assert (start in headline, death["cause"], death["step_count"]) == (True, cause, 30), headline
    assert STEPS in headline
    assert f"{line_of(mark)}" in headline if mark else JOB.name in death["location"]
    expected = -int(kind) if kind.isdigit() else -signal.SIGSEGV if kind == "native" else 1
    assert job.code == expected
    printed = PRINTED.get(kind, ["20%", "step 30"])
    assert death["output"][: len(printed)] == printed
    assert "\n".join(printed) in job.stderr.replace("\r", "\n")
    text = " ".join(job.stderr.split())
    assert text.index(" ".join(headline.split())) < text.index("Job, ")
    assert "abcdefghijkl" not in run_command(tmp_path, "show", "run", "overview").stdout
    for surface in (["diagnose", "run"], ["show", "run", "overview"], ["watch", "run"]):
        assert start in " ".join(run_command(tmp_path, *surface).stdout.split())


@pytest.mark.extended("the verdict of a job without steps is in tests/unit/diagnosis")
def test_a_job_that_exits_before_its_first_step(tmp_path: Path) -> None:
    headline = run_dying(tmp_path, "early").verdict["death"]["headline"]
    # On a busy machine its stack was sampled. Nothing shows yet that it was to train.
    assert re.match(r"The job exited with status 1[.;]", headline)


@pytest.mark.parametrize("end", extend_all_but({"raise"}, ["raise", "9"], "another end"))
def test_the_rank_that_ended_first_is_named(tmp_path: Path, end: str) -> None:
    job = run_under(tmp_path / "run", *TORCHRUN, str(RANK), end, options=OPTIONS)
    death = job.verdict["death"]
    assert death["rank"] == 1, death
    if end == "raise":
        start = f"ValueError on rank 1 ended the job {STEPS}, at "
        assert death["headline"].startswith(start)
        assert line_of("rank", RANK) in death["headline"]
    else:
        start = "Signal 9 (SIGKILL) ended rank 1, and the job with it,"
        assert death["headline"].startswith(start)


@pytest.mark.extended("needs a mount of its own")
def test_workers_that_find_shared_memory_full(tmp_path: Path) -> None:
    unshare = [shutil.which("unshare") or "unshare", "-rm"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine has no user namespaces")
    command = [*STEPSCOPE, "run", "--out", str(tmp_path / "run"), "--spool", str(tmp_path)]
    job = shlex.join([*command, *OPTIONS, "--", sys.executable, str(JOB), "shm"])
    mount = "mount -t tmpfs -o size=16m none /dev/shm"
    subprocess.run([*unshare, "sh", "-c", f"{mount} && exec {job}"], capture_output=True)
    death = FinishedJob(tmp_path / "run", 1, "", "").verdict["death"]
    assert death["cause"] == "shared_memory"
    assert "in DataLoader worker" in death["headline"]
    assert any(line.startswith("Shared memory (/dev/shm) has 16 MiB") for line in death["evidence"])
    assert any("--shm-size" in line for line in death["advice"])


def run_to_file(tmp_path: Path, *options: str) -> FinishedJob:
    """Run the job whose exit follows a message, with its error output in a file."""
    run, log = tmp_path / "run", tmp_path / "log"
    command = [*STEPSCOPE, "run", "--out", str(run), *OPTIONS, *options, "--"]
    with log.open("wb") as file:
        file.write(b"of an earlier job\n")
        file.flush()
        done = subprocess.run([*command, sys.executable, str(JOB), "exit"], stderr=file)
    return FinishedJob(run, done.returncode, "", log.read_text())


def test_error_output_in_a_file_is_kept_with_the_run(tmp_path: Path) -> None:
    job = run_to_file(tmp_path)
    assert job.code == 1
    assert job.stderr.startswith("of an earlier job\ngiving up\n")
    death = job.verdict["death"]
    assert death["output"] == ["giving up"]
    assert "giving up" in run_command(tmp_path, "diagnose", "run").stdout


@pytest.mark.extended("another job; what is kept is in tests/unit/monitor")
def test_error_output_is_not_kept_on_request(tmp_path: Path) -> None:
    death = run_to_file(tmp_path, "--no-output").verdict["death"]
    assert death["output"] == []
    assert "--no-output" in death["output_missing"]
