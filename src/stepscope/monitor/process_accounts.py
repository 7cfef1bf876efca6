"""Description of processes that make no progress: their stacks, and their state in the kernel.

The kernel tells of each thread whether it runs or waits, and in which function: wchan of
https://man7.org/linux/man-pages/man5/proc_pid_wchan.5.html. A process that does not tell its stacks
itself is read by py-spy, where that is installed.
"""

from __future__ import annotations

import linecache
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from stepscope import masking, schema, spool
from stepscope.monitor.attached.target import find_py_spy, read_command
from stepscope.monitor.process_logs import ThreadStack

TIMEOUT_S = 5.0
"""Time for all stacks of one account: the monitor reads nothing else meanwhile."""
SOURCE_TIMEOUT_S = 0.5
_UNREADABLE: set[str] = set()
"""Source files that were not read in that time."""
NO_ANSWER = "it does not answer, because a thread holds the interpreter lock"
MAX_FRAMES = 60
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MAX_COMMAND_CHARACTERS = 80


class _Frame(msgspec.Struct):
    name: str
    filename: str = ""
    line: int = 0


class _Thread(msgspec.Struct):
    thread_id: int
    thread_name: str | None = None
    os_thread_id: int | None = None
    frames: list[_Frame] = []


def dump_stacks(pid: int, timeout_s: float = TIMEOUT_S) -> tuple[list[ThreadStack], str]:
    """Read the stacks of all threads of a process with py-spy.

    Args:
        pid: the process.
        timeout_s: time for it; without any the process is not read.

    Returns:
        The stacks, the main thread first, or the reason why there are none.
    """
    program = shutil.which("py-spy") or find_py_spy()
    if program is None:
        return [], "py-spy, which could read its stack, is not installed (pip install py-spy)"
    if timeout_s <= 0:
        return [], "there was no time to read its stack"
    try:
        result = subprocess.run(
            [program, "dump", "--pid", str(pid), "--json", "--nonblocking", "--full-filenames"],
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        threads = msgspec.json.decode(result.stdout, type=list[_Thread])
    except (OSError, subprocess.TimeoutExpired, *schema.MALFORMED_JSON):
        return [], "py-spy could not read its stack"
    stacks = [
        ThreadStack(
            thread=thread.thread_name or str(thread.thread_id),
            is_main=thread.os_thread_id == pid or thread.thread_name == "MainThread",
            native_id=thread.os_thread_id,
            frames=[(frame.filename, frame.line, frame.name) for frame in thread.frames],
        )
        for thread in threads
    ]
    return sorted(stacks, key=lambda stack: not stack.is_main), ""


def make_frames(frames: Iterable[tuple[str, int, str]]) -> list[schema.StackFrame]:
    """Make frames of file, line and function, with the source of lines of the user's code."""
    return [_make_frame(*frame) for frame in frames][:MAX_FRAMES]


def _make_frame(file: str, line: int, function: str) -> schema.StackFrame:
    text = "" if schema.library_of(file) else _read_source(file, line)
    return schema.StackFrame(
        file=file, line=line, function=function, text=masking.mask_text(text.strip()[:200])
    )


def _read_source(file: str, line: int) -> str:
    """Read a line of source; empty where that takes too long: the file system may be what the job
    waits for."""
    lines: list[str] = []

    def read() -> None:
        if Path(file).is_file():
            lines.append(linecache.getline(file, line))

    if file in _UNREADABLE:
        return ""
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(SOURCE_TIMEOUT_S)
    if reader.is_alive():
        _UNREADABLE.add(file)
    return "".join(lines)


def describe_threads(pid: int, stacks: Sequence[ThreadStack]) -> list[schema.ThreadAccount]:
    """Describe the threads of a process that have a stack; without any, the main thread."""
    stacks = stacks or [ThreadStack(thread="MainThread", is_main=True)]
    accounts = []
    for stack in stacks:
        task = pid if stack.is_main and stack.native_id is None else stack.native_id
        state, channel = ("", "") if task is None else read_wait(pid, task)
        accounts.append(
            schema.ThreadAccount(
                name=stack.thread,
                is_main=stack.is_main,
                state=state,
                wait_channel=channel,
                frames=make_frames(stack.frames),
            )
        )
    return accounts


def read_wait(pid: int, thread: int) -> tuple[str, str]:
    """Read the state of a thread, a letter, and the function of the kernel in which it waits; both
    are empty where they are hidden."""
    task = Path(f"/proc/{pid}/task/{thread}")
    fields = spool.read_process_fields(f"{pid}/task/{thread}")
    try:
        channel = (task / "wchan").read_text(encoding="ascii", errors="replace")
    except OSError:
        channel = ""
    return "" if not fields else fields[0].decode(), "" if channel == "0" else channel


def count_waits(pid: int) -> int | None:
    """Count how often the main thread of a process has begun to wait; None if it is hidden."""
    try:
        status = Path(f"/proc/{pid}/task/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("voluntary_")), "")
    return int(line.split()[1]) if line else None


def count_bytes(pid: int) -> int:
    """Count the bytes that a process has read and written; 0 if that is hidden."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


def describe_command(pid: int) -> str:
    """Describe the command of a process in some words, without secrets; empty if it has ended."""
    try:
        words = masking.mask(read_command(pid))
    except OSError:
        return ""
    text = shlex.join([Path(words[0]).name, *words[1:]]) if words else ""
    return text[:MAX_COMMAND_CHARACTERS]


def describe_unrecorded(pid: int, parent_pid: int) -> schema.ProcessAccount:
    """Describe a process of which only the kernel knows. One that has ended is there until its
    parent asks for its exit status, the last field of proc_pid_stat(5)."""
    fields = spool.read_process_fields(pid)
    state, detail = schema.RankState.SILENT, ""
    if fields and fields[0] in {b"Z", b"X"}:
        status = int(fields[-1])
        state = schema.RankState.FAILED if status else schema.RankState.FINISHED
        detail = f"status {os.waitstatus_to_exitcode(status)}"
        if os.WIFSIGNALED(status):
            state, detail = schema.RankState.KILLED, f"signal {os.WTERMSIG(status)}"
    elif spool.is_suspended(pid):
        state = schema.RankState.SUSPENDED
    return schema.ProcessAccount(
        pid=pid,
        parent_pid=parent_pid,
        role="child",
        state=state,
        detail=detail,
        command=describe_command(pid),
        threads=[] if detail else describe_threads(pid, []),
    )
