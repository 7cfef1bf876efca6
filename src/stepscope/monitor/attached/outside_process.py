"""A process of the job, described in the spool on its behalf."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.job_environment import read_ranks
from stepscope.schema import library_of
from stepscope.spool import (
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

WORKER_FILE = "torch/utils/data/_utils/worker.py"
MAX_FRAMES = 40
"""Innermost frames of a stack that are recorded, as many as capture records."""
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
            library = library_of(frame.file)
            names.append(f"{frame.function}|{frame.file}|{library}".replace(";", ","))
            user_line = user_line if library else frame.line
        stack = ";".join(names)
        meta = self._metas.get(stack)
        if meta is None:
            number = len(self._metas) + 1
            self._journal.write("name", id=number, text=stack, labels=None)
            meta = self._metas[stack] = make_meta(number, Kind.STACK, Flag.MARK)
        self._log.write(meta, t_ns, 0, user_line << 32 | frames[-1].line)

    def follow_windows(self, *, is_fetched: bool) -> None:
        """Report the state of the window that was planned for the process.

        Args:
            is_fetched: libkineto has its configuration.

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
        if is_fetched:
            self._enter(WindowState.RECORDING)
        end_ns = plan.start_ns + (plan.longest_ns or 0) + WINDOW_TIMEOUT_NS
        if Path(finished_file(self._directory, plan.number, self._pid)).exists():
            self._conclude(plan, "window", recorder=plan.recorder, depth=plan.depth)
        elif time.monotonic_ns() > end_ns:
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
    return description | read_ranks(dict(text.split("=", 1) for text in texts)).known
