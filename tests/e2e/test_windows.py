"""Detailed windows of real jobs: scheduled, requested and automatic ones, and their failures."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from stepscope.schema import JobState, WindowFact
from stepscope.store import WindowRequest, WindowRequests, open_run
from tests.support import waiting
from tests.support.under_stepscope import JOB_TIMEOUT_S, STEPSCOPE, TORCHRUN, run_under
from tests.support.windowed_jobs import PACED, WindowedJob, starting, stored

wait_until = functools.partial(waiting.wait_until, timeout_s=90.0)
in_detail = pytest.mark.extended("another job; test_a_window_of_a_running_job_on_all_ranks has one")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WindowedJob]]:
    """Start jobs, which are killed after the test."""
    with starting(tmp_path) as start_job:
        yield start_job


@in_detail
def test_all_ranks_record_the_same_scheduled_steps(start: Callable[..., WindowedJob]) -> None:
    job = start(
        *("--window", "asked", "--start-step", "900", "--num-steps", "5", "--every", "300"),
        command=TORCHRUN,
    )
    wait_until(lambda: len(job.facts()) >= 4)
    assert job.end() == 0
    windows = sorted((f["number"], f["first_step"], f["step_count"]) for f in job.facts())
    assert windows[:4] == [(0, 900, 5), (0, 900, 5), (1, 1200, 5), (1, 1200, 5)]
    assert len(stored(job.run)) == len(job.facts())
    assert not list(job.run.rglob("*.json.tmp"))


@in_detail
@pytest.mark.seed("DBP-03")
@pytest.mark.parametrize(
    ("start", "count", "steps", "recorded", "note"),
    [
        (2, 7, 12, [(2, 7)], None),
        (0, 3, 12, [(0, 3)], None),
        (100, 20, 120, [(100, 20)], None),
        (
            *(10, 20, 17, [(10, 7)]),
            "the window scheduled for steps 10 to 29 ends after step 16: the job ended",
        ),
        (
            *(100, 20, 17, []),
            "the window scheduled for steps 100 to 119 was not recorded: the job ended in step 16",
        ),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_scheduled_window_starts_at_its_step_however_early(
    tmp_path: Path,
    start: int,
    count: int,
    steps: int,
    recorded: list[tuple[int, int]],
    note: str | None,
    ranks: int,
) -> None:
    command = (sys.executable,) if ranks == 1 else TORCHRUN
    schedule = ("--start-step", str(start), "--num-steps", str(count))
    job = run_under(
        tmp_path / "run",
        *(*command, PACED, "--steps", str(steps)),
        options=("--window", "asked", "--no-rules", *schedule),
        strict=ranks == 1,
    )
    assert job.code == 0, job.stderr
    reader = open_run(job.run)
    for process in reader.processes():
        windows = process.facts_of(WindowFact)
        if process.role == "main" and windows:
            assert [(fact.first_step, fact.step_count) for fact in windows] == recorded
    assert len(stored(job.run)) == ranks * len(recorded)
    spans = reader.table("spans", ["start_ns", "end_ns", "kind", "process"])
    for process_name in {process for process, _ in stored(job.run)}:
        of_process = spans["process"] == process_name
        (window,) = np.flatnonzero(of_process & (spans["kind"] == "window"))
        first_ns, last_ns = spans["start_ns"][window], spans["end_ns"][window]
        optimizer_ns = np.sort(spans["start_ns"][of_process & (spans["kind"] == "optimizer")])
        inside = np.flatnonzero((optimizer_ns >= first_ns) & (optimizer_ns < last_ns))
        first, length = recorded[0]
        assert inside.tolist() == list(range(first, first + length))
    (status,) = reader.statuses().values()
    assert status.notes == ([] if note is None else [note])


@in_detail
@pytest.mark.seed("PTP-01")
def test_cycles_end_after_their_number(start: Callable[..., WindowedJob]) -> None:
    cycles = "skip_first=600,wait=290,warmup=10,active=5,repeat=2"
    job = start("--window", "asked", "--schedule", cycles)
    wait_until(lambda: len(job.facts()) >= 2)

    wait_until(lambda: job.step_count() > 600 + 3 * 305 + 10)  # a third window would be recorded
    assert job.end() == 0
    windows = [(fact["first_step"], fact["step_count"]) for fact in job.facts()]
    assert windows == [(900, 5), (1205, 5)]


def test_a_window_of_a_running_job_on_all_ranks(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "asked", command=TORCHRUN)
    done = job.capture("--steps", "5", "--shapes", "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["nodes"].values()
    assert [window["state"] for window in answer["windows"]] == ["stored", "stored"]
    assert {window["rank"] for window in answer["windows"]} == {0, 1}
    wait_until(lambda: len(job.facts()) == 2)
    first, second = job.facts()
    assert (first["first_step"], first["step_count"]) == (answer["first_step"], 5)
    assert (second["first_step"], second["step_count"]) == (answer["first_step"], 5)
    assert job.end() == 0
    late = job.capture("--steps", "5")
    assert late.returncode == 2
    assert "is over" in late.stderr


@in_detail
def test_a_loop_without_optimizer_is_captured_by_time(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "asked", arguments=("--no-optimizer",))
    by_time = job.capture("--seconds", "0.2")
    assert by_time.returncode == 0, by_time.stderr
    by_steps = job.capture("--steps", "5")
    assert by_steps.returncode == 2
    assert "--seconds" in by_steps.stderr
    assert job.end() == 0
    assert len(stored(job.run)) == 1


@in_detail
@pytest.mark.seed("DBP-11")
def test_no_window_if_windows_are_off(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "off")
    refused = job.capture("--steps", "5")
    assert refused.returncode == 2
    assert "--window off" in refused.stderr
    assert job.end() == 0


@in_detail
def test_a_job_without_torch_is_reported(tmp_path: Path) -> None:
    run = tmp_path / "run"
    script = (sys.executable, "-c", "input()")
    with subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--out", str(run), "--", *script],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as job:
        wait_until(lambda: (run / "nodes").exists() and open_run(run).statuses())
        done = subprocess.run(
            [*STEPSCOPE, "capture", str(run), "--steps", "5"], capture_output=True, text=True
        )
        census = subprocess.run(
            [*STEPSCOPE, "capture", str(run), "--memory"], capture_output=True, text=True
        )
        job.communicate(b"\n", timeout=JOB_TIMEOUT_S)
        assert job.returncode == 0
    assert done.returncode == 2
    assert "no process of the job has started to train with PyTorch" in done.stderr
    assert (
        "No census of memory was taken: no process of the job has finished a step or made a batch."
        in census.stderr
    )


@in_detail
@pytest.mark.seed("DIAG-04")
@pytest.mark.quiet  # the usual pace must not vary
def test_a_job_that_becomes_slower_gets_a_window(start: Callable[..., WindowedJob]) -> None:
    job = start()
    wait_until(lambda: any(f["reason"] == "automatic" for f in job.facts()))
    start_ns = job.recorded_ns()
    wait_until(lambda: job.recorded_ns() - start_ns > 16e9)  # the monitor learns the usual pace
    job.slower.touch()
    wait_until(lambda: any(f["reason"] == "slower" for f in job.facts()))
    assert job.end() == 0
    assert len(stored(job.run)) == len(job.facts()) == 2


@in_detail
@pytest.mark.parametrize("when", ["planned", "recorded"])
def test_kill_9_of_the_monitor_around_a_window(
    start: Callable[..., WindowedJob], when: str
) -> None:
    job = start("--window", "asked", "--start-step", "500", "--num-steps", "20")
    spool = Path(next(iter(open_run(job.run).nodes().values())).spool)
    trace = "p-*/plan-0.json" if when == "planned" else "p-*/window-0_*.json*"
    wait_until(lambda: list(spool.glob(trace)))
    os.kill(job.monitor(), signal.SIGKILL)
    wait_until(lambda: job.facts() and stored(job.run))
    assert job.end() == 0
    (fact,) = job.facts()
    assert fact["step_count"] == 20
    assert len(stored(job.run)) == 1
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED


@in_detail
def test_recover_stores_a_window_once(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "asked", "--start-step", "900", "--num-steps", "60")
    spool = Path(next(iter(open_run(job.run).nodes().values())).spool)
    wait_until(lambda: list(spool.glob("p-*/window-0_*.json*")))  # the window has started
    os.killpg(job.launcher.pid, signal.SIGSTOP)
    os.kill(job.monitor(), signal.SIGKILL)
    os.kill(job.launcher.pid, signal.SIGKILL)
    os.killpg(job.launcher.pid, signal.SIGCONT)
    wait_until(lambda: list(spool.glob("p-*/window-0_*.json")))
    job.stop.touch()
    processes = [int(path.name.split("-")[1]) for path in spool.glob("p-*/")]
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in processes))
    for _ in range(2):
        subprocess.run([*STEPSCOPE, "recover", str(job.run)], check=True, capture_output=True)
    assert len(stored(job.run)) == 1
    assert not spool.exists()


@in_detail
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


@in_detail
def test_windows_do_not_change_the_weights(tmp_path: Path) -> None:
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


@in_detail
def test_a_job_that_ends_before_its_window_is_reported(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "asked", "--start-step", "90000000", "--num-steps", "4")
    wait_until(lambda: (job.run / "run.json").exists() and open_run(job.run).has("spans"))
    assert job.end() == 0
    (status,) = open_run(job.run).statuses().values()
    (note,) = status.notes
    plan = "the window scheduled for steps 90000000 to 90000003"
    assert note.startswith(f"{plan} was not recorded: the job ended in step ")


@in_detail
def test_an_overlapping_window_is_skipped_and_reported(start: Callable[..., WindowedJob]) -> None:
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
    job = start("--window", "asked", "--start-step", "1000", "--num-steps", "4")
    WindowRequests(job.run).send(
        WindowRequest(name="long", asked_ns=time.time_ns(), step_count=1000)
    )
    wait_until(lambda: len(job.facts("window_missed")) >= 1)
    assert job.end() == 0
    (status,) = open_run(job.run).statuses().values()
    assert any("not recorded: another window was still open" in note for note in status.notes)
