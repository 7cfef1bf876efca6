"""The process to attach to: whether it can be recorded, and its description in the spool."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope import errors, job_environment, schema
from stepscope.capture.kineto_daemon import TRACE_DIRECTORY_VARIABLE
from stepscope.monitor.windows.kineto_peer import KinetoPeer, address_of
from stepscope.monitor.windows.planner import make_lead_ns, make_timed_configuration
from stepscope.quantities import duration
from stepscope.spool import (
    SPOOL_VARIABLE,
    DropCounts,
    Flag,
    Heartbeat,
    Journal,
    Kind,
    SpanLog,
    SpoolTree,
    WindowPlan,
    WindowState,
    finished_file,
    make_meta,
    process_directory,
    process_start_ticks,
)

DAEMON_VARIABLE = "KINETO_USE_DAEMON"
DIRECTORY_VARIABLE = "KINETO_IPC_SOCKET_DIR"
DEFAULT_TRACE_DIRECTORY = "/tmp"  # noqa: S108 - that of libkineto
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
ONLY_ADMINISTRATORS = 2
"""Value of `ptrace_scope` from which a process needs CAP_SYS_PTRACE; at 1, it may be an ancestor.
https://docs.kernel.org/admin-guide/LSM/Yama.html"""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A process that can be recorded from outside."""

    pid: int
    command: list[str]
    """With its secrets."""
    working_directory: str
    py_spy: str | None
    """Path of py-spy; None if stacks cannot be sampled."""
    kineto_directory: str | None
    """See `WindowSettings`; None if no window can be opened."""
    trace_directory: str | None
    """Directory into which libkineto writes the files of windows; None if none can be opened."""
    limits: list[str]
    """What cannot be recorded, and why, one sentence each."""


class ProcessFacts(NamedTuple):
    """Facts that procfs shows of a process."""

    ticks: int
    command: list[str]
    environment: dict[str, str]
    directory: str


def check_target(pid: int) -> ProcessFacts:
    """Check that a process runs and may be read.

    Raises:
        UsageError: it does not run, or belongs to another user.
    """
    ticks = process_start_ticks(pid)
    if ticks is None:
        raise errors.UsageError(
            f"No process {pid} is running here. List Python processes with: pgrep -af python"
        )
    import psutil  # a monitor never needs it

    if pid in {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}:
        raise errors.UsageError(
            f"Process {pid} started this command itself; pass the PID of the job, for example of "
            "its Python process: pgrep -af python"
        )
    try:
        command, environment = read_command(pid), _read_environment(pid)
        directory = str(Path(f"/proc/{pid}/cwd").readlink())
    except PermissionError:
        raise errors.UsageError(_explain_owner(pid)) from None
    except OSError:
        raise errors.UsageError(f"Process {pid} has just ended.") from None
    if not any(command):
        raise errors.UsageError(
            f"Process {pid} has no command line: it is a thread of the kernel, or is just starting."
        )
    return ProcessFacts(ticks, command, environment, directory)


def examine_target(pid: int) -> Target:
    """Examine a process to attach to.

    Raises:
        UsageError: it does not run, belongs to another user, or is recorded already.
    """
    ticks, command, environment, directory = check_target(pid)
    spool = environment.get(SPOOL_VARIABLE)
    if spool is not None and Path(spool).is_dir():
        raise errors.UsageError(
            f"Process {pid} is recorded by stepscope already; see its run with: stepscope watch RUN"
        )
    age_ns = time.time_ns() - started_ns_of(ticks)
    py_spy, no_stacks = _find_py_spy(pid)
    kineto_directory, no_windows = _find_kineto(environment, Path(f"/proc/{pid}").stat().st_uid)
    return Target(
        pid=pid,
        command=command,
        working_directory=directory,
        py_spy=py_spy,
        kineto_directory=kineto_directory,
        trace_directory=None if kineto_directory is None else _find_trace_directory(environment),
        limits=[
            f"attached from outside {duration(age_ns)} after the process started: nothing before "
            "that, no steps, no phases and no times of batches were recorded",
            *no_stacks,
            *no_windows,
        ],
    )


def _read_environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _explain_owner(pid: int) -> str:
    """Say who may record a process that this user may not."""
    uid = Path(f"/proc/{pid}").stat().st_uid
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = f"#{uid}"
    again = [sys.executable, "-m", "stepscope", "attach", str(pid)]
    if uid == os.getuid():
        return (
            f"The kernel hides process {pid} from other processes of its user, as it does for "
            f"programs with special rights; attach as root: {shlex.join(['sudo', *again])}"
        )
    return (
        f"Process {pid} belongs to the user {owner}; attach as that user: "
        f"{shlex.join(['sudo', '-u', owner, *again])}"
    )


def _find_py_spy(pid: int) -> tuple[str | None, list[str]]:
    """Find py-spy; return its path, or the reason why stacks cannot be sampled."""
    program = find_py_spy()
    if program is None:
        return None, ["no stack samples: py-spy is not installed (pip install py-spy)"]
    if not may_read_memory(pid):
        return None, [f"no stack samples: {'; '.join(explain_ptrace())}"]
    return program, []


def find_py_spy() -> str | None:
    """Find py-spy, first beside this Python; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def may_read_memory(pid: int) -> bool:
    """Return True if this user may read the memory of a process, as samplers of stacks do.

    It takes the right PTRACE_MODE_ATTACH_FSCREDS:
    https://man7.org/linux/man-pages/man2/ptrace.2.html
    """
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except OSError:
        return False
    return True


def explain_ptrace(path: Path = PTRACE_SCOPE) -> tuple[str, str]:
    """Say which setting keeps this user from reading the memory of a process, and the remedy."""
    try:
        scope = int(path.read_text())
    except (OSError, ValueError):
        scope = 0
    if scope > ONLY_ADMINISTRATORS:
        return (
            f"kernel.yama.ptrace_scope is {scope}, which forbids it until the next boot",
            "set it in /etc/sysctl.d and boot",
        )
    if scope == ONLY_ADMINISTRATORS:
        return "kernel.yama.ptrace_scope is 2, which allows it to root only", "attach with sudo"
    if scope:
        return (
            "kernel.yama.ptrace_scope is 1, which allows it to ancestors of the job only",
            "attach with sudo, or allow it with: sudo sysctl kernel.yama.ptrace_scope=0",
        )
    return (
        "the kernel refuses to read the memory of the process",
        "attach as root, in a container started with --cap-add SYS_PTRACE",
    )


def _find_kineto(environment: dict[str, str], uid: int) -> tuple[str | None, list[str]]:
    """Find the directory of libkineto's sockets; otherwise the reason why there are no windows.

    Args:
        environment: that of the job.
        uid: user of the job, who writes the files of windows into the spool of this user.
    """
    if not environment.get(DAEMON_VARIABLE):
        return None, [
            f"no detailed windows: the job was started without {DAEMON_VARIABLE}=1, with which "
            "PyTorch listens to `stepscope capture RUN --seconds 2`"
        ]
    if uid != os.getuid():
        return None, ["no detailed windows: attach as the user of the job to open some"]
    directory = environment.get(DIRECTORY_VARIABLE, "")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address_of(Path(directory) if directory else None))
        except OSError:  # no daemon serves libkineto
            return directory, []
    return None, ["no detailed windows: another daemon serves libkineto on this node"]


def _find_trace_directory(environment: dict[str, str]) -> str:
    """Return the only directory into which libkineto writes on request, from PyTorch 2.15 on
    (https://github.com/pytorch/kineto/pull/1426)."""
    return environment.get(TRACE_DIRECTORY_VARIABLE) or DEFAULT_TRACE_DIRECTORY


WORKER_FILE = "torch/utils/data/_utils/worker.py"
MAX_FRAMES = 40
"""Innermost frames of a stack that are recorded, as many as capture records."""
MAX_REFUSALS = 3
"""Times that a window is offered again."""
WINDOW_TIMEOUT_NS = 60_000_000_000
"""Time after the planned end of a window after which a missing file means that there is none."""


class OutsideFrame(NamedTuple):
    """One frame of a stack."""

    function: str
    file: str
    line: int


class OutsideProcess:
    """Recorder of one process, in a directory of the spool that is named as its own would be.

    Args:
        tree: the spool.
        pid: the process.
        stack: a stack of its main thread, which tells a DataLoader worker; empty if unknown.
        period_ns: sampling period of its stacks.

    Raises:
        ProcessLookupError: it has ended.
        OSError: the spool cannot be written.
    """

    def __init__(
        self, tree: SpoolTree, pid: int, stack: list[OutsideFrame], period_ns: int
    ) -> None:
        ticks = process_start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(f"process {pid} has ended")
        self._pid = pid
        self._directory = process_directory(tree.root, pid, ticks)
        Path(self._directory).mkdir(mode=0o700)
        self._journal = Journal(f"{self._directory}/journal.jsonl")
        is_worker = any(frame.file.endswith(WORKER_FILE) for frame in stack)
        role = "dataloader_worker" if is_worker else "main"
        self._journal.write("process", **_describe(pid, ticks), role=role)
        self._journal.write("fact", fact="stack_sampler", period_ns=period_ns)
        self._log = SpanLog(tree, self._directory, pid, "f", DropCounts.create(self._directory))
        self._metas: dict[str, int] = {}
        self._heartbeat: Heartbeat | None = None
        self._window: WindowPlan | None = None
        self._refusals = 0
        self._finished_count = 0

    def write_stack(self, frames: list[OutsideFrame], t_ns: int) -> None:
        """Append one stack sample.

        Args:
            frames: outermost first.
            t_ns: monotonic time.

        Raises:
            OSError: the name of a new stack cannot be written to the journal.
        """
        names, user_line = [], 0
        for frame in frames[-MAX_FRAMES:]:
            library = schema.library_of(frame.file)
            names.append(f"{frame.function}|{frame.file}|{library}".replace(";", ","))
            user_line = user_line if library else frame.line
        stack = ";".join(names)
        meta = self._metas.get(stack)
        if meta is None:
            number = len(self._metas) + 1
            self._journal.write("name", id=number, text=stack, labels=None)
            meta = self._metas[stack] = make_meta(number, Kind.STACK, Flag.MARK)
        self._log.write(meta, t_ns, 0, user_line << 32 | frames[-1].line)

    def follow_windows(self, peer: KinetoPeer) -> None:
        """Report the state of the window that was planned for the process.

        A window that libkineto has not recorded although it had its configuration in time is
        offered again: it looks once a second whether a window is due, and refuses one if it looks
        a moment later than the warm-up had to start
        (https://github.com/pytorch/kineto/blob/main/libkineto/src/AsyncActivityProfilerHandler.cpp).

        Raises:
            OSError: the spool cannot be written.
        """
        if self._heartbeat is None:
            self._heartbeat = Heartbeat.create(self._directory)
        if self._window is None and self._heartbeat.issued[1] > self._finished_count:
            self._window = WindowPlan.read(self._directory, self._finished_count)
            self._enter(WindowState.WAITING)
        plan = self._window
        if plan is None:
            return
        is_fetched = not peer.has_offer(self._pid)
        if is_fetched:
            self._enter(WindowState.RECORDING)
        end_ns = plan.start_ns + (plan.longest_ns or 0)
        idle_ns = 1e9 * (peer.last_idle_poll(self._pid) or 0)
        if Path(finished_file(self._directory, plan.number, self._pid)).exists():
            self._conclude(plan, "window", recorder=plan.recorder, depth=plan.depth)
        elif is_fetched and idle_ns > end_ns and self._refusals < MAX_REFUSALS:
            self._refusals += 1
            lead_ns = make_lead_ns([peer.poll_interval_s(self._pid)], is_timed=True)
            plan.start_ns = time.monotonic_ns() + lead_ns
            peer.offer(self._pid, make_timed_configuration(plan, self._directory))
        elif time.monotonic_ns() > end_ns + WINDOW_TIMEOUT_NS:
            why = "libkineto wrote no file"
            self._conclude(plan, "window_missed", why=why)

    def _conclude(self, plan: WindowPlan, fact: str, **fields: Any) -> None:
        if fact == "window":  # its steps are not known: nothing in the process counts them
            fields |= {"options": list(plan.options), "first_step": 0, "step_count": 0}
        self._journal.write(
            "fact",
            fact=fact,
            number=plan.number,
            reason=plan.reason,
            request=plan.request,
            **fields,
        )
        self._enter(WindowState.OVER)
        self._window = None
        self._refusals = 0
        self._finished_count += 1

    def _enter(self, state: int) -> None:
        if self._heartbeat is not None:
            self._heartbeat.window = self._finished_count, state


def read_command(pid: int) -> list[str]:
    """Read the command line of a process.

    Raises:
        OSError: it has ended, or is hidden.
    """
    words = Path(f"/proc/{pid}/cmdline").read_bytes().removesuffix(b"\0").split(b"\0")
    return [word.decode(errors="replace") for word in words]


def started_ns_of(ticks: int) -> int:
    """Return the start of a process in epoch nanoseconds.

    Args:
        ticks: clock ticks from boot to its start.
    """
    since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + since_boot_ns


def _describe(pid: int, ticks: int) -> dict[str, Any]:
    """Describe a process by procfs; whatever is hidden from this user is missing."""
    proc = Path(f"/proc/{pid}")
    stat = (proc / "stat").read_bytes()
    description: dict[str, Any] = {
        "pid": pid,
        "parent_pid": int(stat[stat.rindex(b")") + 2 :].split()[1]),
        "started_ns": started_ns_of(ticks),
        "command": read_command(pid),
    }
    try:
        variables = (proc / "environ").read_bytes().split(b"\0")
    except OSError:
        return description
    texts = (variable.decode(errors="replace") for variable in variables if b"=" in variable)
    return (
        description | job_environment.read_ranks(dict(text.split("=", 1) for text in texts)).known
    )
