"""`stepscope attach`: processes that cannot be recorded, and ends of either side."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stepscope.cli.job.places import SHARED_MEMORY, temporary_directories
from stepscope.errors import UsageError
from stepscope.monitor import examine_target
from stepscope.monitor.attached.target import DEFAULT_TRACE_DIRECTORY, PTRACE_SCOPE, explain_ptrace
from stepscope.schema import JobStatus
from stepscope.spool import SPOOL_VARIABLE
from stepscope.store import open_run
from tests.support.command import run_command
from tests.support.under_stepscope import STEPSCOPE
from tests.support.waiting import wait_until

OTHER_UID = 65534
BUSY = "while True:\n    pass\n"
JOB = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BUSY!r}])
input()
child.kill()
child.wait()
"""
AS_OTHER_USER = f"""
import os, sys
import psutil  # this user may not read the environment
from stepscope.errors import UsageError
from stepscope.monitor import examine_target
os.setresuid({OTHER_UID}, {OTHER_UID}, {OTHER_UID})
try:
    examine_target(int(sys.argv[1]))
except UsageError as error:
    print(error)
"""
in_detail = pytest.mark.extended(
    "another attachment that is refused; test_limits_name_their_remedy is one"
)


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that waits to be killed."""
    with start_with() as process:
        yield process
        process.kill()


def start_with(**environment: str) -> subprocess.Popen[bytes]:
    """Start a process that waits for its standard input to close."""
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    command_line = Path(f"/proc/{process.pid}/cmdline")  # empty until its execve is complete
    wait_until(lambda: b"input" in command_line.read_bytes())
    return process


def test_a_missing_process(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    answer = run_command(tmp_path, "attach", str(ended.pid))
    assert answer.returncode == 2
    assert answer.stderr.splitlines() == [
        f"stepscope: No process {ended.pid} is running here. List Python processes with: "
        "pgrep -af python"
    ]
    assert not list(tmp_path.iterdir())


@in_detail
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user(sleeping: subprocess.Popen[bytes]) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", AS_OTHER_USER, str(sleeping.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == (
        f"Process {sleeping.pid} belongs to the user root; attach as that user: sudo -u root "
        f"{sys.executable} -m stepscope attach {sleeping.pid}\n"
    )


@in_detail
@pytest.mark.skipif(os.getuid() != 0, reason="only root may attach to any user's process")
def test_root_opens_no_window_in_a_job_of_another_user() -> None:
    """libkineto could not write its file into root's spool."""
    variables = {**os.environ, "KINETO_USE_DAEMON": "1"}
    with subprocess.Popen(["sleep", "60"], user=OTHER_UID, env=variables) as job:
        wait_until(lambda: b"60" in Path(f"/proc/{job.pid}/cmdline").read_bytes())
        target = examine_target(job.pid)
        job.kill()
    assert target.kineto_directory is None
    assert target.limits[-1] == "no detailed windows: attach as the user of the job to open some"


@in_detail
def test_the_shell_of_the_command_is_not_the_job(tmp_path: Path) -> None:
    answer = run_command(tmp_path, "attach", str(os.getppid()))
    assert answer.returncode == 2
    assert f"Process {os.getppid()} started this command itself" in answer.stderr


@in_detail
def test_a_process_that_is_recorded_already(tmp_path: Path) -> None:
    with start_with(**{SPOOL_VARIABLE: str(tmp_path)}) as job:
        with pytest.raises(UsageError, match="recorded by stepscope already"):
            examine_target(job.pid)
        job.communicate()


@in_detail
def test_no_spool_is_left_where_no_run_can_be_made(
    sleeping: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    answer = run_command(tmp_path, "attach", str(sleeping.pid), "--out", "file/run")
    assert answer.returncode == 2
    assert answer.stderr.startswith("stepscope: file/run cannot be created")
    bases = (SHARED_MEMORY, *temporary_directories())
    assert not [path for base in bases for path in base.glob(f"stepscope-*-{os.getpid()}")]


def test_limits_name_their_remedy(
    sleeping: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    target = examine_target(sleeping.pid)
    assert (target.py_spy, target.kineto_directory) == (None, None)
    _, stacks, windows = target.limits
    assert stacks == "no stack samples: py-spy is not installed (pip install py-spy)"
    assert "KINETO_USE_DAEMON=1" in windows


@in_detail
def test_a_daemon_of_the_user_is_left_alone(tmp_path: Path) -> None:
    variables = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(tmp_path)}
    with start_with(**variables) as job:
        target = examine_target(job.pid)
        assert target.kineto_directory == str(tmp_path)
        assert target.trace_directory == DEFAULT_TRACE_DIRECTORY
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
            daemon.bind(str(tmp_path / "dynolog"))
            target = examine_target(job.pid)
        assert target.kineto_directory is None
        assert target.limits[-1].endswith("another daemon serves libkineto on this node")
        job.communicate()


@pytest.mark.parametrize(
    ("scope", "remedy"),
    [
        ("1", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("2", "attach with sudo"),
        ("3", "until the next boot"),
        (None, "--cap-add SYS_PTRACE"),
    ],
)
def test_a_kernel_that_refuses_stacks(scope: str | None, remedy: str, tmp_path: Path) -> None:
    setting = tmp_path / PTRACE_SCOPE.name
    if scope is not None:
        setting.write_text(scope)
    assert remedy in "; ".join(explain_ptrace(setting))


def test_the_recording_outlives_the_command(tmp_path: Path) -> None:
    """The command is killed; the monitor records until the job ends, and completes the run. The job
    looks for a daemon at the address of libkineto that has no file."""
    location = tmp_path / "run"
    variables = {**os.environ, "KINETO_USE_DAEMON": "1"}
    variables.pop("KINETO_IPC_SOCKET_DIR", None)
    with subprocess.Popen([sys.executable, "-c", JOB], stdin=subprocess.PIPE, env=variables) as job:
        child = wait_until(lambda: psutil.Process(job.pid).children())[0]
        command = subprocess.Popen(
            [*STEPSCOPE, "attach", str(job.pid), "--out", str(location)], stderr=subprocess.DEVNULL
        )
        status = wait_until(lambda: read_status(location), waiting_for="the monitor")
        monitor = psutil.Process(status.monitor_pid)
        command.send_signal(signal.SIGKILL)
        command.wait()
        wait_until(lambda: has_samples(location, child.pid), waiting_for="samples of the child")
        job.communicate(b"\n")
    wait_until(lambda: not monitor.is_running(), waiting_for="the end of the monitor")
    last = read_status(location)
    assert last is not None
    assert last.state.is_final
    assert any(note.startswith("attached from outside ") for note in last.notes)
    assert not Path(open_run(location).info.options["spool"]).exists()
    verdict = run_command(tmp_path, "diagnose", "run")
    assert "No verdict: attached from outside: " in verdict.stdout


def read_status(location: Path) -> JobStatus | None:
    """Read the status of the only node; None before the first heartbeat."""
    if not (location / "run.json").exists():
        return None
    return next(iter(open_run(location).statuses().values()), None)


def has_samples(location: Path, pid: int) -> bool:
    """Return whether the CPU use of a process is in the run."""
    reader = open_run(location)
    return bool(
        reader.has("metrics")
        and reader.sql(
            "SELECT count(*) AS n FROM metrics WHERE metric = 'process_cpu_cores' AND device = ?",
            [str(pid)],
        )["n"][0]
    )
