"""Library mode: `start_profiling` and `stop_profiling` in a script.

Under `stepscope run` they resume and pause the recording. Otherwise they do the work of
`stepscope run`: create a spool, load the adapters into this process and its children, start a
monitor process, and notify the monitor at the end.
"""

from __future__ import annotations

import os
import sys
import time

from stepscope.capture import session
from stepscope.capture.notebook import show_verdict
from stepscope.capture.run_location import find_location
from stepscope.errors import UsageError, explain_os_error
from stepscope.job_environment import identify_job
from stepscope.spool import (
    SHARED_MEMORY_FACTOR,
    SPOOL_VARIABLE,
    ScheduledWindows,
    StepSchedule,
    reserve_refusals,
    write_schedules,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from stepscope.job_environment import JobIdentity

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a file system in memory, not a scratch file
KINETO_LINK = "kineto"
"""Symbolic link to the directory of Kineto's sockets; the monitor removes both together."""
EXIT_FILE = "job-exit.json"
"""Exit status of the job; the monitor reads it as `JobExit`."""
MAX_INTERVAL_MS = 60_000
MONITOR_TIMEOUT_S = 20.0
"""Time that the monitor gets to store the last records before the job exits without it."""

_library_run: _LibraryRun | None = None
_registered = False


def start_profiling(
    run: str | None = None,
    *,
    interval_ms: int = 500,
    schedule: StepSchedule | None = None,
    windows: bool = True,
) -> None:
    """Start recording. A second call does nothing.

    Args:
        run: directory of the run, which the processes of one distributed job share. Default:
            stepscope-runs/<time>-<script>, or the name of the job. Ignored under `stepscope run`,
            which creates the run.
        interval_ms: milliseconds between samples of the node. Ignored under `stepscope run`.
        schedule: steps to record in detail on all ranks; ignored under `stepscope run`, which
            has `--schedule`.
        windows: record detailed windows; ignored under `stepscope run`, which has `--window`.

    Raises:
        RunExistsError: the directory already contains a run, and not of this job.
        UsageError: the interval is out of range, or `run` is a URL.
    """
    global _library_run
    if os.environ.get(SPOOL_VARIABLE):
        session.resume()
        return
    if not 0 < interval_ms <= MAX_INTERVAL_MS:
        raise UsageError(f"interval_ms must be between 1 and {MAX_INTERVAL_MS}, not {interval_ms}")
    try:
        identity = identify_job(os.environ, ())
        location = find_location(run, identity)
        _register()  # before the adapters, whose last records at exit precede the end of the run
        _library_run = _LibraryRun(location, identity, interval_ms, schedule, windows=windows)
    except OSError as error:  # the job must run even if it cannot be recorded
        session.warn(f"the job is not recorded: {explain_os_error(error)}")


def stop_profiling() -> None:
    """Stop recording and complete a run that `start_profiling` created; in a notebook, show its
    verdict under the cell.

    Also called at exit. A second call does nothing.
    """
    if _library_run is None or _library_run.pid != os.getpid():
        session.pause()
    else:
        _end(exit_code=0, signal=None, in_cell=True)


class _LibraryRun:
    """A run started by this process, with its spool and its monitor.

    Raises:
        OSError: no spool can be created, or the monitor cannot be started.
    """

    def __init__(
        self,
        location: str,
        identity: JobIdentity | None,
        interval_ms: int,
        schedule: StepSchedule | None,
        *,
        windows: bool,
    ) -> None:
        from stepscope.capture.bootstrap import activate, environment
        from stepscope.capture.kineto_daemon import make_directory

        self.pid = os.getpid()
        self.location = location
        self._identity = identity
        limit = session.DEFAULT_LIMIT_BYTES
        self.spool = _make_spool(limit)
        self.kineto = make_directory()
        if schedule is not None:
            write_schedules(self.spool, [ScheduledWindows(**schedule.settings)])
        self._log = os.memfd_create("stepscope-log")  # no disk needs room for it
        self.monitor = self._start_monitor(limit, interval_ms, schedule, windows=windows)
        variables = environment(self.spool, limit, self.kineto)
        self._original_environment = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        session.attach(self.spool, limit)
        activate()

    def end(self, *, exit_code: int | None, signal: int | None, in_cell: bool) -> None:
        """Pass the exit status to the monitor, and wait until the run is complete.

        Args:
            in_cell: the script ends the run, in a cell if it is a notebook.
        """
        window = sys.modules.get("stepscope.capture.frameworks.windows")
        if window is not None:
            window.finish()
        stacks = sys.modules.get("stepscope.capture.stacks")
        if stacks is not None:
            stacks.stop()
        session.detach()
        for name, value in self._original_environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        now_ns = time.monotonic_ns()
        status = {"exit_code": exit_code, "signal": signal, "ended_monotonic_ns": now_ns}
        try:
            self._write_exit(status)
        except OSError as error:
            session.warn(f"cannot notify the monitor that the job has ended: {error}")
        self._await_monitor(in_cell=in_cell)

    def _start_monitor(
        self, limit: int, interval_ms: int, schedule: StepSchedule | None, *, windows: bool
    ) -> subprocess.Popen[bytes]:
        import json
        import subprocess

        config = {
            "run": self.location,
            "create": {
                "run_id": os.path.basename(self.location),
                "command": list(getattr(sys, "orig_argv", sys.argv)),
                "working_directory": os.getcwd(),
                "job": None if self._identity is None else self._identity.text,
                "is_unique": self._identity is None or self._identity.is_unique,
            },
            "spool": self.spool,
            "spool_limit_bytes": limit,
            "job_pid": self.pid,
            "launcher_pid": None,
            "interval_ms": interval_ms,
            "windows": {
                "enabled": windows,
                "kineto_directory": self.kineto,
                "schedules": [] if schedule is None else [schedule.settings],
            },
        }
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        paths = [os.path.dirname(package), os.environ.get("PYTHONPATH")]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "OMP_NUM_THREADS": "1",
        }
        if self.kineto is not None:
            os.symlink(self.kineto, os.path.join(self.spool, KINETO_LINK))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "stepscope.monitor", json.dumps(config)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=variables,
            start_new_session=True,
        )

    def _write_exit(self, status: dict[str, int | None]) -> None:
        import json

        path = os.path.join(self.spool, EXIT_FILE)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(status, file)
        os.replace(path + ".new", path)

    def _await_monitor(self, *, in_cell: bool) -> None:
        import subprocess

        try:
            code = self.monitor.wait(MONITOR_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            session.warn(f"the monitor is still writing the last records to {self.location}")
            return
        if code == 0:
            import shlex

            command = [sys.executable, "-m", "stepscope", "diagnose", self.location]
            if not (in_cell and show_verdict(self.location, shlex.join(command))):
                session.warn(f"run recorded. For the verdict: {shlex.join(command)}")
        else:
            session.warn(
                f"the monitor failed ({_last_line(self._log)}). The records are in {self.spool}"
            )


def _register() -> None:
    global _registered
    if not _registered:
        import atexit

        _registered = True
        atexit.register(_at_exit)


def _at_exit() -> None:
    if _library_run is None or _library_run.pid != os.getpid():  # the end of a forked child
        return
    error = getattr(sys, "last_type", None)  # set if an exception ended the script
    if error is None:
        _end(exit_code=0, signal=None)
    elif issubclass(error, KeyboardInterrupt):
        _end(exit_code=None, signal=2)
    else:
        _end(exit_code=1, signal=None)


def _end(*, exit_code: int | None, signal: int | None, in_cell: bool = False) -> None:
    global _library_run
    if _library_run is not None:
        run, _library_run = _library_run, None
        run.end(exit_code=exit_code, signal=signal, in_cell=in_cell)


def _make_spool(limit_bytes: int) -> str:
    """Create a spool directory.

    It is in shared memory if there is enough room: a store into a page of a file on disk can block
    while the disk is busy. Otherwise, or if it cannot be written, it is in the temporary directory.

    Raises:
        OSError: neither can be written.
    """
    if os.path.isdir(SHARED_MEMORY):
        file_system = os.statvfs(SHARED_MEMORY)
        if file_system.f_bavail * file_system.f_frsize >= SHARED_MEMORY_FACTOR * limit_bytes:
            try:  # not contextlib.suppress: an import of stepscope loads few modules
                return _make_spool_in(SHARED_MEMORY)
            except OSError:
                pass
    return _make_spool_in(None)


def _make_spool_in(base: str | None) -> str:
    import shutil
    import tempfile

    spool = tempfile.mkdtemp(prefix=f"stepscope-{os.getuid()}-", dir=base)
    try:
        reserve_refusals(spool)
    except OSError:
        shutil.rmtree(spool, ignore_errors=True)
        raise
    return spool


def _last_line(log: int) -> str:
    try:
        text = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
    except OSError:  # the job has closed all descriptors
        text = ""
    return text.strip().rpartition("\n")[2] or "no error message"
