"""Library mode: `start_profiling` and `stop_profiling` in a script or a notebook.

Under `stepscope run` they resume and pause the recording. Otherwise they do the work of
`stepscope run`: create a spool, load the adapters into this process and its children, start a
monitor process, and notify the monitor at the end.

Location of the run of a script that profiles itself. The processes of one distributed job record
into one run, as its launchers do under `stepscope run`: without a directory, its name follows from
the identity of the job, so that all nodes agree on it.
"""

from __future__ import annotations

import os
import sys
import time

from stepscope.capture import session
from stepscope.errors import RunExistsError, StepscopeError, UsageError, explain_os_error
from stepscope.job_environment import RUNS_DIRECTORY, identify_job
from stepscope.spool import (
    SHARED_MEMORY_FACTOR,
    SPOOL_VARIABLE,
    ScheduledWindows,
    StepSchedule,
    machine_id,
    process_parent,
    process_start_ticks,
    reserve_censuses,
    reserve_refusals,
    write_schedules,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    import subprocess
    from typing import Any

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
    if sys.platform != "linux":
        session.warn("the job is not recorded: recording needs Linux")
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
        reserve_censuses(spool)
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


COMPLETED, IN_PROGRESS, STOPPING = "Completed", "InProgress", "Stopping"
"""States of a job in the status of a node."""
HEARTBEAT_TIMEOUT_NS = 60_000_000_000
"""Time without a heartbeat after which a process on another machine counts as ended."""


def find_location(run: str | None, identity: JobIdentity | None) -> str:
    """Find the directory of a run.

    Args:
        run: the directory that the script names; None for a default one.
        identity: the job, if it has several processes.

    Raises:
        RunExistsError: the directory holds a run that this process cannot join.
        UsageError: it is a URL.
    """
    if run is None:
        return _find_default(identity)
    if _is_url(run):
        raise UsageError(
            f"start_profiling cannot record into {run}: it needs a directory. To record into an "
            "object store, start the script with `stepscope run --out URL -- CMD`."
        )
    location = os.path.abspath(run)
    info = _read(location, "run.json")
    if info is not None and not _may_join(location, info, identity):
        if identity is None or info.get("job") is None:
            raise RunExistsError(f"{location} already holds a run. Use a new directory.")
        raise RunExistsError(
            f"{location} already holds a run of the job {info['job']}, and this process belongs to "
            f"the job {identity.text}, or that job has ended. Use a new directory."
        )
    return location


def _find_default(identity: JobIdentity | None) -> str:
    name = _name_by_time() if identity is None else identity.run_name
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        location = os.path.abspath(os.path.join(RUNS_DIRECTORY, name + suffix))
        info = _read(location, "run.json")
        if not os.path.exists(location) or (
            identity is not None and (info is None or _may_join(location, info, identity))
        ):
            return location
        number += 1


def _may_join(location: str, info: dict[str, Any], identity: JobIdentity | None) -> bool:
    if identity is None or info.get("job") != identity.text:
        return False
    # The next job may have the same name where a person has chosen it.
    return identity.is_unique or _is_of_this_start(location)


def _is_of_this_start(location: str) -> bool:
    """Return True unless the job of a run has ended.

    After a failure it goes on where the agent that has started one of its processes, such as that
    of torchrun, has started this one, too.
    """
    launchers = _list_launchers(location)
    if not launchers or any(_is_alive(*launcher) for launcher in launchers):
        return True
    has_completed = all(status.get("state") == COMPLETED for _, status in launchers)
    agents = [(launcher.get("machine"), launcher.get("parent")) for launcher, _ in launchers]
    return not has_completed and (machine_id(), process_parent()) in agents


def _list_launchers(location: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """List the launchers of a run, each with the status of its node, empty before the first; a
    heartbeat is as late as the file system or the clock of the node says."""
    directory = os.path.join(location, "launchers")
    launchers = []
    for name in os.listdir(directory) if os.path.isdir(directory) else []:
        launcher = _read(directory, name)
        path = os.path.join(location, "nodes", name.removesuffix(".json"), "status.json")
        status = _read(path)
        if launcher is not None and status is not None:
            written_ns = os.stat(path).st_mtime_ns
            heartbeat_ns = max(written_ns, status.get("heartbeat_ns", 0))
            launchers.append((launcher, {**status, "heartbeat_ns": heartbeat_ns}))
        elif launcher is not None:
            launchers.append((launcher, {}))
    return launchers


def _is_alive(launcher: dict[str, Any], status: dict[str, Any]) -> bool:
    """Return True if a launcher runs; on another machine, if its latest heartbeat is recent."""
    if launcher.get("machine") == machine_id():
        ticks = process_start_ticks(launcher.get("pid", 0))
        return ticks is not None and ticks == launcher.get("start_ticks")
    heard_ns = status.get("heartbeat_ns") or launcher.get("registered_ns", 0)
    is_final = status.get("state", IN_PROGRESS) not in {IN_PROGRESS, STOPPING}
    return not is_final and time.time_ns() - heard_ns <= HEARTBEAT_TIMEOUT_NS


def _is_url(location: str) -> bool:
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme.isalnum()  # `re` would take a millisecond in every process


def _read(*parts: str) -> dict[str, Any] | None:
    import json  # only where a run is begun

    try:
        with open(os.path.join(*parts), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _name_by_time() -> str:
    script = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] else "job")
    script = "notebook" if script == LAUNCHER else script
    stem = "".join(c if c.isalnum() or c in "._-" else "-" for c in script.removesuffix(".py"))
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{stem[:40]}"


LAUNCHER = "ipykernel_launcher.py"
"""Script of the kernels of notebooks."""


def show_verdict(run: str, command: str) -> bool:
    """Show the verdict of a run that has ended, if a cell is running.

    Args:
        run: the run.
        command: command that prints the verdict with its details.

    Returns:
        False outside of IPython, and where the run cannot be read.
    """
    interactive: Any = sys.modules.get("IPython")
    if interactive is None or interactive.get_ipython() is None:
        return False
    stepscope: Any = sys.modules["stepscope"]  # which loads what reads runs on first use
    try:
        verdict = stepscope.open(run).verdict()
    except (StepscopeError, ImportError, OSError):
        return False
    from html import escape

    representations = {
        "text/plain": f"{verdict.headline}\n{command}",
        "text/html": f"{verdict._repr_html_()}<p><code>{escape(command)}</code></p>",
    }
    interactive.display.display(representations, raw=True)
    return True
