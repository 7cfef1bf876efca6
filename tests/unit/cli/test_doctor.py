"""`stepscope doctor` finds each fault of the environment, which the tests really cause."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.cli.commands import doctor
from stepscope.cli.commands.doctor import Fault, examine
from stepscope.cli.job import interpreter
from stepscope.cli.job.places import SHARED_MEMORY
from tests.support.command import run_command
from tests.support.permissions import UNPRIVILEGED_UID, public_directory, restricted  # noqa: F401 - a fixture

FIND = """
import os, msgspec
from stepscope.cli.commands import doctor
if {uid} != os.geteuid():
    os.setgroups([])  # those of root may see everything
    os.setegid({uid})
    os.seteuid({uid})
print(msgspec.json.encode([*doctor.{check}()]).decode())
"""
"""Much faster than the whole command."""
LINGERING_UID = 60_001
"""A uid without a name."""


def find(
    script: str,
    directory: Path,
    *,
    prefix: tuple[str, ...] = (),
    check: str = "find_faults",
    uid: int | None = None,
) -> dict[str, Any]:
    """Run a shell script that sets up faults, and return those that are found then by name."""
    code = FIND.format(uid=os.geteuid() if uid is None else uid, check=check)
    # After `:`, the shell does not become the process, and stays process 1 of a namespace.
    command = f"{script}\n{shlex.join([sys.executable, '-c', code])}\n:"
    done = subprocess.run(
        [*prefix, "bash", "-e", "-c", command],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "DIRECTORY": str(directory)},
    )
    assert done.returncode == 0, done.stderr
    return {fault["name"]: fault for fault in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def namespace() -> tuple[str, ...]:
    """Return a command that gives a script mounts and processes of its own."""
    command = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")
    if shutil.which("unshare") is None or subprocess.run([*command, "true"]).returncode:
        pytest.skip("no namespace of mounts can be created here")
    return command


def test_small_and_read_only_file_systems(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    """Shared memory of 1 MiB, a temporary directory of 30 files, a read-only working directory."""
    faults = find(
        """
        mkdir tmp
        mount -t tmpfs -o size=1m tmpfs /dev/shm
        mount -t tmpfs -o size=1g,nr_inodes=30 tmpfs tmp
        export TMPDIR=$DIRECTORY/tmp
        mount --rbind $DIRECTORY $DIRECTORY && mount -o remount,ro,bind $DIRECTORY
        cd $DIRECTORY
        """,
        tmp_path,
        prefix=namespace,
    )
    assert "has 1 MiB free; a spool there needs 1 GiB" in faults["shared memory"]["finding"]
    assert "--shm-size" in faults["shared memory"]["remedy"]
    inodes = faults["spool: inodes"]["finding"]
    assert "tmp, which holds the spool, has room for 29 files" in inodes
    assert "spool: space" not in faults
    assert "Read-only file system" in faults["run directory"]["finding"]
    assert "stepscope/runs" in faults["run directory"]["consequence"]


def test_a_full_disk_below_the_run_and_the_spool(
    tmp_path: Path, namespace: tuple[str, ...]
) -> None:
    faults = find(
        """
        mkdir full
        mount -t tmpfs -o size=1m tmpfs full
        mount --bind full /dev/shm
        export TMPDIR=$DIRECTORY/full
        cd full
        """,
        tmp_path,
        prefix=namespace,
    )
    assert ", which holds the spool, has 1 MiB" in faults["spool: space"]["finding"]
    assert ", which holds runs, has 1 MiB" in faults["run directory: space"]["finding"]
    for name, option in (("spool: space", "--spool"), ("run directory: space", "--out")):
        assert "has 1 MiB free" in faults[name]["finding"]
        assert option in faults[name]["remedy"]


def test_too_few_inodes_for_a_run(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    script = "mkdir runs; mount -t tmpfs -o size=1g,nr_inodes=30 tmpfs runs; cd runs"
    faults = find(script, tmp_path, prefix=namespace, check="check_run_directory")
    assert ", which holds runs, has room for 29 files" in faults["run directory: inodes"]["finding"]


def test_no_directory_for_the_spool(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    """A file may not have one byte, so that no temporary directory can be used."""
    script = "mount -t tmpfs -o size=1m tmpfs /dev/shm; ulimit -f 0"
    faults = find(script, tmp_path, prefix=namespace, check="check_spool")
    assert "No directory can hold the spool: no temporary" in faults["spool"]["finding"]


def test_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "shm")
    (fault,) = doctor.check_shared_memory()
    assert fault.finding == f"{tmp_path}/shm does not exist."


def test_low_limits(tmp_path: Path) -> None:
    faults = find("ulimit -Sn 200; ulimit -Sf 1024", tmp_path)
    assert faults["open files"]["finding"] == "A process may open 200 files (ulimit -n)."
    assert faults["open files"]["remedy"] == "Raise it with: ulimit -n 1024"
    assert faults["file size"]["finding"] == "A file may have 1 MiB (ulimit -f)."
    assert faults["file size"]["remedy"] == "Remove the limit with: ulimit -f unlimited"
    faults = find("ulimit -n 200; ulimit -f 1024", tmp_path)
    assert "LimitNOFILE=" in faults["open files"]["remedy"]
    assert "LimitFSIZE=" in faults["file size"]["remedy"]


def test_a_working_directory_of_another_user(
    public_directory: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(public_directory)
    with restricted([public_directory], 0o555):
        (fault,) = doctor.check_run_directory()
    assert f"{public_directory} cannot be written: Permission denied." in fault.finding
    assert not list(public_directory.iterdir())


def test_stacks_are_a_kind_of_data_and_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `stepscope attach` needs them."""
    monkeypatch.setattr(
        "stepscope.cli.commands.doctor.explain_missing_stacks", lambda: "no py-spy."
    )
    (check,) = (c for c in examine().checks if c.name == "stacks with attach")
    assert (check.available, check.detail) == (False, "no py-spy.")


def test_hidden_processes(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    for option, is_hidden in (("hidepid=2", True), ("hidepid=0", False)):
        faults = find(
            f"mount -t proc -o {option} proc /proc",
            tmp_path,
            prefix=namespace,
            check="check_hidden_processes",
            uid=UNPRIVILEGED_UID,
        )
        findings = [fault["finding"] for fault in faults.values()]
        expected = "The kernel hides processes of other users (option hidepid of /proc)."
        assert findings == [expected] * is_hidden


def test_stacks_from_outside(
    public_directory: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """py-spy is not found; then the kernel refuses, as it does to a changed effective user."""
    monkeypatch.setattr(sys, "executable", str(public_directory / "python"))
    for name in ("sh", "sleep"):
        (public_directory / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(public_directory))
    reason = doctor.explain_missing_stacks()
    assert reason == "py-spy is not installed. Install it with: pip install py-spy"
    (public_directory / "py-spy").symlink_to(shutil.which("true", path=os.defpath) or "")
    assert doctor.explain_missing_stacks() != reason
    if os.geteuid() == 0:
        with restricted([public_directory], 0o755):
            assert ". To sample them, attach" in str(doctor.explain_missing_stacks())


def test_another_daemon_of_libkineto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINETO_USE_DAEMON", raising=False)
    assert not list(doctor.check_kineto_daemon())
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    (fault,) = doctor.check_kineto_daemon()
    assert fault.remedy.endswith("unset KINETO_USE_DAEMON")


@pytest.mark.parametrize("used", [949, 899])
def test_a_memory_limit_that_is_almost_reached(tmp_path: Path, used: int) -> None:
    """950 MB are in use, of which the kernel can drop one or 51, whether used lately or not."""
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    mount = "40 30 0:0 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (tmp_path / "proc/self/mountinfo").write_text(mount)
    (group / "memory.max").write_text("1000000000\n")
    (group / "memory.current").write_text("950000000\n")
    cached = (950 - used) * 10**6
    (group / "memory.stat").write_text(
        f"anon 1\nfile 60000000\nactive_file {cached - 400}\ninactive_file 400\n"
    )
    faults = list(doctor.check_memory_limit(tmp_path))
    assert len(faults) == (used >= 900)
    if faults:
        assert "allows are used, 95%" in faults[0].finding


@pytest.mark.parametrize(
    ("files", "is_removed"),
    [
        ({}, True),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, True),
        ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n"}, False),
        (
            {
                "etc/systemd/logind.conf": "RemoveIPC=no\n",
                "usr/lib/systemd/logind.conf.d/10-ipc.conf": "RemoveIPC = yes\n",
            },
            True,
        ),
        (
            {
                "usr/lib/systemd/logind.conf.d/10-ipc.conf": "RemoveIPC=yes\n",
                "etc/systemd/logind.conf.d/10-ipc.conf": "RemoveIPC=no\n",
            },
            False,
        ),
        ({f"var/lib/systemd/linger/{LINGERING_UID}": ""}, False),
    ],
)
def test_removal_at_logout(tmp_path: Path, files: dict[str, str], is_removed: bool) -> None:
    def faults(spool: Path = SHARED_MEMORY) -> list[Fault]:
        return list(doctor.check_removal_at_logout(tmp_path, LINGERING_UID, spool))

    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert not faults(), "systemd does not run"
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert bool(faults()) == is_removed
    assert not faults(tmp_path), "it is on a disk"
    assert all("logind deletes what that user has in" in fault.finding for fault in faults())
    assert not list(doctor.check_removal_at_logout(tmp_path, 0, SHARED_MEMORY))


@pytest.mark.parametrize("state", [0, doctor.TIME_ERROR])
def test_a_clock_without_a_server(state: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(adjtimex=lambda _buffer: state)
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    findings = [fault.finding for fault in doctor.check_clock()]
    assert findings == ["The clock of this machine is not synchronised."] * bool(state)


def test_text_of_faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    text = run_command(tmp_path, "doctor").stdout
    assert "Faults of the environment" in text
    assert "unset KINETO_USE_DAEMON" in text
    monkeypatch.setattr("stepscope.cli.commands.doctor.find_faults", list)
    assert "No faults of the environment were found." in run_command(tmp_path, "doctor").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_working_directory_that_cannot_be_searched(tmp_path: Path) -> None:
    """As after `cd /root` and `sudo -u`."""
    (tmp_path / "closed").mkdir(mode=0o700)
    process = os.fork()
    if not process:
        try:
            os.chdir(tmp_path / "closed")
            os.setuid(65534)
            faults = [fault.name for fault in doctor.check_run_directory()]
            os._exit(faults != ["run directory"])
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert status == 0


@pytest.fixture
def deleted_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "deleted"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PWD", str(directory))
    directory.rmdir()
    return directory


def test_a_working_directory_that_was_deleted(deleted_directory: Path) -> None:
    (fault,) = doctor.check_run_directory()
    expected = f"{deleted_directory}/stepscope-runs cannot be written: No such file or directory."
    assert fault.finding == expected


@pytest.mark.extended("starts a job")
def test_a_job_in_a_directory_that_was_deleted(deleted_directory: Path) -> None:
    state = deleted_directory.parent / "state"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "stepscope", "run", "--no-rules", "--", "sh", "-c", "exit 7"],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 7, done.stderr
    (run,) = (state / "stepscope" / "runs").iterdir()
    assert f"The run is in {run}." in done.stderr
    assert json.loads((run / "run.json").read_text())["working_directory"] == str(deleted_directory)


FRAMEWORKS = {
    "accelerate": "__version__ = '0.20.0rc1'",
    "jax": "__version__ = '0.4.9'",
    "keras": "raise ImportError('no backend\\nin the second line')",
    "torch": "__version__ = '2.9.0a0+git1'",
    "xgboost": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
}
"""Modules that stand for frameworks in any state."""


def ask_interpreter(
    *command: str, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Return the answers of an interpreter about the modules in a directory."""
    oldest = {
        module: (name, oldest, module)
        for module, (name, oldest, _) in interpreter.OLDEST_RELEASES.items()
        if (modules / f"{module}.py").exists()
    }
    monkeypatch.setattr(interpreter, "OLDEST_RELEASES", oldest)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    answers = doctor.examine(command).interpreter
    return {a.name: f"{'yes' if a.available else 'no'} {a.detail}" for a in answers}


def test_frameworks_of_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = functools.partial(ask_interpreter, modules=tmp_path, monkeypatch=monkeypatch)
    for module, text in FRAMEWORKS.items():
        (tmp_path / f"{module}.py").write_text(text)
    (tmp_path / "start").write_text(f"#!{sys.executable} -S\n")
    (tmp_path / "start").chmod(0o755)
    answers = ask(str(tmp_path / "start"), "train.py")
    assert answers["start-up hook"] == (
        "no does not run: the option -S of Python switches the start-up hook off; leave it out"
    )
    answers = ask(sys.executable, "-X", "utf8", "train.py")
    assert answers.pop("Python").startswith(f"yes {sys.version.split()[0]}, ")
    pytorch = answers.pop("PyTorch")
    assert pytorch.startswith("yes 2.9.0a0+git1; ")
    assert "Waits for batches are not recorded: PyTorch 2.9.0a0+git1 has no torch." in pytorch
    assert answers == {
        "start-up hook": "yes runs, so its jobs are recorded",
        "Accelerate": "yes 0.20.0rc1",
        "Keras": "no cannot be imported: ImportError: no backend",
        "JAX": "no 0.4.9; 0.4.20 and later are recorded",
        "XGBoost": "no ends the process when it is imported (signal SIGSEGV)",
    }


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("env", "-i", sys.executable), "a command before Python clears the environment"),
        (("env", "PYTHONPATH=/x", sys.executable), "something before Python sets PYTHONPATH to"),
        ((sys.executable, "-X", "utf8", "-I", "-um", "train"), "the option -I of Python"),
        (("env", "STEPSCOPE_PACKAGE=/x", "PYTHONPATH=", sys.executable), "sees other files"),
    ],
)
def test_why_nothing_would_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], answer: str
) -> None:
    answers = ask_interpreter(*command, modules=tmp_path, monkeypatch=monkeypatch)
    assert answer in answers["start-up hook"]
    assert answers["frameworks"].startswith("no ")


def test_a_command_without_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_python, not_executable = tmp_path / "python3", tmp_path / "python3.12"
    no_python.write_text("#!/bin/sh\nexit 3\n")
    no_python.chmod(0o755)
    not_executable.write_bytes(b"\x7fELF")
    not_executable.chmod(0o755)
    slow = ["sh", "-c", "sleep 10", sys.executable]
    monkeypatch.setattr(interpreter, "LIMIT_S", 0.1)
    for command, answer in (
        (
            ["bash", "train.sh"],
            "bash is no Python interpreter and no script of one. Pass the job's: ",
        ),
        ([str(no_python)], f"{no_python} does not run Python: exit status 3"),
        ([str(not_executable)], f"{not_executable} cannot be started: Exec format error."),
        (slow, " did not answer within "),
    ):
        refused = run_command(tmp_path, "doctor", "--", *command)
        assert refused.returncode == 2
        assert answer in refused.stderr
