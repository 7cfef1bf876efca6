"""Supervisor of a trial: what it discards, and what it ends, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepscope.trials import find_real_directories, sandbox
from stepscope.trials.processes import SANDBOX
from tests.support.waiting import wait_until

DAEMON = "setsid setsid sh -c 'echo $$ > {pid}; sleep 1000' &"
"""Starts a process that leaves session and process group."""


@pytest.fixture(params=[True, False], ids=["isolated", "in place"])
def isolate(request: pytest.FixtureRequest) -> bool:
    if request.param and find_real_directories() is None:
        pytest.skip("no namespaces on this machine")
    return bool(request.param)


def make_request(tmp_path: Path, script: str, *, isolate: bool, timeout_s: float = 60) -> bytes:
    scratch = f"/dev/shm/stepscope-try-test-{os.getpid()}-{tmp_path.name}"  # noqa: S108
    request = {
        "command": ["sh", "-c", script.replace("{report}", f"{scratch}/report")],
        "directory": str(tmp_path),
        "environment": {"PATH": os.environ["PATH"]},
        "timeout_s": timeout_s,
        "scratch": scratch,
        "report": f"{scratch}/report",
        "early_report": f"{scratch}/report.early",
        "parent": os.getpid(),
        "isolate": isolate,
    }
    return json.dumps(request).encode()


def supervise(tmp_path: Path, script: str, **options: Any) -> dict[str, Any]:
    request = make_request(tmp_path, script, **options)
    done = subprocess.run([sys.executable, "-I", SANDBOX], input=request, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not Path(json.loads(request)["scratch"]).exists()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_writes_are_discarded_or_real(tmp_path: Path, isolate: bool) -> None:
    (tmp_path / "model.pt").write_text("trained for days")
    script = "echo overwritten > model.pt; echo new > other; cat model.pt; echo '{}' > {report}"
    answer = supervise(tmp_path, f"{script}; sleep 100", isolate=isolate)
    assert answer["output"] == "overwritten\n"
    assert (answer["report"], answer["exit_code"]) == ({}, None)
    assert answer["is_isolated"] is isolate
    expected = "trained for days" if isolate else "overwritten\n"
    assert (tmp_path / "model.pt").read_text() == expected
    assert (tmp_path / "other").exists() is not isolate


def test_the_user_and_the_directory_are_those_of_the_job(tmp_path: Path, isolate: bool) -> None:
    answer = supervise(tmp_path, "id -u; pwd; exit 3", isolate=isolate)
    assert answer["output"].split() == [str(os.getuid()), str(tmp_path)]
    assert (answer["exit_code"], answer["report"], answer["timed_out"]) == (3, None, False)


def test_a_job_without_a_report_ends_at_the_limit(tmp_path: Path, isolate: bool) -> None:
    answer = supervise(tmp_path, "echo waiting; sleep 1000", isolate=isolate, timeout_s=0.5)
    assert (answer["timed_out"], answer["output"]) == (True, "waiting\n")


def test_a_command_that_does_not_exist_is_reported(tmp_path: Path, isolate: bool) -> None:
    request = json.loads(make_request(tmp_path, "", isolate=isolate))
    request["command"] = ["/does/not/exist"]
    done = subprocess.run(
        [sys.executable, "-I", SANDBOX], input=json.dumps(request).encode(), capture_output=True
    )
    assert json.loads(done.stdout)["exit_code"] == 127


@contextmanager
def running(tmp_path: Path, pid_file: Path, *, isolate: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Start a supervisor whose job has a daemon."""
    request = make_request(tmp_path, DAEMON.format(pid=pid_file) + " sleep 1000", isolate=isolate)
    supervisor = subprocess.Popen(
        [sys.executable, "-I", SANDBOX], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert supervisor.stdin is not None
    with supervisor.stdin as stdin:
        stdin.write(request)
    try:
        wait_until(lambda: len(find_sleepers(supervisor.pid)) >= 2)
        yield supervisor
    finally:
        supervisor.kill()
        supervisor.wait()


def find_sleepers(ancestor: int) -> set[int]:
    """Find the processes `sleep 1000` below a process."""
    parents, sleepers = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
            if command == b"sleep\x001000\x00":
                sleepers.add(int(entry.name))
    return {pid for pid in sleepers if ancestor in list_ancestors(pid, parents)}


def list_ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    ancestors = []
    while pid in parents:
        pid = parents[pid]
        ancestors.append(pid)
    return ancestors


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def check_nothing_is_left(sleepers: set[int]) -> None:
    wait_until(lambda: not any(map(is_alive, sleepers)))
    assert not list(Path("/dev/shm").glob(f"stepscope-try-test-{os.getpid()}-*"))  # noqa: S108


def test_sigterm_ends_all_processes_of_the_job(tmp_path: Path, isolate: bool) -> None:
    with running(tmp_path, tmp_path / "pid", isolate=isolate) as supervisor:
        sleepers = find_sleepers(supervisor.pid)
        supervisor.send_signal(signal.SIGTERM)
        supervisor.wait(20)
    check_nothing_is_left(sleepers)


def test_further_signals_do_not_interrupt_the_clean_up(tmp_path: Path, isolate: bool) -> None:
    with running(tmp_path, tmp_path / "pid", isolate=isolate) as supervisor:
        sleepers = find_sleepers(supervisor.pid)
        while supervisor.poll() is None:
            supervisor.send_signal(signal.SIGTERM)
            supervisor.send_signal(signal.SIGINT)
            time.sleep(0.001)
    check_nothing_is_left(sleepers)


def test_sigkill_of_an_isolated_supervisor_leaves_nothing(tmp_path: Path) -> None:
    if find_real_directories() is None:
        pytest.skip("no namespaces on this machine")
    with running(tmp_path, tmp_path / "pid", isolate=True) as supervisor:
        sleepers = find_sleepers(supervisor.pid)
        supervisor.kill()
        supervisor.wait(20)
    check_nothing_is_left(sleepers)
    assert not (tmp_path / "pid").exists()


def cover(
    monkeypatch: pytest.MonkeyPatch, layers: Path, path: Path, *, mounts: dict[Path, str]
) -> list[str]:
    """Cover a directory where no overlay is possible; return the real, writable paths.

    Modes are those of a user who owns nothing, and directories named `covered` have overlays.
    """

    def mount(source: str, target: str, *_: object) -> None:
        if source == "overlay" and not target.endswith("/covered"):
            raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "SHARED_MEMORY", str(layers))
        patch.setattr(sandbox, "_mount", mount)
        patch.setattr(sandbox, "_list_mount_points", lambda: {str(p): t for p, t in mounts.items()})
        patch.setattr(os, "access", lambda path, mode: bool(Path(path).stat().st_mode & mode))
        root = sandbox._Cover()
        root.add(str(path))
    return [str(Path(shared).relative_to(path)) for shared in root.shared_paths]


def test_writable_paths_that_stay_real_are_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for name, mode in {"user": 0o777, "user/job": 0o777, "other": 0o755, "secret": 0o770}.items():
        (home / name).mkdir(parents=True)
        (home / name).chmod(mode)
    home.chmod(0o755)
    (home / "other" / "open").touch()
    (home / "other" / "open").chmod(0o666)
    (home / "other" / "closed").touch(0o644)
    shared = cover(monkeypatch, tmp_path / "layers", home, mounts={home: "fuse"})
    assert shared == ["other/open", "user"]


def test_covered_subdirectories_of_a_real_directory_are_not_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for name in ("covered", "user"):
        (home / name).mkdir(parents=True)
        (home / name).chmod(0o777)
    (home / "user" / "file").touch()
    (home / "user" / "file").chmod(0o666)
    home.chmod(0o755)
    mounts = {home: "fuse", home / "user" / "file": "ext4"}
    assert cover(monkeypatch, tmp_path / "layers", home, mounts=mounts) == ["user"]


def test_file_systems_of_the_kernel_hold_no_files_of_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in another root below a home, with a file system in its `/proc`."""
    home = tmp_path / "home"
    (home / "root" / "proc" / "sys").mkdir(parents=True)
    for path in (home / "root", home):
        path.chmod(0o755)
    (home / "root" / "proc").chmod(0o777)
    proc = home / "root" / "proc"
    mounts = {home: "fuse", proc: "proc", proc / "sys": "binfmt_misc"}
    assert cover(monkeypatch, tmp_path / "layers", home, mounts=mounts) == []
    assert cover(monkeypatch, tmp_path / "layers", home, mounts={home: "fuse"}) == ["root/proc"]
    assert sandbox._list_mount_points()["/proc"] == "proc"


def test_mounts_that_are_never_covered_are_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, file = tmp_path / "run", tmp_path / "file"
    (run / "user" / "1000").mkdir(parents=True)
    (run / "user" / "1000").chmod(0o777)
    run.chmod(0o755)
    file.touch()
    file.chmod(0o666)
    monkeypatch.setattr(sandbox, "REAL_DIRECTORIES", (str(run),))
    assert cover(monkeypatch, tmp_path / "layers", run, mounts={run: "tmpfs"}) == ["user/1000"]
    assert cover(monkeypatch, tmp_path / "layers", file, mounts={file: "ext4"}) == ["."]
