"""`start_profiling` and `stop_profiling`, with and without `stepscope run`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.capture import library, session
from stepscope.capture.library import find_location
from stepscope.errors import RunExistsError, UsageError
from stepscope.job_environment import JobIdentity, identify_job
from stepscope.schema import JobState, LauncherInfo
from stepscope.spool import machine_id, process_parent, process_start_ticks
from stepscope.store import open_run
from tests.support.forked_jobs import JOB_TIMEOUT_S
from tests.support.shared_runs import SharedJob
from tests.support.waiting import wait_until

TRAINS = """
    import glob, os, time
    import stepscope
    cycle = stepscope.StepSchedule(wait=150, warmup=2, active=4, repeat=1)
    stepscope.start_profiling("run", interval_ms=100, schedule=cycle)
    stepscope.start_profiling("ignored")
    import torch
    net = torch.nn.Linear(4, 4)
    stepscope.watch(net, ["weights", "labels"], steps=[0, 1, 2])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step_count = 0

    def train(batch):
        global step_count
        optimizer.zero_grad()
        loss = net(batch).sum()
        loss.backward()
        optimizer.step()
        stepscope.scalar("loss", loss)
        stepscope.record(labels=[0, 1])
        step_count += 1

    for batch in torch.utils.data.DataLoader(torch.ones(60, 4), batch_size=2, num_workers=1):
        train(batch)
    files = os.environ["STEPSCOPE_SPOOL"] + "/p-*/window-*_*.json"
    deadline = time.monotonic() + 240
    while not glob.glob(files) and time.monotonic() < deadline:
        train(batch)
        time.sleep(0.01)
    print(step_count)
    stepscope.stop_profiling()
    stepscope.stop_profiling()
    with stepscope.annotate("unseen"):
        net(batch)
"""
TWICE = """
    import os, stepscope
    before = dict(os.environ)
    for run in ("first", "second"):
        stepscope.start_profiling(run)
        with stepscope.annotate(run):
            pass
        stepscope.stop_profiling()
        assert dict(os.environ) == before
"""
FAILS = """
    import stepscope
    stepscope.start_profiling()
    stepscope.step(1)
    raise SystemError("on purpose")
"""
FORKS = """
    import os, subprocess, sys, stepscope
    stepscope.start_profiling("run")
    stepscope.step(1)
    pid = os.fork()
    if not pid:
        stepscope.step(2)
        sys.exit(5)  # runs the inherited exit handlers
    os.waitpid(pid, 0)
    subprocess.run([sys.executable, "-c", "import stepscope; stepscope.step(3)"], check=True)
    stepscope.step(4)
"""
DIES = """
    import os, signal, threading, stepscope
    stepscope.start_profiling("run", interval_ms=100)
    stepscope.step(1)
    while not os.path.exists("run/run.json"):
        threading.Event().wait(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
"""
NO_ROOM = """
    import stepscope
    stepscope.start_profiling("/proc/no/such/run")
    stepscope.step(1)
    print("trained")
"""
JOBS = {
    name: text for name, text in list(globals().items()) if name.isupper() and isinstance(text, str)
}
BUSY_MACHINE = f"""
from stepscope.capture import library
library.MONITOR_TIMEOUT_S = {JOB_TIMEOUT_S}
"""
"""Put before each script: the end of the monitor may take long."""


class Job:
    """A script that runs in a separate directory."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory = directory
        directory.mkdir()
        script = directory / "train.py"
        script.write_text(BUSY_MACHINE + textwrap.dedent(text))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE")}
        environment["TMPDIR"] = str(directory)
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=directory,
            env={**environment, "STEPSCOPE_STRICT": "1", "PASSWORD": "x"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out = self.err = ""

    def finish(self) -> None:
        self.out, self.err = self.process.communicate(timeout=JOB_TIMEOUT_S)

    def run(self, name: str = "run") -> Any:
        return open_run(self.directory / name)

    def status(self, name: str = "run") -> Any:
        (status,) = self.run(name).statuses().values()
        return status

    def steps(self, name: str = "run") -> list[int]:
        values = self.run(name).table("spans", ["value"], condition="kind = 'step'")["value"]
        return sorted(int(value) for value in values)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """Run all scripts concurrently."""
    directory = tmp_path_factory.mktemp("library")
    started = {name: Job(directory / name.lower(), text) for name, text in JOBS.items()}
    for job in started.values():
        job.finish()
    return started


@pytest.mark.seed("SMP-01")
def test_a_script_that_trains(jobs: dict[str, Job]) -> None:
    job = jobs["TRAINS"]
    assert job.process.returncode == 0, job.err
    assert job.err.splitlines()[-1].startswith(
        f"stepscope: run recorded. For the verdict: {sys.executable} -m stepscope diagnose "
    )
    run = job.run()
    assert job.status().state is JobState.COMPLETED
    assert job.status().exit_code == 0
    spans = run.sql("SELECT kind, count(*) AS n FROM spans GROUP BY kind")
    counts = dict(zip(spans["kind"], spans["n"], strict=True))
    step_count = int(job.out)
    assert [counts[k] for k in ("forward", "backward", "optimizer")] == [step_count] * 3
    assert counts["fetch"] == 30
    assert "unseen" not in run.table("spans", ["name"])["name"].tolist()
    assert run.row_count("scalars") == step_count
    assert run.row_count("metrics") > 0
    assert {p.role for p in run.processes()} == {"main", "dataloader_worker", "monitor"}
    assert [n for p in run.processes() for n in p.notes] == []
    assert run.info.options["interval_ms"] == 100
    assert run.info.command[-1].endswith("train.py")
    assert not Path(run.info.options["spool"]).exists()


def test_steps_of_a_schedule_are_recorded(jobs: dict[str, Job]) -> None:
    job = jobs["TRAINS"]
    (window,) = [
        fact
        for process in job.run().processes()
        for fact in process.facts
        if fact["fact"] == "window" and fact["reason"] == "scheduled"
    ]
    assert window["first_step"] >= 152  # later if the monitor was not ready in time
    assert window["step_count"] == 4
    # A busy machine may be late with windows and samples, and loses no record.
    assert not any("dropped" in note for note in job.status().notes)


def test_a_watched_model_and_its_batches(jobs: dict[str, Job]) -> None:
    run = jobs["TRAINS"].run()
    steps = run.sql("SELECT step FROM tensor_statistics WHERE tensor = 'weight' ORDER BY step")
    assert steps["step"].tolist() == [0, 1, 2]
    counts = run.sql("SELECT row_name, sum(value) AS n FROM tensor_values GROUP BY ALL")
    assert dict(zip(counts["row_name"], counts["n"], strict=True)) == {"0": 3, "1": 3}


def test_one_run_after_another(jobs: dict[str, Job]) -> None:
    job = jobs["TWICE"]
    assert job.process.returncode == 0, job.err
    for name in ("first", "second"):
        assert job.run(name).table("spans", ["name"])["name"].tolist() == [name]
        assert job.status(name).state is JobState.COMPLETED


def test_an_exception_ends_the_run_as_failed(jobs: dict[str, Job]) -> None:
    """The run has a default name."""
    job = jobs["FAILS"]
    assert job.process.returncode == 1
    assert "SystemError: on purpose" in job.err
    (path,) = (job.directory / "stepscope-runs").iterdir()
    name = f"stepscope-runs/{path.name}"
    assert name.endswith("-train")
    assert path.name in job.err
    assert (job.status(name).state, job.status(name).exit_code) == (JobState.FAILED, 1)
    assert job.steps(name) == [1]


def test_children_are_recorded_and_do_not_end_the_run(jobs: dict[str, Job]) -> None:
    job = jobs["FORKS"]
    assert job.process.returncode == 0, job.err
    assert job.steps() == [1, 2, 3, 4]
    assert job.status().state is JobState.COMPLETED


def test_a_killed_script(jobs: dict[str, Job]) -> None:
    job = jobs["DIES"]
    assert job.process.returncode == -signal.SIGKILL
    wait_until(lambda: job.status().state.is_final)
    # Before Linux 6.15, only the parent of the script is told its exit status.
    assert job.status().state in {JobState.FAILED, JobState.UNKNOWN}
    assert job.steps() == [1]


def test_a_run_that_cannot_be_created_does_not_stop_the_job(jobs: dict[str, Job]) -> None:
    job = jobs["NO_ROOM"]
    assert (job.process.returncode, job.out) == (0, "trained\n")
    assert "stepscope: the monitor failed (" in job.err
    spool = Path(job.err.strip().rpartition(" records are in ")[2])
    assert list(spool.rglob("*.log")), "the records are in the reported directory"
    shutil.rmtree(spool)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunExistsError, match="already holds a run"):
        stepscope.start_profiling(str(tmp_path))
    assert session.SPOOL_VARIABLE not in os.environ


@pytest.mark.seed("DBP-02")
@pytest.mark.parametrize("interval", [0, -1, 10**6])
def test_an_interval_out_of_range(tmp_path: Path, interval: int) -> None:
    with pytest.raises(UsageError, match="interval_ms must be between 1 and 60000"):
        stepscope.start_profiling(str(tmp_path / "run"), interval_ms=interval)
    assert not (tmp_path / "run").exists()


def test_stopping_without_starting_does_nothing() -> None:
    stepscope.stop_profiling()
    stepscope.stop_profiling()
    with stepscope.annotate("unseen"):
        pass


def test_under_stepscope_run_they_pause_and_resume(recording: Any, tmp_path: Path) -> None:
    stepscope.start_profiling(str(tmp_path / "not created"))
    stepscope.step(1)
    stepscope.stop_profiling()
    stepscope.stop_profiling()
    stepscope.step(2)
    stepscope.start_profiling()
    stepscope.start_profiling()
    stepscope.step(3)
    assert [r.value for r in recording.drain().of("step")] == [1, 3]
    assert not (tmp_path / "not created").exists()


def test_a_spool_that_cannot_be_in_shared_memory_is_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "SHARED_MEMORY", "/sys")  # no directory can be created there
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert Path(library._make_spool(0)).parent == tmp_path


def test_a_script_in_a_directory_that_was_deleted(tmp_path: Path) -> None:
    script = (
        "import os, stepscope; os.rmdir(os.getcwd()); stepscope.start_profiling(); print('ran')"
    )
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "gone", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "the job is not recorded: [Errno 2]" not in done.stderr
    assert "the job is not recorded: " in done.stderr


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> JobIdentity:
    monkeypatch.chdir(tmp_path)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "night"}.items():
        monkeypatch.setenv(name, value)
    identity = identify_job(os.environ, ())
    assert identity is not None
    return identity


def test_processes_of_a_job_agree_on_the_name_of_their_run(
    tmp_path: Path, two_ranks: JobIdentity
) -> None:
    runs = tmp_path / "stepscope-runs"
    assert find_location(None, two_ranks) == str(runs / "torchrun-night")
    job = SharedJob(runs / "torchrun-night", "torchrun night")
    assert find_location(None, two_ranks) == str(job.path)
    job.add("a")
    job.beat("a")
    assert find_location(None, two_ranks) == str(job.path)
    job.beat("a", JobState.COMPLETED)  # the next job has the same name
    assert find_location(None, two_ranks) == str(runs / "torchrun-night-2")


@pytest.mark.parametrize(
    ("launcher", "state", "is_joined"),
    [
        ({}, JobState.FAILED, False),
        ({"parent": process_parent()}, JobState.FAILED, True),
        ({"parent": process_parent()}, JobState.COMPLETED, False),
        ({"pid": os.getpid(), "start_ticks": process_start_ticks()}, JobState.IN_PROGRESS, True),
        ({}, JobState.IN_PROGRESS, False),  # it was killed
        ({"machine": "elsewhere"}, JobState.IN_PROGRESS, True),
        ({"machine": "elsewhere"}, JobState.FAILED, False),
        ({"machine": "elsewhere", "parent": process_parent()}, JobState.FAILED, False),
    ],
)
def test_a_name_of_a_person_means_the_job_that_runs(
    tmp_path: Path,
    two_ranks: JobIdentity,
    launcher: dict[str, Any],
    state: JobState,
    *,
    is_joined: bool,
) -> None:
    """After a failure, only the agent of its processes goes on with a job."""
    job = SharedJob(tmp_path / "stepscope-runs" / "torchrun-night", "torchrun night")
    fields = {"pid": 1, "start_ticks": 0, "parent": "1-0", "machine": machine_id(), **launcher}
    job.run.register("a", lambda name: LauncherInfo(
        node=name, host="a", slot="a", incarnation=1, registered_ns=1, **fields
    ))  # fmt: skip
    job.beat("a", state)
    assert find_location(None, two_ranks) == str(job.path) + ("" if is_joined else "-2")
    unique = two_ranks._replace(is_unique=True)
    assert find_location(None, unique) == str(job.path)


def test_a_process_elsewhere_without_heartbeats_is_not_joined(
    tmp_path: Path, two_ranks: JobIdentity
) -> None:
    job = SharedJob(tmp_path / "stepscope-runs" / "torchrun-night", "torchrun night")
    job.add("a")
    job.beat("a", age_s=3600)
    status = job.path / "nodes" / "a" / "status.json"
    assert find_location(None, two_ranks) == str(job.path)  # by the clock of the file system
    os.utime(status, (1, 1))
    assert find_location(None, two_ranks) == str(job.path) + "-2"


@pytest.mark.parametrize("url", ["s3://bucket/a", "http://host/a", "abfss://c@host/a"])
def test_a_url_is_no_directory(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPSCOPE_SPOOL", raising=False)
    sentence = (
        f"start_profiling cannot record into {url}: it needs a directory. To record into an "
        "object store, start the script with `stepscope run --out URL -- CMD`."
    )
    with pytest.raises(UsageError, match=re.escape(sentence)):
        stepscope.start_profiling(url)
    assert not list(tmp_path.iterdir())


def test_a_run_of_another_job_is_not_joined(tmp_path: Path, two_ranks: JobIdentity) -> None:
    SharedJob(tmp_path / "other", "slurm 1.0")
    sentence = "already holds a run of the job slurm 1.0, and this process belongs to the job "
    with pytest.raises(RunExistsError, match=sentence + "torchrun night, or that job has ended"):
        find_location("other", two_ranks)
    SharedJob(tmp_path / "single", None)
    with pytest.raises(RunExistsError, match=r"already holds a run\. Use a new directory"):
        find_location("single", two_ranks)
    with pytest.raises(RunExistsError, match=r"already holds a run\. Use a new directory"):
        find_location("other", None)
