"""Supervisor of one trial: runs the job where its writes are discarded, and ends all its processes.

Run as a script, by path, with an isolated interpreter; standard library only. It reads a request
as JSON from standard input and writes one JSON object to standard output (`run` describes both).

Where the kernel allows it, the job runs in mount and PID namespaces of its own: every file system
is covered by an overlay with its upper layer in memory, and `/dev/shm` is a new one. The kernel
discards both with the last process, however that ends.

    supervisor   ends when the command that started it ends
    builder      enters the namespaces, so that the supervisor stays outside
    init         process 1 of the namespace: mounts, starts the job, reaps; its end kills them all
    job

Otherwise the job runs as it is, and the supervisor ends its descendants.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 0.05
TAIL_BYTES = 4000
NOT_ISOLATED = 77
"""Exit status of the builder where the namespaces cannot be made."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a file system in memory, not a scratch file
REAL_DIRECTORIES = ("/dev", "/proc", "/sys", "/run")
"""Devices and sockets: overlays would break them."""
DEVICE_DIRECTORIES = ("/dev", "/proc", "/sys")
"""Directories without files of the job."""
KERNEL_TYPES = frozenset([
    "binfmt_misc", "bpf", "cgroup", "cgroup2", "debugfs", "devpts", "devtmpfs", "fusectl",
    "mqueue", "nsfs", "proc", "pstore", "securityfs", "sysfs", "tracefs",
])  # fmt: skip
"""Types of file systems whose files are the kernel's, as in `/proc` of another root."""
MAX_ENTRIES = 20_000
"""Entries of a real directory that are checked; a larger one counts as writable."""

libc = ctypes.CDLL(None, use_errno=True)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one trial to its report, its end, or its time limit.

    Args:
        request: `command`, `directory`, `environment` and `timeout_s` of the job; `scratch`, a
            directory to make, with the `report` to wait for in it, and the `early_report`, which
            counts if the job ends without the other; `parent`, the process that asks; `isolate`,
            False to run the job as it is.

    Returns:
        `report` of the job or None; `exit_code`, None if it was killed; `timed_out`; the end of its
        `output`; `is_isolated`; and `shared_paths`, paths at which its writes are real.
        Where isolation is asked for and not possible, nothing runs and `is_isolated` is False.
    """
    _die_with_parent(request["parent"], signal.SIGTERM)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)
    if request["isolate"]:
        return _run_isolated(request) or {"is_isolated": False, "report": None}
    return _run_here(request)


def _run_isolated(request: dict[str, Any]) -> dict[str, Any] | None:
    """Run the job in namespaces; None where they cannot be made."""
    reader, writer = os.pipe()
    supervisor = os.getpid()
    builder = os.fork()
    if not builder:
        os.close(reader)
        _end_after(lambda: _build(request, supervisor, writer))
    os.close(writer)
    try:
        with os.fdopen(reader) as stream:
            text = stream.read()
        _, status = os.waitpid(builder, 0)
    except BaseException:  # SIGTERM: the builder's end kills the namespace
        os.kill(builder, signal.SIGKILL)
        os.waitpid(builder, 0)
        raise
    if os.waitstatus_to_exitcode(status) == NOT_ISOLATED:
        return None
    answer: dict[str, Any] = json.loads(text or '{"report": null, "exit_code": null}')
    return answer | {"is_isolated": True}


def _build(request: dict[str, Any], supervisor: int, writer: int) -> int:
    """Enter the namespaces, fork their first process and wait for it."""
    _die_with_parent(supervisor, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if not _enter_namespaces():
        return NOT_ISOLATED
    init = os.fork()
    if not init:
        os.close(0)
        _end_after(lambda: _be_init(request, writer))
    os.close(writer)
    _, status = os.waitpid(init, 0)
    return os.waitstatus_to_exitcode(status)


def _be_init(request: dict[str, Any], writer: int) -> int:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        shared_paths = _cover_file_systems()
        Path(request["scratch"]).mkdir(parents=True)
    except OSError as error:
        print(f"stepscope: cannot isolate the trial: {error}", file=sys.stderr)
        return NOT_ISOLATED
    answer = _watch(request) | {"shared_paths": shared_paths}
    with os.fdopen(writer, "w") as stream:
        json.dump(answer, stream)
    return 0


def _enter_namespaces() -> bool:
    if libc.unshare(CLONE_NEWNS | CLONE_NEWPID) == 0:  # root
        return True
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) != 0:
        return False
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError:
        return False
    return True


class _Cover:
    """Root directory of the job: overlays of the file systems of this machine.

    A user without privileges cannot overlay a directory that has mounts below it; then each of its
    subdirectories gets an overlay, and its own files stay real.
    """

    def __init__(self) -> None:
        self.root = f"{SHARED_MEMORY}/root"
        self.shared_paths: list[str] = []
        """Real directories and files in which this user may write."""
        self._layer_count = 0
        self._mount_points = _list_mount_points()

    def add(self, path: str) -> None:
        """Overlay a directory and the file systems below it."""
        is_real = _is_below(path, *REAL_DIRECTORIES) or self._is_of_kernel(path)
        if is_real or not os.path.isdir(path):
            self._share(path)
            return
        below = [point for point in self._mount_points if point != path and _is_below(point, path)]
        try:
            self._overlay(path)
            parts = [
                point
                for point in below
                if not any(_is_below(point, p) for p in below if p != point)
            ]
        except OSError:
            parts = _list_subdirectories(path) if below else []
            self._share(path, covered=parts)
        for part in parts:
            self.add(part)

    def _share(self, path: str, covered: Sequence[str] = ()) -> None:
        """Leave a path real, except for subdirectories that are covered afterwards."""
        self._bind(path)
        if not self._is_of_kernel(path):
            self.shared_paths += _find_writable(path, frozenset(covered))

    def _is_of_kernel(self, path: str) -> bool:
        is_mounted = self._mount_points.get(path) in KERNEL_TYPES
        return is_mounted or _is_below(path, *DEVICE_DIRECTORIES)

    def _overlay(self, path: str) -> None:
        self._layer_count += 1
        upper, work = (f"{SHARED_MEMORY}/{self._layer_count}/{name}" for name in ("upper", "work"))
        for directory in (upper, work):
            os.makedirs(directory)
        stat = os.stat(path)
        os.chmod(upper, stat.st_mode & 0o7777)
        if os.geteuid() == 0:
            os.chown(upper, stat.st_uid, stat.st_gid)
        lower = re.sub(r"([\\,:])", r"\\\1", path)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        try:
            _mount("overlay", self.root + path, "overlay", 0, options)
        except OSError:
            _mount("overlay", self.root + path, "overlay", 0, options + ",userxattr")

    def _bind(self, path: str) -> None:
        if path == "/proc":
            return
        try:
            _mount(path, self.root + path, None, MS_BIND | MS_REC, None)
        except OSError:  # the job does not see it
            if path == "/":
                raise


def _list_subdirectories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except PermissionError:
        return []


def _find_writable(path: str, covered: frozenset[str] = frozenset()) -> list[str]:
    """Find the outermost paths below a real one in which this user may write.

    Directories that cannot be listed, and large ones, count as writable.

    Args:
        covered: subdirectories to leave out.
    """
    paths, pending, entry_count = [], [path], 0
    while pending:
        directory = pending.pop()
        if os.access(directory, os.W_OK):
            paths.append(directory)
            continue
        if not os.path.isdir(directory) or not os.access(directory, os.X_OK):
            continue
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    entry_count += 1
                    if entry_count > MAX_ENTRIES:
                        return [path]
                    if entry.is_dir(follow_symlinks=False):
                        if entry.path not in covered:
                            pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False) and os.access(entry.path, os.W_OK):
                        paths.append(entry.path)
        except OSError:
            paths.append(directory)
    return sorted(paths)


def _cover_file_systems() -> list[str]:
    """Enter a root whose writes are discarded; return the writable paths that are real.

    Raises:
        OSError: there is no such root.
    """
    stat = os.statvfs(SHARED_MEMORY)
    _mount("none", "/", None, MS_REC | MS_PRIVATE, None)
    cover = _Cover()
    _mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    os.mkdir(cover.root)
    cover.add("/")
    _mount("proc", f"{cover.root}/proc", "proc", MS_NOSUID | MS_NODEV, None)
    options = f"mode=1777,size={stat.f_frsize * stat.f_blocks}"
    _mount("tmpfs", cover.root + SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.chroot(cover.root)
    os.chdir("/")
    return cover.shared_paths


def _list_mount_points() -> dict[str, str]:
    """List the mount points of this machine with their types of file systems, outer ones first."""
    types = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, file_system = line.partition(" - ")
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mount.split()[4])
        types[path] = file_system.split()[0]  # of several at one path, the last one is visible
    return dict(sorted(types.items()))


def _mount(source: str, target: str, fs_type: str | None, flags: int, options: str | None) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, fs_type)]
    data = None if options is None else options.encode()
    if libc.mount(*arguments, ctypes.c_ulong(flags), data) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount of {target}: {os.strerror(code)}")


def _is_below(path: str, *directories: str) -> bool:
    """Return True for the directories and for paths below them."""
    return any(f"{path}/".startswith(f"{directory.rstrip('/')}/") for directory in directories)


def _run_here(request: dict[str, Any]) -> dict[str, Any]:
    """Run the job as it is, and end all its processes."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    scratch = Path(request["scratch"])
    scratch.mkdir(parents=True, mode=0o700)
    try:
        return _watch(request) | {"is_isolated": False, "shared_paths": ["/"]}
    finally:
        _ignore_signals()
        _kill_descendants()
        shutil.rmtree(scratch, ignore_errors=True)


def _watch(request: dict[str, Any]) -> dict[str, Any]:
    """Start the job; return when its report exists, when it has ended, or at the time limit."""
    report, log = Path(request["report"]), Path(request["scratch"], "output")
    with log.open("wb") as output:
        try:
            job = subprocess.Popen(
                request["command"],
                cwd=request["directory"],
                env=request["environment"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_unblock_signals,  # noqa: PLW1509 - one thread
            )
        except OSError as error:
            return {"report": None, "exit_code": 127, "timed_out": False, "output": str(error)}
    deadline = time.monotonic() + request["timeout_s"]
    exit_code = None
    while not report.exists() and time.monotonic() < deadline:
        pid, status = _reap()
        if pid == job.pid:
            exit_code = os.waitstatus_to_exitcode(status)
            break
        if not pid:
            time.sleep(POLL_S)
    job.returncode = 0 if exit_code is None else exit_code  # reaped here, or killed below
    if exit_code is not None and not report.exists():
        report = Path(request["early_report"])
    text = report.read_text() if report.exists() else None
    return {
        "report": None if text is None else json.loads(text),
        "exit_code": exit_code,
        "timed_out": text is None and exit_code is None,
        "output": log.read_bytes()[-TAIL_BYTES:].decode(errors="replace"),
    }


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _reap() -> tuple[int, int]:
    """Collect one child that has ended; (0, 0) for none."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def _kill_descendants() -> None:
    """Kill all descendants; new ones appear while their parents die."""
    while pids := _find_descendants():
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        while _reap()[0]:
            pass
        time.sleep(0.01)


def _find_descendants() -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    descendants = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= more
    return sorted(descendants - {os.getpid()})


def _die_with_parent(parent: int, number: signal.Signals) -> None:
    libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def _exit(number: int, frame: object) -> None:
    _ignore_signals()
    sys.exit(128 + number)


def _ignore_signals() -> None:
    """Let no further signal interrupt the clean-up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # SIG_IGN would warn of a signal that has arrived


def _end_after(work: Any) -> None:
    """End a forked process with the status that its work returns."""
    code = 1
    try:
        code = work()
    except BaseException as error:  # noqa: BLE001 - a forked process must not return
        print(f"stepscope: {error!r}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _unblock_signals()
    json.dump(run(json.load(sys.stdin)), sys.stdout)
