"""State of the processes of a job at this moment, from outside: nothing has to be recorded."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import psutil

from stepscope import schema, spool
from stepscope.monitor.attached.target import explain_ptrace, find_py_spy, may_read_memory
from stepscope.monitor.process_accounts import (
    TICKS_PER_S,
    describe_command,
    describe_threads,
    dump_stacks,
)
from stepscope.monitor.process_logs import ThreadStack

WINDOW_S = 2.0
"""Time between the two looks."""
MAX_PROCESSES = 64
MAX_THREADS = 32
WORKER_FILE = "torch/utils/data/_utils/worker.py"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of the processes below one process."""

    processes: list[schema.ProcessAccount]
    """The process itself first."""
    duration_ns: int
    """Time between the two looks, over which CPU time was measured."""
    moved: set[int] = msgspec.field(default_factory=set)
    """Processes whose stacks have changed meanwhile."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What is not known, and why; one sentence each."""


def take_snapshot(pid: int, window_s: float = WINDOW_S) -> Snapshot:
    """Look twice at a process and its descendants."""
    notes = []
    if find_py_spy() is None:
        notes.append("no stacks: py-spy is not installed (pip install py-spy)")
    elif not may_read_memory(pid):
        notes.append(f"no stacks: {'; '.join(explain_ptrace())}")
    pids = _list_tree(pid)
    start_s = time.monotonic()
    before = {pid: _read_stacks(pid, notes) for pid in pids}
    first = {pid: _read_cpu_ticks(pid) for pid in pids}
    measured_s = time.monotonic()
    time.sleep(max(0.0, window_s - (measured_s - start_s)))
    last = {pid: _read_cpu_ticks(pid) for pid in pids}
    seconds = time.monotonic() - measured_s
    accounts, moved = [], set()
    for pid in pids:
        stacks, ticks, earlier = _read_stacks(pid, notes), last[pid], first[pid]
        if ticks is None or earlier is None:  # it has ended meanwhile
            continue
        if {_frames_of(s) for s in stacks} != {_frames_of(s) for s in before[pid]}:
            moved.add(pid)
        cpu_ratio = (ticks - earlier) / TICKS_PER_S / seconds if seconds > 0 else None
        accounts.append(_describe(pid, stacks, cpu_ratio))
    duration_ns = round(1e9 * (time.monotonic() - start_s))
    return Snapshot(processes=accounts, duration_ns=duration_ns, moved=moved, notes=notes)


def _frames_of(stack: ThreadStack) -> tuple[tuple[str, int, str], ...]:
    return tuple(map(tuple, stack.frames))  # type: ignore[arg-type]


def _list_tree(pid: int) -> list[int]:
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return [pid]
    return [pid, *(child.pid for child in children)][:MAX_PROCESSES]


def _read_stacks(pid: int, notes: list[str]) -> list[ThreadStack]:
    """Read the stacks of a Python process; of another one, its threads alone."""
    stacks = [] if notes else dump_stacks(pid)[0]
    if any(stack.frames for stack in stacks):
        return stacks
    threads = []
    try:
        tasks = sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
        for task in tasks[:MAX_THREADS]:
            name = Path(f"/proc/{pid}/task/{task}/comm").read_text(errors="replace").strip()
            threads.append(ThreadStack(thread=name, is_main=task == pid, native_id=task))
    except OSError:  # it has ended
        pass
    return threads


def _read_cpu_ticks(pid: int) -> int | None:
    fields = spool.read_process_fields(pid)
    return None if fields is None else int(fields[11]) + int(fields[12])


def _describe(
    pid: int, stacks: list[ThreadStack], cpu_ratio: float | None
) -> schema.ProcessAccount:
    fields = spool.read_process_fields(pid)
    files = [file for stack in stacks for file, _, _ in stack.frames]
    is_python = bool(files)
    role = "program" if is_python else "child"
    if any(file.endswith(WORKER_FILE) for file in files):
        role = "dataloader_worker"
    is_suspended = spool.is_suspended(pid)
    return schema.ProcessAccount(
        pid=pid,
        parent_pid=0 if fields is None else int(fields[1]),
        role=role,
        state=schema.RankState.SUSPENDED if is_suspended else schema.RankState.ANSWERED,
        command=describe_command(pid),
        cpu_ratio=cpu_ratio,
        threads=describe_threads(pid, stacks),
    )
