"""`stepscope doctor`: data that can be captured on this machine or of an interpreter, and faults.

Faults of the environment of a job: file systems, limits, and settings of the kernel and of login
sessions that cost data. Each check yields a fault only if it sees one; what cannot be examined here
is not reported.
"""

from __future__ import annotations

import ctypes
import math
import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import click
import msgspec

from stepscope import importers, job_environment, monitor, native_library, quantities
from stepscope.capture.kineto_daemon import make_directory
from stepscope.cli.job import places
from stepscope.cli.job.interpreter import examine_interpreter
from stepscope.cli.job.places import SHARED_MEMORY
from stepscope.cli.options.common import json_option
from stepscope.cli.output import print_json
from stepscope.cli.startup import working_directory
from stepscope.cli.text import console
from stepscope.monitor.samplers import JobTree, build_samplers, most_used_memory_limit
from stepscope.monitor.windows import open_peer
from stepscope.quantities import count, memory, number
from stepscope.spool import SHARED_MEMORY_FACTOR, native

MIN_OPEN_FILES = 1024
"""Usual soft limit; the monitor holds a file per log and four per counted thread."""
MIN_FILE_BYTES = 1 << 30
"""Traces of detailed windows have some hundred megabytes."""
MIN_FREE_INODES = 1_000
MAX_MEMORY_SHARE = 0.9
TIME_ERROR = 5
"""Answer of adjtimex(2) for a clock that is not synchronised:
https://man7.org/linux/man-pages/man2/adjtimex.2.html"""
MIN_USER_UID = 1000
"""First uid of people, whose objects logind removes:
https://www.freedesktop.org/software/systemd/man/latest/logind.conf.html, RemoveIPC="""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Fault of the environment, in three sentences."""

    name: str
    finding: str
    consequence: str
    remedy: str


def find_faults() -> list[Fault]:
    """Examine the environment that a job started here and now would have."""
    return [
        *check_shared_memory(),
        *check_spool(),
        *check_run_directory(),
        *check_open_files(),
        *check_file_size(),
        *check_memory_limit(),
        *check_removal_at_logout(),
        *check_kineto_daemon(),
        *check_hidden_processes(),
        *check_clock(),
    ]


def check_shared_memory() -> Iterator[Fault]:
    """Check that a spool has room in memory."""
    needed = SHARED_MEMORY_FACTOR * monitor.DEFAULT_SPOOL_LIMIT_BYTES
    if not SHARED_MEMORY.is_dir():
        finding = f"{SHARED_MEMORY} does not exist."
    elif (free := shutil.disk_usage(SHARED_MEMORY).free) < needed:
        finding = f"{SHARED_MEMORY} has {memory(free)} free; a spool there needs {memory(needed)}."
    else:
        return
    yield Fault(
        name="shared memory",
        finding=finding,
        consequence="The spool is in the temporary directory, and a training process can wait for "
        "its disk.",
        remedy="Enlarge it (docker run --shm-size=2g), or pass a directory in memory to "
        "the option --spool of stepscope run.",
    )


def check_spool() -> Iterator[Fault]:
    """Check the file system that the spool would be in."""
    directory = next(places.spool_bases(None, monitor.DEFAULT_SPOOL_LIMIT_BYTES), None)
    if directory is None:
        yield Fault(
            name="spool",
            finding="No directory can hold the spool: no temporary directory is writable.",
            consequence="A job runs without being recorded.",
            remedy="Set TMPDIR to a directory of yours, or pass one to the option --spool.",
        )
        return
    yield from _check_room(
        directory,
        name="spool",
        content="the spool",
        option="--spool",
        consequence="What does not fit is not recorded; dropped records are counted.",
    )


def check_run_directory() -> Iterator[Fault]:
    """Check that runs can be written in the working directory."""
    directory = working_directory() / job_environment.RUNS_DIRECTORY
    if not os.access(directory, os.F_OK) and os.access(directory.parent, os.F_OK):
        directory = directory.parent
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        yield Fault(
            name="run directory",
            finding=f"{directory} cannot be written: {error.strerror}.",
            consequence=f"Runs go to {places.private_runs_directory()}.",
            remedy="Change to a directory of yours, or pass one to the option --out.",
        )
        return
    yield from _check_room(
        directory,
        name="run directory",
        content="runs",
        option="--out",
        consequence="Once it is full, records stay in the spool; `stepscope recover RUN` stores "
        "them when there is room.",
    )


def _check_room(
    directory: Path, *, name: str, content: str, option: str, consequence: str
) -> Iterator[Fault]:
    """Check the free space and the free inodes of a file system."""
    status = os.statvfs(directory)
    free_bytes = status.f_bavail * status.f_frsize
    free_inodes = status.f_favail if status.f_files else math.inf  # some do not count them
    if free_bytes < monitor.DEFAULT_SPOOL_LIMIT_BYTES:
        yield Fault(
            name=f"{name}: space",
            finding=f"{directory}, which holds {content}, has {memory(free_bytes)} free.",
            consequence=consequence,
            remedy=f"Free some of it, or pass another directory to the option {option}.",
        )
    if free_inodes < MIN_FREE_INODES:
        yield Fault(
            name=f"{name}: inodes",
            finding=f"{directory}, which holds {content}, has room for {count(free_inodes)} files.",
            consequence=consequence,
            remedy=f"Delete files (df -i), or pass another directory to the option {option}.",
        )


def check_open_files() -> Iterator[Fault]:
    """Check the number of files that a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES:
        return
    can_raise = hard == resource.RLIM_INFINITY or hard >= MIN_OPEN_FILES
    yield Fault(
        name="open files",
        finding=f"A process may open {number(soft)} files (ulimit -n).",
        consequence="The monitor cannot read the logs of many processes at once, nor count the "
        "events of their cores.",
        remedy=f"Raise it with: ulimit -n {MIN_OPEN_FILES}"
        if can_raise
        else f"Raise the hard limit, {number(hard)}, in /etc/security/limits.conf, with "
        "LimitNOFILE= of the service, or with docker run --ulimit.",
    )


def check_file_size() -> Iterator[Fault]:
    """Check the size that a file may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_FILE_BYTES:
        return
    yield Fault(
        name="file size",
        finding=f"A file may have {memory(soft)} (ulimit -f).",
        consequence="Records and traces that would make a file larger are dropped.",
        remedy="Remove the limit with: ulimit -f unlimited"
        if hard == resource.RLIM_INFINITY
        else "Remove the hard limit in /etc/security/limits.conf, or LimitFSIZE= of the service.",
    )


def check_memory_limit(root: Path = Path("/")) -> Iterator[Fault]:
    """Check the use of memory of the control groups.

    Args:
        root: directory used as `/`.
    """
    use = most_used_memory_limit(root)
    if use is None or use.share < MAX_MEMORY_SHARE:
        return
    yield Fault(
        name="memory limit",
        finding=f"{memory(use.used_bytes)} of {memory(use.limit_bytes)} that the cgroup "
        f"{use.directory} allows are used, {quantities.percent(use.share)}.",
        consequence="The kernel kills a process of the job, or the monitor, when it needs more; "
        "`stepscope recover RUN` then stores the rest of the records.",
        remedy="Raise the memory limit of the container or batch job, or keep the spool on disk "
        "with the option --spool.",
    )


def check_removal_at_logout(
    root: Path = Path("/"), uid: int | None = None, spool: Path | None = None
) -> Iterator[Fault]:
    """Check whether logind removes the spool of a user in shared memory at logout.

    Args:
        root: directory used as `/`.
        uid: the user; by default that of this process.
        spool: directory that holds the spool; by default that of a job that starts now.
    """
    uid = os.getuid() if uid is None else uid
    spool = (
        next(places.spool_bases(None, monitor.DEFAULT_SPOOL_LIMIT_BYTES), None)
        if spool is None
        else spool
    )
    if spool != SHARED_MEMORY or uid < MIN_USER_UID or not (root / "run/systemd/system").is_dir():
        return
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    if (root / "var/lib/systemd/linger" / user).exists() or not _removes_at_logout(root):
        return
    yield Fault(
        name="logout",
        finding=f"At the end of the last session of {user}, logind deletes what that user has in "
        f"{SHARED_MEMORY} (RemoveIPC).",
        consequence="A job that continues after a logout loses the records that its monitor has "
        "not stored yet, and goes on in a new spool.",
        remedy="Keep the user's services after logout with: loginctl enable-linger",
    )


def _removes_at_logout(root: Path) -> bool:
    """Read RemoveIPC=, which is on by default; files of later names win."""
    file = Path("systemd/logind.conf")
    paths = [root / "etc" / file]
    for base in ("usr/lib", "run", "etc"):
        paths += (root / base / f"{file}.d").glob("*.conf")
    # A drop-in replaces one of the same name below, and comes after the main file.
    by_name = {path.name if path != paths[0] else "": path for path in paths}
    answer = True
    for _, path in sorted(by_name.items()):
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        for value in re.findall(r"^\s*RemoveIPC\s*=\s*(\w*)", text, flags=re.MULTILINE):
            answer = value.casefold() not in {"no", "false", "off", "0", "n", "f"}
    return answer


def check_kineto_daemon() -> Iterator[Fault]:
    """Check whether another daemon opens windows."""
    if "KINETO_USE_DAEMON" in os.environ:
        yield Fault(
            name="libkineto",
            finding="KINETO_USE_DAEMON is set, so libkineto uses another daemon.",
            consequence="Detailed windows are opened inside the training process, and pause it.",
            remedy="Let the monitor be the daemon with: unset KINETO_USE_DAEMON",
        )


def check_hidden_processes(proc: Path = Path("/proc")) -> Iterator[Fault]:
    """Check whether processes of other users can be seen.

    Args:
        proc: mount of procfs.
    """
    if not (proc / "self/stat").exists():
        return  # the metrics that need it say so
    try:
        (proc / "1/stat").read_bytes()
    except OSError:
        yield Fault(
            name="processes",
            finding="The kernel hides processes of other users (option hidepid of /proc).",
            consequence="Processes of the job that run as another user are not recorded, and "
            "stepscope attach sees your own processes only.",
            remedy="Record as root, or ask for a group that may see them (option gid of /proc).",
        )


def explain_missing_stacks() -> str | None:
    """Say why `stepscope attach` cannot sample stacks here, and what to do; None if it can."""
    if monitor.find_py_spy() is None:
        return "py-spy is not installed. Install it with: pip install py-spy"
    if not _may_read_memory_of_others():
        cause, remedy = monitor.explain_ptrace()
        return f"{cause}. To sample them, {remedy}"
    return None


def _may_read_memory_of_others() -> bool:
    """Return True if this user may read the memory of an own process that is no descendant."""
    # The shell ends at once, and leaves its child to another parent, like a job.
    started = subprocess.run(
        ["sh", "-c", "sleep 10 >&- & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    pid = int(started.stdout)
    try:
        return monitor.may_read_memory(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def check_clock() -> Iterator[Fault]:
    """Check whether the clock is synchronised."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return
    if state == TIME_ERROR:
        yield Fault(
            name="clock",
            finding="The clock of this machine is not synchronised.",
            consequence="In a job on several machines, their times differ by an unknown offset; "
            "times of one machine are exact.",
            remedy="Start chronyd, ntpd or systemd-timesyncd.",
        )


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of data, and its availability on this machine."""

    name: str
    available: bool
    detail: str


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    python: str
    interpreter: list[Check]
    """Answers of the interpreter of a job, if a command was given."""
    checks: list[Check]
    faults: list[Fault]
    """Faults of the environment, as a job started here and now would have it."""


@click.command(
    "doctor",
    help="Check what can be captured on this machine, and which faults of the environment (full "
    "disks, limits, permissions) would cost data. With the interpreter of a job, such as `-- "
    "python`, or the job's command, also what is recorded of its frameworks; the job does not run.",
)
@click.argument("job", nargs=-1, metavar="[-- PYTHON]", type=click.UNPROCESSED)
@json_option("stepscope.cli.commands.doctor.Examination")
def command(job: tuple[str, ...], as_json: bool) -> None:
    examination = examine(job)
    if as_json:
        print_json(examination)
        return
    out = console()
    for check in (*examination.interpreter, *examination.checks):
        mark = "[green]yes[/green]" if check.available else "[yellow]no [/yellow]"
        out.print(f"{mark}  {check.name:<22}", end="")
        out.print(check.detail, markup=False)
    if not examination.faults:
        out.print("\nNo faults of the environment were found.")
        return
    out.print("\n[bold]Faults of the environment[/bold]")
    for fault in examination.faults:
        out.print(f"[yellow]![/yellow]    {fault.name}: {fault.finding} {fault.consequence}")
        out.print(f"     {fault.remedy}", markup=False)


def examine(command: Sequence[str] = ()) -> Examination:
    """Check everything that a recording uses.

    Args:
        command: of a job, or its interpreter.

    Raises:
        UsageError: the command has no interpreter of Python, or it cannot be started.
    """
    answers = examine_interpreter(command) if command else []
    job = JobTree(os.getpid(), lambda: (), lambda: ())
    samplers, missing = build_samplers(job)
    info = monitor.node_info(sample_interval_ns=0, spool="")
    groups = sorted({sampler.group for sampler in samplers})
    checks = [
        *([] if command else [_framework()]),
        _windows(),
        Check(
            name="cores",
            available=True,
            detail=f"{number(info.cores_available)} of {info.cores_total} available to a job",
        ),
        _memory(info.memory_bytes, info.memory_limit_bytes),
        _spool(),
        _stacks_from_outside(),
        *_compiled(),
        *(Check(name=f"{group} metrics", available=True, detail="sampled") for group in groups),
        *(
            Check(name=f"{group} metrics", available=False, detail=reason)
            for group, reason in sorted(missing.items())
        ),
    ]
    return Examination(
        python=sys.version.split()[0],
        interpreter=[
            Check(name=n, available=is_recorded, detail=d) for n, is_recorded, d in answers
        ],
        checks=checks,
        faults=find_faults(),
    )


def _framework() -> Check:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Check(
            name="PyTorch adapters",
            available=False,
            detail="torch is not installed in this environment; for that of a job, add `-- python`",
        )
    return Check(name="PyTorch adapters", available=True, detail=f"torch {version}")


def _windows() -> Check:
    """Check with a real socket whether libkineto can reach the monitor."""
    name = "detailed windows"
    if "KINETO_USE_DAEMON" in os.environ:
        return Check(
            name=name,
            available=True,
            detail="in the training process: KINETO_USE_DAEMON is set, so libkineto uses "
            "another daemon",
        )
    directory = make_directory()
    peer = open_peer(directory)
    try:
        served = peer is not None
    finally:
        if peer is not None:
            peer.close()
        if directory is not None:
            shutil.rmtree(directory)
    detail = "in the training process: no directory has a path short enough for libkineto's sockets"
    if served:
        detail = "by libkineto, without pausing the job"
    return Check(name=name, available=True, detail=detail)


def _memory(total: int | None, limit: int | None) -> Check:
    limited = "" if limit is None else f", limited to {memory(limit)} by the cgroup"
    return Check(name="memory", available=True, detail=memory(total) + limited)


def _stacks_from_outside() -> Check:
    reason = explain_missing_stacks()
    detail = reason or "sampled by py-spy"
    return Check(name="stacks with attach", available=reason is None, detail=detail)


def _compiled() -> list[Check]:
    available, decoder = importers.trace_decoder()
    recorder = "the library in C" if native else "Python, at two to four times the cost of C"
    are_built, by = native_library.describe_libraries(Path(job_environment.__file__).parent)
    return [
        Check(name="fast recording", available=native is not None, detail=f"by {recorder}"),
        Check(name="fast import of traces", available=available, detail=f"decoded {decoder}"),
        Check(name="fast analyses", available=are_built, detail=f"by {by}"),
    ]


def _spool() -> Check:
    base = next(places.spool_bases(None, monitor.DEFAULT_SPOOL_LIMIT_BYTES), None)
    if base is None:
        detail = "span logs go nowhere: no temporary directory is writable"
    elif base == SHARED_MEMORY:
        detail = f"{SHARED_MEMORY}, {memory(shutil.disk_usage(SHARED_MEMORY).free)} free"
    else:
        detail = f"span logs go to {base}"
    return Check(name="spool in memory", available=base == SHARED_MEMORY, detail=detail)
