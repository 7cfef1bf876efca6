"""Missing resources of a machine: training continues, and the missing data are reported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.job_control import JOB_PYTHON, STEPSCOPE, Job, steps_command
from tests.support.small_disks import mount_small_disk
from tests.support.waiting import wait_until

Start = Callable[..., Job]
COUNT = 60
ROOT = os.geteuid() == 0
in_detail = pytest.mark.extended(
    "another job; test_a_full_spool_never_stops_the_job continues, too"
)


def run_job(tmp_path: Path, *options: str, prefix: tuple[str, ...] = (), **kwargs: object):
    command = [*prefix, *STEPSCOPE, "run", *options, "--", *steps_command("--count", str(COUNT))]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=tmp_path, **kwargs
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mount_small_disk(tmp_path / "small")


WITH_MONITOR = """#!/bin/sh
until pid=$(grep -ho '"monitor_pid": [0-9]*' run/nodes/*/status.json)
do sleep 0.05; done 2> /dev/null
pid=${pid##* }
tr '\\0' '\\n' < /proc/$pid/cmdline
readlink /proc/$pid/fd/1
exit 7
"""


def test_a_launcher_that_inherits_little(tmp_path: Path) -> None:
    """No standard input, no exit status of children, a short command line, and a module in the
    working directory that has a name of the standard library."""
    job = tmp_path / "bin" / "a"
    job.parent.mkdir()
    job.write_text(WITH_MONITOR)
    job.chmod(0o755)
    (tmp_path / "queue.py").write_text("raise RuntimeError('the queue of the user')")

    def inherit_little() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.close(0)

    path = os.pathsep.join([str(Path(sys.executable).parent), str(job.parent), os.environ["PATH"]])
    done = subprocess.run(
        ["python", "-m", "stepscope", "run", "a"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "STEPSCOPE_RUN_OUT": "run"},
        preexec_fn=inherit_little,
    )
    assert done.returncode == 7, done.stderr
    name, *_, log = done.stdout.splitlines()
    assert (name, "stepscope-log" in log) == ("stepscope.monitor", True)
    (status,) = open_run(tmp_path / "run").statuses().values()
    assert (status.state, status.exit_code) == (JobState.FAILED, 7)


@in_detail
def test_the_requested_spool_directory_cannot_be_created(tmp_path: Path) -> None:
    """Another directory is used, and a message says so."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run_job(tmp_path, "--out", "run", "--spool", str(blocked / "spool"))
    assert done.returncode == 0
    assert done.stdout.count("done ") == COUNT
    assert "cannot create the spool in" in done.stderr
    assert len(open_run(tmp_path / "run").table("spans", condition="kind = 'step'")["seq"]) == COUNT


def test_a_full_spool_never_stops_the_job(start: Start, small_disk: Path) -> None:
    """Records are dropped and counted; earlier records are kept."""
    run = small_disk.parent / "run"
    done = subprocess.run(
        [
            *STEPSCOPE,
            "run",
            "--out",
            str(run),
            "--spool",
            str(small_disk / "spool"),
            "--spool-limit",
            "64MiB",
            "--",
            JOB_PYTHON,
            "-c",
            FLOOD,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "flood is over" in done.stdout
    names = open_run(run).table("spans", ["name"])["name"]
    assert (names == "flood").sum() > 1000
    dropped = sum(p.dropped_count for p in open_run(run).processes())
    assert dropped > 0
    assert (names == "flood").sum() + dropped >= 200_000
    diagnosis = subprocess.run(
        [*STEPSCOPE, "diagnose", str(run)], capture_output=True, text=True, check=True
    )
    assert "dropped because the file system of the spool was full" in " ".join(
        diagnosis.stdout.split()
    )


FLOOD = """
import stepscope
for _ in range(200_000):
    with stepscope.annotate("flood"): pass
print("flood is over")
"""


@pytest.mark.extended("test_write_faults.py lets writes of the run fail")
def test_a_full_run_directory_keeps_everything_in_the_spool(small_disk: Path) -> None:
    """The job is not affected, and `recover` stores the rest once there is room."""
    run = small_disk / "run"
    filler = small_disk / "filler"
    job = Job(run, small_disk.parent / "spool", *steps_command("--count", "1500"))
    try:
        job.wait_done(50)
        wait_until(lambda: list((run / "nodes").glob("*/status.json")), waiting_for="a status")
        fill(filler)
        assert job.wait() == 0
        assert job.done == 1500
        messages = " ".join(job.errors.read_text().split())
        assert "stepscope recover" in messages
        assert "No space left" in messages
        filler.unlink()
        done = subprocess.run(
            [*STEPSCOPE, "recover", str(run), "--json"], capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["complete"]
        steps = open_run(run).table("spans", ["value"], condition="kind = 'step'")["value"]
        assert sorted(steps.tolist()) == list(range(1500))
        (status,) = open_run(run).statuses().values()
        assert status.state is JobState.COMPLETED
    finally:
        job.end()


def fill(filler: Path) -> None:
    """Write until the file system is full."""

    def write_on() -> None:
        with filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    with pytest.raises(OSError, match="No space"):
        write_on()


@pytest.mark.extended("another job")
def test_no_writable_directory(tmp_path: Path) -> None:
    """Without a run and a spool, the job runs, and one sentence reports that it is not recorded."""
    if not ROOT or shutil.which("unshare") is None:
        pytest.skip("needs to make a mount namespace")
    script = (
        "mount -t tmpfs -o ro tmpfs /dev/shm && mount --bind /tmp /tmp && "
        "mount -o remount,bind,ro /tmp && mount -t tmpfs -o ro tmpfs /var/tmp && "
        f"cd {tmp_path} && exec {' '.join(STEPSCOPE)} run -- "
        f"{' '.join(steps_command('--count', str(COUNT)))}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    if done.returncode and done.stderr.startswith(("unshare", "mount")):
        pytest.skip(f"mount namespaces are not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done ") == COUNT
    assert "The job is not recorded" in done.stderr
    assert "Read-only file system" in done.stderr


@in_detail
def test_without_shared_memory(tmp_path: Path) -> None:
    """The spool is in the temporary directory."""
    if not ROOT or shutil.which("unshare") is None:
        pytest.skip("needs to make a mount namespace")
    run = tmp_path / "run"
    script = (
        "mount -t tmpfs -o size=64k tmpfs /dev/shm && "
        f"exec {' '.join(STEPSCOPE)} run --out {run} -- "
        f"{' '.join(steps_command('--count', str(COUNT)))}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"mount namespaces are not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert len(open_run(run).table("spans", condition="kind = 'step'")["seq"]) == COUNT
    (node,) = open_run(run).nodes().values()
    assert Path("/dev/shm") not in Path(node.spool).parents  # noqa: S108


@in_detail
def test_the_default_run_directory_falls_back(tmp_path: Path) -> None:
    if not ROOT or shutil.which("unshare") is None:
        pytest.skip("needs to make a mount namespace")
    script = (
        f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && "
        f"cd {tmp_path} && exec {' '.join(STEPSCOPE)} run -- true"
    )
    state = tmp_path.with_name("state")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"XDG_STATE_HOME": str(state)},
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"mount namespaces are not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "cannot create a run in" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("run ")]
    location = Path(line.split()[1])
    assert location.parent == state / "stepscope/runs"
    assert open_run(location).info.command == ["true"]
    assert done.stderr.count("stepscope: ") == 1


@in_detail
def test_a_missing_gpu_driver_is_reported(start: Start) -> None:
    job = start(*steps_command("--count", "20"))
    assert job.wait() == 0
    (node,) = open_run(job.run).nodes().values()
    if not node.gpus:
        assert "NVIDIA driver" in node.metrics_missing["gpu"]


UNRECORDED = """
import glob, mmap, os, sys, time
library = open("libtorch_cpu.so", "wb+")
library.truncate(4096)
pages = mmap.mmap(library.fileno(), 4096)
mark = f"process {os.getpid()} ("
while not any(mark in open(path).read() for path in glob.glob("run0/nodes/*/status.json")):
    time.sleep(0.05)
"""
WRAPPER = """
cd "$1"
export PYTHONPATH=/replaced
"$2" -I unrecorded.py
"$2" -c 'import os; print(os.environ["PYTHONPATH"]); raise ValueError("on purpose")'
exit $?
"""


def test_a_wrapper_replaces_pythonpath_and_a_process_ignores_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shim restores the hook; the verdict says why `python -I` was not recorded."""
    python = Path(JOB_PYTHON)
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "unrecorded.py").write_text(UNRECORDED)
    job = start("bash", "-c", WRAPPER, "job", str(tmp_path), python.name)
    assert job.wait() == 1
    assert job.output.read_text().endswith("bootstrap/site:/replaced\n")
    (status,) = open_run(job.run).statuses().values()
    (reason,) = status.unrecorded
    assert f"{python.name} -I unrecorded.py) loaded PyTorch and was not recorded: " in reason
    done = subprocess.run(
        [*STEPSCOPE, "diagnose", str(job.run)], capture_output=True, text=True, check=True
    )
    verdict = " ".join(done.stdout.split())
    assert "the option -I of Python switches the start-up hook off" in verdict
    assert "the job exited with status 1; process " in verdict
    assert "ended with ValueError: on purpose" in verdict


@pytest.mark.extended("another job")
def test_a_daemon_is_recorded_after_the_command_has_ended(tmp_path: Path) -> None:
    """The run contains the records of the command and of its daemon."""
    pytest.importorskip("torch")
    script = Path(__file__).parents[1] / "e2e" / "scripts" / "daemonise.py"
    out = tmp_path / "daemon.txt"
    run = tmp_path / "run"
    done = subprocess.run(
        [
            *STEPSCOPE,
            "run",
            "--out",
            str(run),
            "--",
            sys.executable,
            str(script),
            "--out",
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    wait_until(out.exists, timeout_s=60, waiting_for="the daemon's end")

    def ended() -> bool:
        (status,) = open_run(run).statuses().values()
        return status.state.is_final

    wait_until(ended, timeout_s=60, waiting_for="the monitor's end")
    answer = subprocess.run(
        [*STEPSCOPE, "show", str(run), "steps", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    (rank,) = json.loads(answer.stdout)["ranks"]
    assert rank["step_count"] == 20


@pytest.mark.extended("tests/e2e/test_secrets.py")
def test_secrets_on_the_command_line_are_masked(start: Start) -> None:
    secret = "hf_" + "a1B2" * 8
    job = start("sh", "-c", "true", "--api-key", "k3y", f"--token={secret}", secret)
    assert job.wait() == 0
    for path in job.run.rglob("*.json"):
        text = path.read_text()
        assert "k3y" not in text
        assert secret not in text
    assert open_run(job.run).info.command[:3] == ["sh", "-c", "true"]
