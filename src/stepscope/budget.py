"""Budget of stepscope's own processes beside a job: CPU time and memory.

The monitor and the watch process of a node divide it. Each measures itself and keeps its part, so
that they need not know of each other.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import pathlib
import re
import sys
from collections.abc import Callable

import msgspec

from stepscope.quantities import memory

MONITOR_CPU_SHARE = 0.75
"""Share of the CPU time that is the monitor's if both processes run: it works at every sample, the
watch process when there are new data."""
MONITOR_MEMORY_SHARE = 0.5
GROWTH_FACTOR = 1.1
"""Growth since freed memory was last returned to the system, from which it is tried again."""
_MADV_DONTNEED = 4
_PURGE_COMMANDS = b"thread.tcache.flush", b"arena.4096.purge"
"""Of mallctl(3) of jemalloc: return what this thread and all arenas keep."""
_CODE = re.compile(
    rb"^(\w+)-(\w+) r-[x-]p .*/(?:_duckdb\.|numpy).*\n(?:\w+: .*\n)*?Anonymous: +0 kB$",
    re.MULTILINE,
)
"""Part of a file in proc_pid_smaps(5)."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the processes of stepscope on one node."""

    cpu_ratio: float = 0.02
    """CPU time as a share of one core."""
    memory_bytes: int = 150_000_000

    def divide(self) -> tuple[Budget, Budget]:
        """Return the parts of the monitor and of the watch process."""
        cpu, size = self.cpu_ratio * MONITOR_CPU_SHARE, self.memory_bytes * MONITOR_MEMORY_SHARE
        monitor = Budget(cpu_ratio=cpu, memory_bytes=round(size))
        watch = Budget(cpu_ratio=self.cpu_ratio - cpu, memory_bytes=self.memory_bytes - round(size))
        return monitor, watch


def read_own_memory_bytes() -> int | None:
    """Read the proportional set size of this process: a page that n processes have in memory counts
    as 1/n of a page, so that sizes of processes add up (proc_pid_smaps(5)). None if the kernel
    does not tell."""
    try:
        with pathlib.Path("/proc/self/smaps_rollup").open("rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    sizes = (line.split()[1] for line in lines if line.startswith(b"Pss:"))
    return next((1024 * int(size) for size in sizes), None)


def trim_heap() -> None:
    """Return free memory to the system: the allocators of the C library and of DuckDB keep what is
    between arrays in use."""
    duckdb = sys.modules.get("_duckdb")
    if duckdb is not None:
        control = getattr(ctypes.CDLL(duckdb.__file__), "duckdb_je_mallctl", None)  # of jemalloc
        if control is not None:
            for command in _PURGE_COMMANDS:
                control(command, None, None, None, ctypes.c_size_t(0))
    libc = None if sys.platform == "win32" else ctypes.CDLL(None)
    trim = getattr(libc, "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)


def release_memory() -> None:
    """Return what this process does not need while it waits: memory that the C library has freed,
    but kept, and the code of DuckDB and NumPy, which the system maps again, page by page, when it
    runs."""
    trim_heap()
    for start, size in _find_code():
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)


@functools.lru_cache(maxsize=1)
def _find_code() -> list[tuple[int, int]]:
    """Find the start and size of code and constants that this process cannot write to and has not
    changed. They stay where they are: Python never unloads an extension module."""
    try:
        text = pathlib.Path("/proc/self/smaps").read_bytes()
    except OSError:
        return []
    ranges = [(int(start, 16), int(end, 16)) for start, end in _CODE.findall(text)]
    return [(start, end - start) for start, end in ranges]


class MemoryLimit:
    """Memory budget of this process.

    Args:
        name: the process, for the note.
        limit_bytes: the budget.
        read: returns the memory of this process.
    """

    def __init__(
        self, name: str, limit_bytes: int, read: Callable[[], int | None] = read_own_memory_bytes
    ) -> None:
        self._name = name
        self._limit_bytes = limit_bytes
        self._read = read
        self._trimmed_bytes = 0
        self.note: str | None = None
        """One clause while the process takes more than its budget and can free nothing."""

    def check(self) -> None:
        """Measure the memory and, if it is above the budget, free what can be freed. That is not
        tried again before the process has grown."""
        used_bytes = self._read() or 0
        if used_bytes > max(self._limit_bytes, GROWTH_FACTOR * self._trimmed_bytes):
            gc.collect()
            release_memory()
            used_bytes = self._trimmed_bytes = self._read() or 0
        self.note = None
        if used_bytes > self._limit_bytes:
            self.note = (
                f"{self._name} takes {memory(used_bytes)} of memory, more than its budget of "
                f"{memory(self._limit_bytes)}, and cannot free any"
            )
