"""Memory of the job: of each process by kind, of all of them together, and what limits it.

    /proc/<pid>/status          counters of the kernel: anonymous, files, shared memory, swap
    /proc/<pid>/smaps_rollup    private and shared pages; the kernel walks all pages of the process
    statvfs of /dev/shm         files in shared memory, mapped or not
    cgroup                      limit, use, processes that the kernel ended

Counters are cheap and are read at every tick at the start of a job, which may die soon, and every
two seconds later. `smaps_rollup` takes milliseconds per gigabyte: it is read so rarely that it
takes no more than `MAX_ROLLUP_RATIO` of a core, with a credit for jobs that end soon. Of many
processes, those come first whose pages were not counted yet, or longest ago.

A process shares all of its anonymous pages with its parent just after the fork. Until its pages are
counted for the first time, so much of what it had at first is assumed to be shared as of the
process that was counted last; all of it, if there is none.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stepscope.monitor.samplers import cgroup
from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobTree

INTERVAL_NS = 2_000_000_000
INTERVAL_RATIO = 1 / 20
"""Time between readings as a share of the time since the first, up to `INTERVAL_NS`."""
MIN_ROLLUP_INTERVAL_NS, MAX_ROLLUP_INTERVAL_NS = 2_000_000_000, 10_000_000_000
"""Time between readings of `smaps_rollup`, at the start and later."""
MAX_ROLLUP_RATIO = 0.0005
"""Share of a core that reading `smaps_rollup` may take."""
ROLLUP_CREDIT_NS = 40_000_000
"""Time that it may take beyond that, once."""
_KIB = 1024
_COUNTERS = re.compile(rb"^(Rss\w+|VmSwap|VmSize):\s*(\d+) kB", re.MULTILINE)
_PAGES = re.compile(rb"^(Private_\w+|Shared_\w+|Anonymous|Pss_Anon):\s*(\d+) kB", re.MULTILINE)


class ProcessMemory(NamedTuple):
    """Memory of one process by kind, in bytes."""

    anonymous: int
    """Swapped pages included."""
    file: int
    shared_memory: int
    swap: int
    address_space: int


class ProcessPages(NamedTuple):
    """Pages of one process by sharing, in bytes."""

    private: int
    shared: int
    doubled: int
    """Anonymous pages that a fork shares, less this process's part of them: what the sum over
    processes counts too often."""


class JobMemorySampler:
    """Sampler of the memory of the job, its processes and its limits."""

    group = "job_memory"

    def __init__(self, job: JobTree, *, proc: str = "/proc", root: Path = Path("/")) -> None:
        """Sample the memory of *job*.

        Args:
            job: the job.
            proc: mount point of procfs.
            root: the directory that contains cgroups, see `cgroup`.

        Raises:
            Unavailable: the kernel does not count memory by kind.
        """
        self._job = job
        self._proc = proc
        self._root = root
        self._shared_memory = f"{proc}/{job.root_pid}/root/dev/shm"
        self._first_ns: int | None = None
        self._next_ns = self._next_rollup_ns = self._rollup_ns = 0
        self._doubled: dict[int, int] = {}
        """Anonymous pages by pid that the sum over processes counts too often, where counted."""
        self._first_bytes: dict[int, int] = {}
        """Anonymous memory by pid when it was seen first; 0 at the first sample."""
        self._shared_ratio = 1.0
        """Part of that which the process that was counted last shares, of those that came later."""
        self._counted_ns: dict[int, int] = {}
        """Time by pid at which the pages were counted last."""
        self._swapped: set[str] = set()
        self._first_shared: int | None = None
        """Files in /dev/shm at the first sample: they are those of other jobs of the machine."""
        self._stall: tuple[int, int] | None = None
        try:
            if b"RssAnon" not in read_bytes(f"{proc}/self/status"):
                raise Unavailable("this kernel does not count memory by kind (Linux 4.5 does)")
        except OSError as error:
            raise Unavailable(f"{proc}/self/status cannot be read: {error.strerror}") from None

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the job, if it is time; see `Sampler.sample`."""
        if now_ns < self._next_ns:
            return
        self._first_ns = now_ns if self._first_ns is None else self._first_ns
        elapsed_ns = now_ns - self._first_ns
        interval_ns = round(elapsed_ns * INTERVAL_RATIO)
        self._next_ns = now_ns + min(INTERVAL_NS, interval_ns)
        self._job.refresh(now_ns)
        processes = {
            pid: memory
            for pid in self._job.processes
            if (memory := read_process_memory(pid, self._proc)) is not None
        }
        self._first_bytes = {
            pid: self._first_bytes.get(pid, memory.anonymous if elapsed_ns else 0)
            for pid, memory in processes.items()
        }
        self._doubled = {pid: size for pid, size in self._doubled.items() if pid in processes}
        allowed_ns = ROLLUP_CREDIT_NS + elapsed_ns * MAX_ROLLUP_RATIO
        if now_ns >= self._next_rollup_ns and self._rollup_ns <= allowed_ns:
            rollup_interval_ns = max(MIN_ROLLUP_INTERVAL_NS, elapsed_ns // 5)
            self._next_rollup_ns = now_ns + min(MAX_ROLLUP_INTERVAL_NS, rollup_interval_ns)
            yield from self._sample_pages(processes, now_ns, allowed_ns)
        for pid, memory in processes.items():
            yield from self._sample_process(str(pid), memory)
        if processes:
            yield from self._sample_job(processes)
        yield from self._sample_limits(now_ns)

    def _sample_process(self, device: str, memory: ProcessMemory) -> Iterator[Sample]:
        yield Sample("process_anonymous_bytes", device, memory.anonymous)
        yield Sample("process_file_bytes", device, memory.file)
        if memory.shared_memory:
            yield Sample("process_shared_memory_bytes", device, memory.shared_memory)
        if memory.swap or device in self._swapped:
            self._swapped.add(device)
            yield Sample("process_swap_bytes", device, memory.swap)

    def _sample_pages(
        self, pids: Iterable[int], now_ns: int, allowed_ns: float
    ) -> Iterator[Sample]:
        self._counted_ns = {pid: self._counted_ns.get(pid, 0) for pid in pids}
        for pid in sorted(self._counted_ns, key=self._counted_ns.__getitem__):
            if self._rollup_ns > allowed_ns:
                break
            start_ns = time.thread_time_ns()
            pages = read_process_pages(pid, self._proc)
            self._rollup_ns += time.thread_time_ns() - start_ns
            self._counted_ns[pid] = now_ns
            if pages is None:
                continue
            self._doubled[pid] = pages.doubled
            if self._first_bytes.get(pid):
                self._shared_ratio = min(1.0, pages.doubled / self._first_bytes[pid])
            yield Sample("process_private_bytes", str(pid), pages.private)
            yield Sample("process_shared_bytes", str(pid), pages.shared)

    def _sample_job(self, processes: Mapping[int, ProcessMemory]) -> Iterator[Sample]:
        total = sum(memory.anonymous for memory in processes.values())
        total -= sum(
            self._doubled.get(pid, round(self._shared_ratio * self._first_bytes[pid]))
            for pid in processes
        )
        try:
            shared = os.statvfs(self._shared_memory)
        except OSError:  # the root process has ended, or its files are not ours to see
            pass
        else:
            used = (shared.f_blocks - shared.f_bfree) * shared.f_frsize
            if self._first_shared is None:
                self._first_shared = used
            total += max(0, used - self._first_shared)
            yield Sample("shared_memory_used_bytes", "", used)
            yield Sample("shared_memory_limit_bytes", "", shared.f_blocks * shared.f_frsize)
        yield Sample("job_memory_bytes", "", max(0, total))
        yield Sample("job_process_count", "", len(processes))
        limits = [
            (limit - memory.address_space, limit)
            for pid, memory in processes.items()
            if (limit := _address_space_limit(pid)) is not None
        ]
        if limits:
            free, limit = min(limits)
            yield Sample("address_space_free_bytes", "", max(0, free))
            yield Sample("address_space_limit_bytes", "", limit)

    def _sample_limits(self, now_ns: int) -> Iterator[Sample]:
        pid = self._job.root_pid
        use = cgroup.most_used_memory_limit(self._root, pid=pid)
        if use is not None:
            yield Sample("cgroup_memory_used_bytes", "", use.used_bytes)
            yield Sample("cgroup_memory_limit_bytes", "", use.limit_bytes)
        kills = cgroup.count_memory_kills(self._root, pid=pid)
        if kills is not None:
            yield Sample("cgroup_oom_kills", "", kills)
        previous, stalled_us = self._stall, cgroup.read_memory_stall_us(self._root, pid=pid)
        self._stall = None if stalled_us is None else (now_ns, stalled_us)
        if previous is not None and stalled_us is not None and now_ns > previous[0]:
            ratio = 1000 * (stalled_us - previous[1]) / (now_ns - previous[0])
            yield Sample("memory_stalled_ratio", "", min(1.0, max(0.0, ratio)))


def read_process_memory(pid: int, proc: str = "/proc") -> ProcessMemory | None:
    """Read the kernel's counters of one process; None if it has ended, or is a kernel thread."""
    sizes = _read_sizes(f"{proc}/{pid}/status", _COUNTERS)
    if b"RssAnon" not in sizes:
        return None
    swap = sizes.get(b"VmSwap", 0)
    return ProcessMemory(
        anonymous=sizes[b"RssAnon"] + swap,
        file=sizes.get(b"RssFile", 0),
        shared_memory=sizes.get(b"RssShmem", 0),
        swap=swap,
        address_space=sizes.get(b"VmSize", 0),
    )


def read_process_pages(pid: int, proc: str = "/proc") -> ProcessPages | None:
    """Count the pages of one process; None if it has ended, or the kernel does not tell."""
    sizes = _read_sizes(f"{proc}/{pid}/smaps_rollup", _PAGES)
    if b"Private_Dirty" not in sizes:
        return None
    private, shared = (
        sum(size for name, size in sizes.items() if name.startswith(word))
        for word in (b"Private_", b"Shared_")
    )
    anonymous = sizes.get(b"Anonymous", 0)
    # Kernels before 5.9 have no Pss_Anon; private anonymous pages are nearly always dirty.
    proportional = sizes.get(b"Pss_Anon", sizes[b"Private_Dirty"])
    return ProcessPages(private, shared, max(0, anonymous - proportional))


def _read_sizes(path: str, lines: re.Pattern[bytes]) -> dict[bytes, int]:
    """Read the lines `Name: 12 kB` of a file that match, in bytes; empty if it cannot be read."""
    try:
        return {name: int(value) * _KIB for name, value in lines.findall(read_bytes(path))}
    except OSError:
        return {}


def _address_space_limit(pid: int) -> int | None:
    """Return the limit of the address space of a process; None without one, or without access."""
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_AS)
    except (OSError, ValueError):
        return None
    return None if soft in {resource.RLIM_INFINITY, -1} else soft
