"""Cores that this process may use, allocations of the threads on them, and worker processes.

Workers are forked while the parent has no thread and no DuckDB: a decoder needs only modules that
are loaded already, and a fork takes a few milliseconds where a new interpreter takes 200.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    Worker = tuple[Connection, Any]
    """The pipe to a process, and the process."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of mallopt(3)."""
_MAX_FREE_BYTES = 64 << 20
"""Freed memory at the end of the heap beyond which it is returned to the system."""
_MAX_HEAP_ARRAY = 32 << 20
"""Largest array on the heap; the GNU C library accepts no more."""


def collect_seldom() -> None:
    """Let the garbage collector of this process run less often.

    Imports create many objects and hardly any cycles: with Python's 700 new objects between two
    collections, these take a tenth of the time of a command.
    """
    gc.set_threshold(50_000)


def available_cores() -> int:
    """Return the number of cores this process may run on; outside of Linux, of all cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_processes() -> int:
    """Return the number of processes that `start_worker` can run at a time; 1 where it cannot."""
    return available_cores() if hasattr(os, "fork") else 1


def limit_arenas() -> None:
    """Let the threads of this process allocate from one arena per core.

    The GNU C library creates up to eight per core, and keeps in each what was freed there: a tenth
    of the memory of a view of many traces. Other libraries have no such limit.
    """
    _set_allocator(_M_ARENA_MAX, available_cores())


def reuse_memory() -> None:
    """Let this process use freed memory again for the next array, large ones too.

    The GNU C library returns it to the system, which clears each page of the next array: a tenth of
    the time of an import.
    """
    _set_allocator(_M_TRIM_THRESHOLD, _MAX_FREE_BYTES)
    _set_allocator(_M_MMAP_THRESHOLD, _MAX_HEAP_ARRAY)


def _set_allocator(option: int, value: int) -> None:
    """Set an option of the GNU C library's allocator; others have none."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(option, value)


def start_worker(work: Callable[..., None], pipes: list[Connection], *arguments: Any) -> Worker:
    """Fork a process that runs `work(pipe, *arguments)`.

    Args:
        work: receives the other end of the returned pipe.
        pipes: pipes to other workers; the new worker closes its copies.
        arguments: further arguments of `work`.
    """
    import multiprocessing  # takes 20 ms, and most imports start no worker

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_run, args=(work, theirs, [*pipes, ours], arguments), daemon=True
    )
    is_collecting = gc.isenabled()
    gc.disable()  # until the worker has frozen the objects it inherits
    try:
        process.start()
    finally:
        if is_collecting:
            gc.enable()
    theirs.close()
    return ours, process


def wait_for(pipes: Sequence[Connection], timeout_s: float | None = None) -> list[Connection]:
    """Wait until pipes have messages or have ended, and return these; none at the timeout."""
    from multiprocessing.connection import wait

    return wait(pipes, timeout_s)  # type: ignore[return-value]


def _run(
    work: Callable[..., None],
    pipe: Connection,
    inherited: list[Connection],
    arguments: tuple[Any, ...],
) -> None:
    gc.freeze()  # the parent may have a DuckDB, whose threads do not exist here
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may have its own handler
    for connection in inherited:
        connection.close()
    work(pipe, *arguments)
