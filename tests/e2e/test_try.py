"""`stepscope try` on real jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from stepscope.analysis import MedianEstimate, estimate_median
from stepscope.schema import TriedChange
from stepscope.store import open_run
from stepscope.trials import find_real_directories
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, STEPSCOPE, TORCHRUN, run_under
from tests.support.waiting import wait_until

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
SCRIPT = E2E / "trials" / "sleeping_dataset.py"
in_detail = pytest.mark.extended(
    "more trials; test_the_measured_change_is_that_of_the_script has one"
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a job in a directory of its own; the run is `run` in it.

    It imports a module that only its own environment finds.
    """
    directory = tmp_path_factory.mktemp("job")
    (directory / "modules").mkdir()
    (directory / "modules" / "module_of_job.py").write_text("")
    script = SCRIPT.read_text().replace("import argparse", "import argparse\nimport module_of_job")
    (directory / "train.py").write_text(script)
    done = run_under(
        directory / "run",
        *(sys.executable, "train.py"),
        options=("--window", "off", "--no-rules", "--quiet"),
        PYTHONPATH="modules",
    )
    assert done.code == 0, done.stderr
    return directory


def try_change(job: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STEPSCOPE, "try", str(job / "run"), *options],
        capture_output=True,
        text=True,
        timeout=3 * JOB_TIMEOUT_S,
    )


def read_files(job: Path) -> dict[str, tuple[bytes, int]]:
    """Read the files of the job and their times of change, those of the run excepted."""
    return {
        str(path.relative_to(job)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(job.rglob("*"))
        if path.is_file() and "run" not in path.relative_to(job).parts[:1]
    }


def list_leftovers() -> list[str]:
    """List temporary directories and processes of trials."""
    processes = []
    for process in psutil.process_iter():
        try:
            if "STEPSCOPE_TRIAL" in process.environ() or "sandbox.py" in " ".join(
                process.cmdline()
            ):
                processes.append(f"{process.pid} {process.cmdline()}")
        except psutil.Error:
            continue
    return [*map(str, SHARED_MEMORY.glob("stepscope-try-*")), *processes]


def await_clean_up() -> None:
    """Wait until nothing of any trial is left: other tests try changes at the same time."""
    wait_until(lambda: not list_leftovers(), timeout_s=JOB_TIMEOUT_S)


def measure_by_hand(directory: Path, pair_count: int) -> MedianEstimate:
    """Edit the job, as its user would, and measure both versions alternately."""
    savings = []
    for _ in range(pair_count):
        seconds = {}
        for workers in (0, 2):
            times = directory / "times.json"
            command = [sys.executable, SCRIPT, "--workers", str(workers), "--times", times]
            subprocess.run(command, check=True, cwd=directory, timeout=JOB_TIMEOUT_S)
            seconds[workers] = json.loads(times.read_text())
        savings.append(1 - seconds[2] / seconds[0])
    return estimate_median(savings)


@pytest.fixture(scope="module")
def outcome(job: Path) -> dict[str, Any]:
    """Outcome of a trial of two workers."""
    if find_real_directories() is None:
        pytest.skip("no namespaces on this machine")
    before = read_files(job)
    done = try_change(job, "--change", "num_workers=2", "--pairs", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert read_files(job) == before
    (outcome,) = json.loads(done.stdout)
    return outcome


def test_the_measured_change_is_that_of_the_script(job: Path, outcome: dict[str, Any]) -> None:
    # Half of 20 ms: the workers sleep at the same time.
    assert 0.25 < outcome["saving_ratio"] < 0.55
    assert outcome["losses"]["max_relative_difference"] == 0
    assert outcome["losses"]["loss_count"] >= 40
    assert outcome["is_isolated"]
    stored = open_run(job / "run").documents("tries", TriedChange)
    assert [round(tried.saving_ratio, 9) for tried in stored.values()] == [
        round(outcome["saving_ratio"], 9)
    ]
    await_clean_up()


@in_detail
@pytest.mark.quiet
def test_the_measured_change_is_that_of_an_edit_by_hand(
    outcome: dict[str, Any], tmp_path: Path
) -> None:
    by_hand = measure_by_hand(tmp_path, 3)
    # Two ranges of three pairs each miss one another in a tenth of the cases (2 · 3! · 3! / 6!)
    # where both measure the same: a hundredth of the step is allowed for.
    assert outcome["min_saving_ratio"] <= by_hand.high + 0.01
    assert by_hand.low <= outcome["max_saving_ratio"] + 0.01


@in_detail
def test_an_interrupted_trial_leaves_nothing(job: Path) -> None:
    before, tries = read_files(job), open_run(job / "run").documents("tries", TriedChange)
    process = subprocess.Popen(
        [*STEPSCOPE, "try", str(job / "run"), "--change", "intra_op_threads=1"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_until(lambda: has_written(process.pid, job, before), timeout_s=60)
        time_of_interrupt = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert time.monotonic() - time_of_interrupt < 30
    await_clean_up()
    assert read_files(job) == before
    assert open_run(job / "run").documents("tries", TriedChange) == tries


@in_detail
def test_a_killed_command_leaves_nothing(job: Path) -> None:
    before = read_files(job)
    process = subprocess.Popen(
        [*STEPSCOPE, "try", str(job / "run"), "--change", "num_workers=2"],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: has_written(process.pid, job, before), timeout_s=60)
    finally:
        process.kill()
        process.wait()
    await_clean_up()
    assert read_files(job) == before


def has_written(pid: int, job: Path, before: dict[str, tuple[bytes, int]]) -> bool:
    """Return True once a training script below a process has written its file.

    The file is read as the script sees it, through the root directory of its process.
    """
    try:
        scripts = [
            child.pid
            for child in psutil.Process(pid).children(recursive=True)
            if "train.py" in child.cmdline()
        ]
        texts = [Path(f"/proc/{p}/root{job}/started").read_bytes() for p in scripts]
    except (OSError, psutil.Error):
        return False
    return any(text not in {b"", before["started"][0]} for text in texts)


@pytest.mark.extended("one more trial")
def test_a_change_without_effect_is_refused(job: Path) -> None:
    done = try_change(job, "--change", "anomaly_detection=off")
    assert done.returncode == 2
    assert "the job did not turn anomaly detection on" in done.stderr
    done = try_change(job, "--change", "num_workers=0")
    assert done.returncode == 2
    assert "has 0 DataLoader workers already" in done.stderr


@in_detail
def test_a_job_that_fails_is_quoted(job: Path) -> None:
    script = job / "train.py"
    text = script.read_text()
    script.write_text("raise SystemExit('no data here')")
    try:
        done = try_change(job, "--change", "num_workers=2")
        assert done.returncode == 2
        assert "was changed after the run" in done.stderr
        assert "status 1: no data here" in done.stderr
        script.unlink()
        done = try_change(job, "--change", "num_workers=2")
        assert "no longer exists" in done.stderr
    finally:
        script.write_text(text)


@in_detail
def test_all_ranks_make_the_change_and_none_is_left(tmp_path: Path) -> None:
    script = str(E2E / "scripts" / "ddp_gloo.py")
    done = run_under(
        tmp_path / "run",
        *(*TORCHRUN, script, "--steps", "60"),
        options=("--window", "off", "--no-rules", "--quiet"),
        OMP_NUM_THREADS="1",
    )
    assert done.code == 0, done.stderr
    tried = try_change(tmp_path, "--change", "optimizer=foreach", "--pairs", "3", "--json")
    assert tried.returncode == 0, tried.stderr
    (outcome,) = json.loads(tried.stdout)
    assert outcome["losses"]["own_relative_difference"] == 0
    assert outcome["losses"]["max_relative_difference"] < 1e-4
    await_clean_up()


@in_detail
def test_a_job_tries_its_first_fix_at_the_end(tmp_path: Path) -> None:
    """The script turns anomaly detection on, which is the only thing to try."""
    text = SCRIPT.read_text().replace(
        "times = []", "times = []\ntorch.autograd.set_detect_anomaly(True)"
    )
    (tmp_path / "train.py").write_text(text)
    done = run_under(
        tmp_path / "run",
        *(sys.executable, "train.py", "--workers", "1"),
        options=("--window", "off", "--no-rules", "--quiet", "--try", "--json"),
    )
    assert done.code == 0, done.stderr
    verdict = json.loads(done.stdout)
    tried = [fix["tried"] for fix in verdict["fixes"] if fix["tried"]]
    assert len(tried) == 1, done.stderr
    assert tried[0]["pair_count"] == 5
