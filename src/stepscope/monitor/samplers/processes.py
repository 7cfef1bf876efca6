"""Processes and threads of the job, and their use of resources.

    root ── child ── grandchild          found through the parents' lists of children (every tick)
     │        └── forked by a thread     found by reading the parent of every new pid (every 2 s)
     └── stepscope's own process         excluded with its children
    registered ── child                  daemonised: named by the caller, then treated as a root

CPU time is one counter of the job that never decreases. The difficulty is the end of a process: its
time is added to its parent's "waited-for children" when the parent waits for it, and is lost when
no process does. `JobTree._account` has the arithmetic.

Threads of a process that compute beside its main thread, such as those of one operator. Torch
divides an operator between several threads, and the main thread goes on when the last one has
finished. A thread that has no core delays the main thread as if it had none itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from stepscope.monitor.samplers.base import Sample, read_bytes

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NS_PER_S = 1_000_000_000

_SCAN_INTERVAL_NS = 2 * _NS_PER_S
_SCANS_PER_RESET = 30
"""Number of scans after which pids outside the job are read again, as they may be reused."""
_MAX_READS = 4

_MISSING = (FileNotFoundError, ProcessLookupError, PermissionError)


class JobProcess(NamedTuple):
    """Process of the job as of the last refresh."""

    pid: int
    parent_pid: int
    start_ticks: int
    """Clock ticks from boot to its start; identifies the process together with the pid."""
    cpu_ticks: int
    """CPU time of its own threads since its start, user and system, in clock ticks."""
    waited_cpu_ticks: int
    """CPU time of its ended children that it has waited for, in clock ticks."""
    memory_bytes: int
    """Resident memory."""
    runqueue_ns: int | None
    """Time that its main thread was runnable but had no core; None without kernel statistics."""
    ended: bool
    """True if it has exited, but its parent has not waited for it yet."""
    major_faults: int = 0
    """Page faults that had to read a disk, since its start."""

    @property
    def all_cpu_ticks(self) -> int:
        """CPU time that is added to its parent's waited-for time, in clock ticks."""
        return self.cpu_ticks + self.waited_cpu_ticks


class JobTree:
    """Tree of the processes of one job on this node."""

    def __init__(
        self,
        root_pid: int,
        registered_pids: Callable[[], Iterable[int]],
        own_pids: Callable[[], Iterable[int]],
        *,
        proc: str = "/proc",
    ) -> None:
        """Start to follow the tree below *root_pid*.

        Args:
            root_pid: the process of the command.
            registered_pids: returns further pids of the job, such as daemonised ones.
            own_pids: returns stepscope's own pids. They and their children are not part of the
                job, even if they are below *root_pid*.
            proc: mount point of procfs.
        """
        self.root_pid = root_pid
        self.runqueue_missing = _runqueue_obstacle(proc)
        """Reason why run-queue delays are unavailable; None when they are available."""
        self._registered_pids = registered_pids
        self._own_pids = own_pids
        self._proc = proc
        self._creation_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)
        self._refreshing = threading.Lock()
        self._refreshed_ns: int | None = None
        self._scanned_ns: int | None = None
        self._scans = 0
        self._newest_pid: bytes | None = None
        self._scan_needed = True
        self._foreign_pids: set[int] = set()
        self._adopted_pids: set[int] = set()
        self._job_ticks = 0
        self._own_ticks = 0
        root = self._read(root_pid)
        # Parents always precede their children here; `_reread` relies on it.
        self._members: dict[int, JobProcess] = {} if root is None else {root_pid: root}
        self._own_members: dict[int, JobProcess] = {}

    @property
    def processes(self) -> Mapping[int, JobProcess]:
        """Running processes of the job by pid, as of the last refresh."""
        members = list(self._members.items())  # at once: a late refresh may be adding some
        return {pid: process for pid, process in members if not process.ended}

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the job since the creation of the tree; never decreases.

        Includes ended children, and the time that a process used between its start and the
        refresh that found it, unless it started before the creation of the tree.
        """
        return self._job_ticks / _TICKS_PER_S

    @property
    def own_cpu_seconds(self) -> float:
        """CPU time of stepscope's own processes since the creation of the tree; never decreases."""
        return self._own_ticks / _TICKS_PER_S

    def refresh(self, now_ns: int) -> None:
        """Read the processes again and look for new ones.

        Once per tick: a call with the same or an earlier *now_ns* does nothing, so that every
        sampler can call it, also one that is late. All of `/proc` is listed at most every two
        seconds, and only if the kernel has assigned a pid since the last time.
        """
        if not self._refreshing.acquire(blocking=False):
            return  # a refresh that is late has not ended
        try:
            if self._refreshed_ns is None or now_ns > self._refreshed_ns:
                self._refreshed_ns = now_ns
                self._refresh(now_ns)
        finally:
            self._refreshing.release()

    def _refresh(self, now_ns: int) -> None:
        own_pids = set(self._own_pids()) - {self.root_pid}
        previous = self._members
        self._members = self._reread(previous, own_pids)
        self._adopt_registered(own_pids)
        if self._has_new_pids():
            self._scan_needed = True
            self._adopt_children(own_pids)
        if self._scan_needed and self._is_scan_due(now_ns):
            self._scan(own_pids)
            self._scan_needed = False
        self._account(previous)
        self._account_own(own_pids)

    def _read(self, pid: int) -> JobProcess | None:
        """Read one process; None if it has ended (or is hidden, which looks the same)."""
        directory = f"{self._proc}/{pid}"
        try:
            stat = read_bytes(f"{directory}/stat")
            runqueue_ns = None
            if self.runqueue_missing is None:
                runqueue_ns = int(read_bytes(f"{directory}/schedstat").split()[1])
        except _MISSING:
            return None
        return _parse_stat(pid, stat, runqueue_ns)

    def _reread(
        self, members: Mapping[int, JobProcess], own_pids: set[int]
    ) -> dict[int, JobProcess]:
        """Read the members that still exist.

        Repeat until none ends between the first and the last reading: a child that is read just
        before its parent waits for it would be counted twice, once itself and once in its parent's
        waited-for time.
        """
        for _ in range(_MAX_READS):
            remaining: dict[int, JobProcess] = {}
            for pid, old in members.items():
                new = None if pid in own_pids else self._read(pid)
                if new is not None and new.start_ticks == old.start_ticks:
                    remaining[pid] = new
            if len(remaining) == len(members):
                break
            members = remaining
        return remaining

    def _has_new_pids(self) -> bool:
        """Check whether a process or thread may have been started since the last call."""
        previous = self._newest_pid
        try:
            self._newest_pid = read_bytes(f"{self._proc}/loadavg").split()[-1]
        except OSError:
            return True
        return self._newest_pid != previous

    def _is_scan_due(self, now_ns: int) -> bool:
        if self._scanned_ns is not None and now_ns - self._scanned_ns < _SCAN_INTERVAL_NS:
            return False
        self._scanned_ns = now_ns
        return True

    def _adopt_registered(self, own_pids: set[int]) -> None:
        """Add the registered pids, only once, because a pid may be reused later."""
        for pid in set(self._registered_pids()) - self._adopted_pids:
            self._adopted_pids.add(pid)
            process = None if pid in self._members or pid in own_pids else self._read(pid)
            if process is not None:
                self._members[pid] = process
                self._foreign_pids.clear()  # which may contain its children
                self._newest_pid = None

    def _adopt_children(self, own_pids: set[int]) -> None:
        """Add children from their parents' lists, which contain the forks of main threads."""
        parents = list(self._members)
        for parent in parents:  # grows during the iteration
            # Kernels may lack the file; the scan finds all children.
            for pid in children_of(parent, self._proc):
                if pid in self._members or pid in own_pids:
                    continue
                child = self._read(pid)
                if child is not None:
                    self._members[pid] = child
                    parents.append(pid)

    def _scan(self, own_pids: set[int]) -> None:
        """Add every process with a parent in the job; reads only pids that are not known yet."""
        self._scans += 1
        if self._scans % _SCANS_PER_RESET == 0:
            self._foreign_pids.clear()
        present = {int(name) for name in list_names(self._proc) if name.isdigit()}
        candidates: dict[int, JobProcess] = {}
        for pid in sorted(present - self._foreign_pids - self._members.keys() - own_pids):
            process = self._read(pid)
            if process is not None:
                candidates[pid] = process
        while children := [p for p in candidates.values() if p.parent_pid in self._members]:
            for process in children:
                self._members[process.pid] = candidates.pop(process.pid)
        self._foreign_pids = (self._foreign_pids & present) | candidates.keys()

    def _account(self, previous: Mapping[int, JobProcess]) -> None:
        """Add the CPU time used since *previous* to the time of the job.

        Of a remaining process: the growth of its own time. Of a new one: all of its time, if it
        started after the creation of the tree. Of ended ones: the growth of the waited-for time of
        the remaining ones, less the time already counted for the ended ones. This difference would
        be negative for a process that no parent waited for, hence the maximum with 0.
        """
        used = waited = 0
        ended = dict(previous)
        for pid, process in self._members.items():
            old = ended.pop(pid, None)
            if old is not None and old.start_ticks == process.start_ticks:
                used += process.cpu_ticks - old.cpu_ticks
                waited += process.waited_cpu_ticks - old.waited_cpu_ticks
            elif process.start_ticks >= self._creation_ticks:
                used += process.all_cpu_ticks
        counted = sum(old.all_cpu_ticks for old in ended.values())
        self._job_ticks += max(0, used) + max(0, waited - counted)

    def _account_own(self, own_pids: set[int]) -> None:
        """Add to stepscope's own CPU time, without waited-for time, which may be the job's."""
        previous, self._own_members = self._own_members, {}
        for pid in own_pids:
            process = self._read(pid)
            if process is None:
                continue
            self._own_members[pid] = process
            old = previous.get(pid)
            if old is not None and old.start_ticks == process.start_ticks:
                self._own_ticks += max(0, process.cpu_ticks - old.cpu_ticks)
            elif process.start_ticks >= self._creation_ticks:
                self._own_ticks += process.cpu_ticks


class TreeSampler:
    """Refresh of the tree as a sampler without samples, so that it can be guarded like one."""

    group = "process tree"

    def __init__(self, job: JobTree) -> None:
        self._job = job

    def sample(self, now_ns: int) -> Iterable[Sample]:
        """Refresh the tree; see `Sampler.sample`."""
        self._job.refresh(now_ns)
        return ()


class ProcessSampler:
    """Sampler of the CPU, memory and run-queue delay of every process of the job."""

    group = "processes"

    def __init__(self, job: JobTree) -> None:
        self._job = job
        self._previous: Mapping[int, JobProcess] = {}
        self._previous_ns = 0

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample every process; see `Sampler.sample`."""
        self._job.refresh(now_ns)
        previous, elapsed_ns = self._previous, now_ns - self._previous_ns
        self._previous, self._previous_ns = self._job.processes, now_ns
        for pid, process in self._previous.items():
            yield Sample("process_memory_bytes", str(pid), process.memory_bytes)
            old = previous.get(pid)
            if old is not None and old.start_ticks == process.start_ticks and elapsed_ns > 0:
                yield from _rate_samples(old, process, elapsed_ns)


def _rate_samples(old: JobProcess, new: JobProcess, elapsed_ns: int) -> Iterator[Sample]:
    device = str(new.pid)
    busy_s = max(0, new.cpu_ticks - old.cpu_ticks) / _TICKS_PER_S
    yield Sample("process_cpu_cores", device, busy_s * _NS_PER_S / elapsed_ns)
    if new.major_faults > old.major_faults:
        faults = new.major_faults - old.major_faults
        yield Sample("process_major_faults_per_s", device, faults * _NS_PER_S / elapsed_ns)
    if new.runqueue_ns is not None and old.runqueue_ns is not None:
        # The kernel adds a long wait when it ends, so it may exceed the length of the tick.
        waited = (new.runqueue_ns - old.runqueue_ns) / elapsed_ns
        yield Sample("process_runqueue_ratio", device, min(1.0, max(0.0, waited)))


def _parse_stat(pid: int, stat: bytes, runqueue_ns: int | None) -> JobProcess:
    # The command name may contain blanks and parentheses: fields start after the last one.
    fields = stat[stat.rindex(b")") + 2 :].split(None, 22)
    return JobProcess(
        pid=pid,
        parent_pid=int(fields[1]),
        start_ticks=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        waited_cpu_ticks=int(fields[13]) + int(fields[14]),
        memory_bytes=int(fields[21]) * _PAGE_BYTES,
        major_faults=int(fields[9]),
        runqueue_ns=runqueue_ns,
        ended=fields[0] in b"ZX",
    )


def _runqueue_obstacle(proc: str) -> str | None:
    try:
        running_ns, _, slices = map(int, read_bytes(f"{proc}/self/schedstat").split())
    except (OSError, ValueError):
        return "this kernel has no scheduler statistics (/proc/<pid>/schedstat is missing)"
    if running_ns == slices == 0:  # this process is running, so the counters are switched off
        return "scheduler statistics are switched off in this kernel"
    return None


def children_of(pid: int, proc: str = "/proc") -> list[int]:
    """List the children forked by a process's main thread; empty if the kernel has no list."""
    try:
        return [int(child) for child in read_bytes(f"{proc}/{pid}/task/{pid}/children").split()]
    except _MISSING:
        return []


def list_names(directory: str) -> list[str]:
    """List the names in a directory of procfs."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


MAX_THREADS = 64
"""Limit on the threads that are read of one process."""
MIN_RUNNING_RATIO = 0.1
"""A thread that ran for a smaller share of the time of the busiest thread does other work."""


class _ThreadTimes(NamedTuple):
    """Times of one thread since its start, in nanoseconds."""

    running_ns: int
    waiting_ns: int
    """Time in which it was runnable without a core."""


class ThreadSampler:
    """Sampler of the threads that wait for a core while they compute for the main thread."""

    group = "threads"

    def __init__(self, job: JobTree, *, proc: str = "/proc") -> None:
        self._job = job
        self._proc = proc
        self._previous: Mapping[int, Mapping[int, _ThreadTimes]] = {}
        self._previous_ns = 0

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the threads of every process that has several; see `Sampler.sample`."""
        if self._job.runqueue_missing is not None:
            return
        self._job.refresh(now_ns)
        previous, elapsed_ns = self._previous, now_ns - self._previous_ns
        self._previous = {pid: self._read_threads(pid) for pid in self._job.processes}
        self._previous_ns = now_ns
        for pid, threads in self._previous.items():
            old = previous.get(pid, {})
            waiting_ns = _sum_waiting(pid, old, threads)
            if waiting_ns is not None and elapsed_ns > 0:
                yield Sample("process_waiting_threads", str(pid), waiting_ns / elapsed_ns)

    def _read_threads(self, pid: int) -> dict[int, _ThreadTimes]:
        """Read the times of the first threads of a process, by native id."""
        directory = f"{self._proc}/{pid}/task"
        threads = {}
        try:
            for thread in sorted(map(int, list_names(directory)))[:MAX_THREADS]:
                running, waiting, _ = read_bytes(f"{directory}/{thread}/schedstat").split()
                threads[thread] = _ThreadTimes(int(running), int(waiting))
        except (OSError, ValueError):  # it has ended meanwhile
            pass
        return threads


def _sum_waiting(
    pid: int, old: Mapping[int, _ThreadTimes], new: Mapping[int, _ThreadTimes]
) -> int | None:
    """Sum the nanoseconds without a core of the threads that computed beside the main thread.

    Returns:
        None without any other thread.
    """
    threads = [thread for thread in new if thread in old and thread != pid]
    if not threads or pid not in old or pid not in new:
        return None
    running_ns = {t: new[t].running_ns - old[t].running_ns for t in (pid, *threads)}
    min_running_ns = max(1, MIN_RUNNING_RATIO * max(running_ns.values()))
    return sum(
        max(0, new[thread].waiting_ns - old[thread].waiting_ns)
        for thread in threads
        if running_ns[thread] >= min_running_ns
    )
