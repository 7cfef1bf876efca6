"""Configuration, start and handshake of a monitor, and of stepscope's other processes.

Handshake between launcher and monitor, through small files in the spool. Files survive the process
that wrote them: either process may be killed at any time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from stepscope import schema
from stepscope.budget import Budget
from stepscope.capture.kineto_daemon import PREFIX

DEFAULT_INTERVAL_MS = 500
DEFAULT_SPOOL_LIMIT_BYTES = 256 * 1024 * 1024
DEFAULT_FLUSH_S = 5.0
FIRST_FLUSH_S = 2.0
DEFAULT_STUCK_AFTER_S = 30.0
MIN_RUN_BYTES = 4 * 1024 * 1024
"""Minimum for the size limit of a run, whose files are rounded once sixteen are merged into one."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a run that the monitor creates for a script that profiles itself."""

    run_id: str
    command: list[str]
    """Command line with its secrets, which are masked before it is stored."""
    working_directory: str
    job: str | None = None
    """Identity of its job, if that has several processes, which share the run."""
    is_unique: bool = True
    """True if no other job has this identity."""


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for detailed windows."""

    enabled: bool = True
    automatic: bool = True
    """Record a few steps after warm-up on rank 0."""
    on_change: bool = True
    """With `automatic`, record a few steps on all ranks when the job has become slower."""
    schedules: list[schema.WindowSchedule] = []
    keep_raw: bool = False
    """Keep the trace files of the profilers in the run's `raw/`."""
    kineto_directory: str | None = None
    """Directory in which libkineto expects the socket of its daemon, "" for an abstract socket;
    None if it looks for none."""
    by_duration: bool = False
    """libkineto itself ends windows after a duration: no code of stepscope counts steps in the
    job."""


class AttachSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for a job that was running already, and is recorded from outside."""

    py_spy: str | None
    """Path of py-spy; None if stacks cannot be sampled."""
    limits: list[str]
    """What is not recorded, and why, one sentence each."""


class ErrorOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Regular file to which the standard error of the job goes."""

    path: str
    inode: int
    start: int
    """Its size before the job."""


def open_error_output() -> ErrorOutput | None:
    """Look where the standard error of this process goes; None if that is no regular file."""
    try:
        state = os.fstat(2)
        path = Path("/proc/self/fd/2").readlink()
        if not path.is_file() or path.stat().st_ino != state.st_ino:
            return None
    except OSError:
        return None
    return ErrorOutput(path=str(path), inode=state.st_ino, start=state.st_size)


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one node's monitor of one job; JSON on the monitor's command line."""

    run: str
    """Location of the run, which exists unless `create` is set."""
    create: NewRun | None = None
    """Run to create, or to join if another process of the job has created it; the monitor then also
    removes the spool at the end."""
    spool: str
    spool_limit_bytes: int = DEFAULT_SPOOL_LIMIT_BYTES
    job_pid: int
    """PID of the command."""
    launcher_pid: int | None
    """PID of `stepscope run`, which reports the exit status of the command; None in library mode,
    and for a job that was running already."""
    interval_ms: int = DEFAULT_INTERVAL_MS
    flush_s: float = DEFAULT_FLUSH_S
    """Interval at which the spool is drained into new files of the run."""
    first_flush_s: float = FIRST_FLUSH_S
    """The interval in the first seconds of the job."""
    max_run_bytes: int | None = None
    """Size of the node's recorded tables from which the oldest are rounded; None for no limit."""
    budget: Budget = Budget()
    """CPU time and memory of the monitor."""
    windows: WindowSettings = WindowSettings()
    stuck_after_s: float = DEFAULT_STUCK_AFTER_S
    """Time without progress from which the ranks of the job are asked where they are."""
    launcher: schema.LauncherInfo | None = None
    """Launcher of this node, if the run is shared by several; see `store.SharedRun`."""
    attached: AttachSettings | None = None
    """Set for a job that was running already."""
    error_output: ErrorOutput | None = None
    """Where the standard error of the job goes, if that can be read at its end."""
    is_staged: bool = False
    """True if `run` is a staging directory, which is uploaded to an object store."""

    @property
    def node(self) -> str | None:
        """Node of a run that several nodes write; None for the only one."""
        return None if self.launcher is None else self.launcher.node


RESERVED_BYTES = 256
"""Least size of a file of the handshake; the rest of it is blank."""


class JobExit(msgspec.Struct, frozen=True, kw_only=True):
    """Exit status of the command."""

    exit_code: int | None
    signal: int | None
    ended_monotonic_ns: int | None = None
    """Time of the end by the monotonic clock; null from earlier versions."""

    @classmethod
    def of(cls, wait_status: int) -> JobExit:
        """Decode the wait status of a command that has just ended."""
        code = os.waitstatus_to_exitcode(wait_status)
        return cls(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            ended_monotonic_ns=time.monotonic_ns(),
        )


class StopSignal(msgspec.Struct, frozen=True, kw_only=True):
    """Signal that the launcher has sent to the job: forwarded, or because of a stop request."""

    signal: int
    rule: str | None = None
    """Rule that requested the stop, or the alert of a stuck job."""
    by: str | None = None
    """Person who requested the stop."""
    node: str | None = None
    """Node of the same job that was stopped first; None if that is this one."""

    @property
    def is_requested(self) -> bool:
        """True for a stop request; False for a signal from the terminal or the system."""
        return self.rule is not None or self.by is not None

    @property
    def reason(self) -> str:
        """Reason for the stop, as a sentence."""
        location = "" if self.node is None else f" on node {self.node}"
        if self.rule == schema.STUCK_ALERT:
            return (
                f"--on-stuck stopped the job{location} (signal {self.signal}), because it was stuck"
            )
        if self.rule is not None:
            return (
                f"the rule {self.rule} fired{location} and stopped the job (signal {self.signal})"
            )
        if self.by is not None:
            return f"{self.by} stopped the job{location} (signal {self.signal})"
        return f"signal {self.signal} was forwarded to the job"


class Handshake:
    """Files of the handshake in one spool."""

    def __init__(self, spool: Path) -> None:
        self._exit = spool / "job-exit.json"
        self._stop = spool / "job-stop.json"
        self._elsewhere = spool / "job-stop-elsewhere.json"
        self._detached = spool / "detached"

    def reserve(self) -> None:
        """Reserve room for the exit status: the spool may be full when the command ends.

        Raises:
            OSError: the spool cannot be written.
        """
        self._exit.with_name(self._exit.name + ".new").write_bytes(bytes(RESERVED_BYTES))

    def write_exit(self, job_exit: JobExit) -> None:
        """Report that the command has ended."""
        _replace(self._exit, msgspec.json.encode(job_exit))

    def write_stop(self, stop: StopSignal) -> None:
        """Report a signal to the job."""
        _replace(self._stop, msgspec.json.encode(stop))

    def write_stop_elsewhere(self, stop: StopSignal) -> None:
        """Ask the launcher to stop the job as well: it was stopped on another node."""
        _replace(self._elsewhere, msgspec.json.encode(stop))

    def write_detached(self) -> None:
        """Report that the monitor continues with orphaned processes of the command."""
        _replace(self._detached, b"")

    def is_detached(self) -> bool:
        """Check whether the monitor has reported orphaned processes."""
        return self._detached.exists()

    def read_exit(self) -> JobExit | None:
        """Read the exit status of the command; None while it runs, or if it is unknown."""
        try:
            return msgspec.json.decode(self._exit.read_bytes(), type=JobExit)
        except (FileNotFoundError, *schema.MALFORMED_JSON):
            return None

    def read_stop(self) -> StopSignal | None:
        """Read the signal to the job; None without one."""
        return _read_signal(self._stop)

    def read_stop_elsewhere(self) -> StopSignal | None:
        """Read the request to stop the job as another node has done; None without one."""
        return _read_signal(self._elsewhere)


def _read_signal(path: Path) -> StopSignal | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StopSignal)
    except (OSError, *schema.MALFORMED_JSON):
        return None


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)  # somebody may have deleted the spool
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        content = data.ljust(RESERVED_BYTES)
        os.write(descriptor, content)  # without a new block if the file was reserved
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
    temporary.replace(path)


KINETO_LINK = "kineto"
"""Link in the spool to the directory of libkineto's sockets, so that both are removed together."""


SHIMS_LINK = "shims"
"""Link in the spool to the directory of shims, for the same reason."""
SHIMS_PREFIX = "stepscope-shims-"


def open_log() -> int:
    """Return the descriptor of a log in memory: the disks of the run and of the spool may be full
    when there is something to say."""
    return os.memfd_create("stepscope-log")


def start_monitor(config: MonitorConfig, log: int) -> subprocess.Popen[bytes]:
    """Start the monitor, with a log of `open_log`."""
    argument = msgspec.json.encode(config).decode()
    return start_beside("stepscope.monitor", argument, log=log)


def start_beside(
    module: str, *arguments: str, log: int, message: bytes = b""
) -> subprocess.Popen[bytes]:
    """Start a module of stepscope in a session of its own, so that Ctrl-C does not reach it.

    Args:
        module: module for `python -m`.
        log: descriptor for its output.
        message: content of its standard input.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE if message else subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, **child_variables()},
        start_new_session=True,
    )
    if process.stdin is not None:
        with process.stdin as stdin:
            stdin.write(message)
    return process


def child_variables() -> dict[str, str]:
    """Return the variables of a process of stepscope, beside those of its parent."""
    package_parent = Path(__file__).resolve().parents[2]
    path = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{package_parent}{os.pathsep}{path}" if path else str(package_parent),
        "OMP_NUM_THREADS": "1",
    }


def last_line(log: int) -> str:
    """Read the last line of a log."""
    text = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
    return text.strip().rpartition("\n")[2] or "its log is empty"


def remove_spool(spool: Path) -> None:
    """Remove a spool and its directories of sockets and shims."""
    for name, prefix in ((KINETO_LINK, PREFIX), (SHIMS_LINK, SHIMS_PREFIX)):
        link = spool / name
        directory = link.readlink() if link.is_symlink() else None
        if directory is not None and directory.name.startswith(prefix):
            shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(spool, ignore_errors=True)
