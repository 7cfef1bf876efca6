"""Detailed windows of whole jobs: scheduled, asked for, by themselves, through every mishap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.under_stepscope import HERE, LIMIT_S, STEPSCOPE, run_under

pytestmark = pytest.mark.e2e

PACED = str(HERE / "windows" / "paced.py")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


class Running:
    """A paced job under `stepscope run`, which ends when it is told."""

    def __init__(self, place: Path, options: tuple[str, ...], arguments: tuple[str, ...]) -> None:
        self.run = place / "run"
        self.stop = place / "stop"
        self.slower = place / "slower"
        with (place / "errors").open("wb") as errors:
            self.launcher = subprocess.Popen(
                [
                    *(*STEPSCOPE, "run", "--quiet", "--out", str(self.run), *options, "--"),
                    *(*arguments, "--until", str(self.stop), "--slower", str(self.slower)),
                ],
                stderr=errors,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def facts(self) -> list[dict[str, Any]]:
        """What the processes said of their windows so far."""
        if not (self.run / "run.json").exists():
            return []
        return [
            fact
            for process in open_run(self.run).processes()
            for fact in process.facts
            if fact["fact"] == "window"
        ]

    def capture(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`stepscope capture RUN …`, once the job has begun to work."""
        wait_for(lambda: open_run(self.run).has("spans"))
        limit = ("--timeout", str(LIMIT_S * 0.8))  # so that it says itself what it waits for
        return subprocess.run(
            [*STEPSCOPE, "capture", str(self.run), *arguments, *limit],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    def monitor(self) -> int:
        """Pid of its monitor."""
        (status,) = open_run(self.run).statuses().values()
        assert status.monitor_pid is not None
        return status.monitor_pid

    def end(self) -> int:
        """Have it end; the exit status of `stepscope run`."""
        self.stop.touch()
        return self.launcher.wait(LIMIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start such a job; it does not outlive the test."""
    started: list[Running] = []

    def start_job(
        *options: str,
        command: tuple[str, ...] = (sys.executable,),
        arguments: tuple[str, ...] = (),
    ) -> Running:
        job = Running(tmp_path, options, (*command, PACED, *arguments))
        started.append(job)
        wait_for(lambda: (job.run / "nodes").exists() and open_run(job.run).statuses())
        return job

    yield start_job
    for job in started:
        job.stop.touch()  # ranks have sessions of their own
        if job.launcher.poll() is None:
            os.killpg(job.launcher.pid, signal.SIGKILL)
            job.launcher.wait()


def wait_for(condition: Callable[[], object], limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold in time"
        time.sleep(0.05)


def stored(run: Path) -> dict[tuple[str, int], str]:
    """Process and number of each window in the run's tables, with the trace's name."""
    rows = open_run(run).table("traces", columns=["process", "window", "name"])
    return dict(zip(zip(rows["process"], rows["window"], strict=True), rows["name"], strict=True))


def test_all_ranks_record_the_same_scheduled_steps(start: Callable[..., Running]) -> None:
    job = start(
        *("--window", "asked", "--start-step", "900", "--num-steps", "5", "--every", "300"),
        command=TORCHRUN,
    )
    wait_for(lambda: len(job.facts()) >= 4)
    assert job.end() == 0
    found = sorted((f["number"], f["first_step"], f["step_count"]) for f in job.facts())
    assert found[:4] == [(0, 900, 5), (0, 900, 5), (1, 1200, 5), (1, 1200, 5)]
    assert len(stored(job.run)) == len(job.facts())
    assert not list(job.run.rglob("*.json.tmp"))


def test_a_window_of_a_running_job_on_all_ranks(start: Callable[..., Running]) -> None:
    job = start("--window", "asked", command=TORCHRUN)
    done = job.capture("--steps", "5", "--shapes", "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["nodes"].values()
    assert [window["state"] for window in answer["windows"]] == ["stored", "stored"]
    assert {window["rank"] for window in answer["windows"]} == {0, 1}
    wait_for(lambda: len(job.facts()) == 2)
    first, second = job.facts()
    assert (first["first_step"], first["step_count"]) == (answer["first_step"], 5)
    assert (second["first_step"], second["step_count"]) == (answer["first_step"], 5)
    assert job.end() == 0
    late = job.capture("--steps", "5")
    assert late.returncode == 2
    assert "is over" in late.stderr


def test_a_loop_without_optimizer_is_captured_by_time(start: Callable[..., Running]) -> None:
    job = start("--window", "asked", arguments=("--no-optimizer",))
    by_time = job.capture("--seconds", "0.2")
    assert by_time.returncode == 0, by_time.stderr
    by_steps = job.capture("--steps", "5")
    assert by_steps.returncode == 2
    assert "--seconds" in by_steps.stderr
    assert job.end() == 0
    assert len(stored(job.run)) == 1


def test_no_window_where_they_are_off(start: Callable[..., Running]) -> None:
    job = start("--window", "off")
    refused = job.capture("--steps", "5")
    assert refused.returncode == 2
    assert "--window off" in refused.stderr
    assert job.end() == 0


def test_a_job_without_torch_is_told_apart(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    code = f"import os,time\nwhile not os.path.exists({str(stop)!r}): time.sleep(.05)"
    run = tmp_path / "run"
    with subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--out", str(run), "--", sys.executable, "-c", code],
        stderr=subprocess.DEVNULL,
    ) as job:
        wait_for(lambda: (run / "nodes").exists() and open_run(run).statuses())
        done = subprocess.run(
            [*STEPSCOPE, "capture", str(run), "--steps", "5"], capture_output=True, text=True
        )
        stop.touch()
        assert job.wait(LIMIT_S) == 0
    assert done.returncode == 2
    assert "no process of the job has started to train with PyTorch" in done.stderr


def test_a_job_that_becomes_slower_is_looked_at(start: Callable[..., Running]) -> None:
    job = start()
    wait_for(lambda: any(f["reason"] == "automatic" for f in job.facts()))
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 16)  # the usual pace has to be known
    job.slower.touch()
    wait_for(lambda: any(f["reason"] == "slower" for f in job.facts()))
    assert job.end() == 0
    assert len(stored(job.run)) == len(job.facts()) == 2


@pytest.mark.parametrize("when", ["planned", "recorded"])
def test_kill_9_of_the_monitor_around_a_window(start: Callable[..., Running], when: str) -> None:
    job = start("--window", "asked", "--start-step", "500", "--num-steps", "20")
    spool = Path(next(iter(open_run(job.run).nodes().values())).spool)
    trace = "p-*/plan-0.json" if when == "planned" else "p-*/window-0_*.json*"
    wait_for(lambda: list(spool.glob(trace)))
    os.kill(job.monitor(), signal.SIGKILL)
    wait_for(lambda: job.facts() and stored(job.run))
    assert job.end() == 0
    (fact,) = job.facts()
    assert fact["step_count"] == 20
    assert len(stored(job.run)) == 1
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED


def test_recover_brings_in_a_window_once(start: Callable[..., Running]) -> None:
    job = start("--window", "asked", "--start-step", "300", "--num-steps", "60")
    spool = Path(next(iter(open_run(job.run).nodes().values())).spool)
    wait_for(lambda: list(spool.glob("p-*/window-0_*.json*")))  # it has begun
    os.killpg(job.launcher.pid, signal.SIGSTOP)
    os.kill(job.monitor(), signal.SIGKILL)
    os.kill(job.launcher.pid, signal.SIGKILL)
    os.killpg(job.launcher.pid, signal.SIGCONT)
    wait_for(lambda: list(spool.glob("p-*/window-0_*.json")))
    job.stop.touch()
    processes = [int(path.name.split("-")[1]) for path in spool.glob("p-*/")]
    wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in processes))
    for _ in range(2):
        subprocess.run([*STEPSCOPE, "recover", str(job.run)], check=True, capture_output=True)
    assert len(stored(job.run)) == 1
    assert not spool.exists()


def test_keep_raw_keeps_the_files(tmp_path: Path) -> None:
    job = run_under(
        tmp_path / "run",
        *(sys.executable, PACED, "--steps", "900"),
        options=("--window", "asked", "--start-step", "500", "--num-steps", "3", "--keep-raw"),
        strict=False,
    )
    assert job.code == 0, job.stderr
    (raw,) = (job.run / "raw").iterdir()
    assert json.loads(raw.read_text())["traceEvents"]
    assert len(stored(job.run)) == 1


def test_windows_change_no_bit(tmp_path: Path) -> None:
    hashes = []
    for name, options in {
        "bare": ("--window", "off"),
        "watched": ("--start-step", "400", "--num-steps", "10", "--shapes", "--stacks"),
    }.items():
        out = tmp_path / f"{name}.txt"
        job = run_under(
            tmp_path / name,
            *(sys.executable, PACED, "--steps", "900", "--out", str(out)),
            options=options,
            strict=False,
        )
        assert job.code == 0, job.stderr
        hashes.append(out.read_text())
    assert hashes[0] == hashes[1]
    assert len(stored(tmp_path / "watched")) == 2


def test_a_job_that_ends_before_its_window_says_so(start: Callable[..., Running]) -> None:
    job = start("--window", "asked", "--start-step", "90000000", "--num-steps", "4")
    wait_for(lambda: (job.run / "run.json").exists() and open_run(job.run).has("spans"))
    assert job.end() == 0
    (status,) = open_run(job.run).statuses().values()
    (note,) = status.notes
    assert note.startswith("the window scheduled for step 90000000 was not recorded: the job ended")


def test_an_overlapping_window_is_left_out_and_said_so(start: Callable[..., Running]) -> None:
    refused = subprocess.run(
        [
            *(*STEPSCOPE, "run", "--start-step", "5", "--num-steps", "20", "--every", "10"),
            *("--", "true"),
        ],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2
    assert "overlap" in refused.stderr
    job = start("--window", "asked", "--start-step", "300", "--num-steps", "40", "--every", "45")
    wait_for(lambda: len(job.facts()) >= 2)
    assert job.end() == 0
    (status,) = open_run(job.run).statuses().values()
    assert any("was skipped" in note for note in status.notes)
