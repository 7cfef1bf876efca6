"""The processes of the job: who they are, and what each of them uses.

    root ── child ── grandchild          found through the parents' lists of children (every tick)
     │        └── forked by a thread     found by reading the parent of every new pid (every 2 s)
     └── stepscope's own process         never entered
    also ── child                        daemonised: told by the caller, then like a root

CPU time is kept as one counter of the whole job that never goes down. The hard part of that is
the end of a process: its time moves into its parent's "waited-for children" when the parent
waits for it, and is lost when nobody does. `JobTree._account` has the arithmetic.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from stepscope.monitor.samplers.base import Sample, read_bytes

__all__ = ["JobTree", "Process", "ProcessSampler"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NS_PER_S = 1_000_000_000

_SCAN_INTERVAL_NS = 2 * _NS_PER_S
_SCANS_BEFORE_FORGETTING = 30
"""After so many scans the pids outside the job are read anew: one may have been reused."""
_MOST_READS = 4

_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


class Process(NamedTuple):
    """One process of the job as of the last refresh."""

    pid: int
    parent_pid: int
    start_ticks: int
    """Clock ticks from boot to its start: with the pid, its identity."""
    cpu_ticks: int
    """Clock ticks of CPU time of its own threads, user and system, since its start."""
    waited_cpu_ticks: int
    """Clock ticks of CPU time of its ended children that it has waited for."""
    memory_bytes: int
    """Resident."""
    runqueue_ns: int | None
    """Time its main thread was ready to run but had no core; null where the kernel keeps none."""
    ended: bool
    """It has exited, but its parent has not waited for it yet."""

    @property
    def all_cpu_ticks(self) -> int:
        """CPU time that its parent will inherit."""
        return self.cpu_ticks + self.waited_cpu_ticks


class JobTree:
    """The processes of one job on this node."""

    def __init__(
        self,
        root_pid: int,
        also: Callable[[], Iterable[int]],
        own: Callable[[], Iterable[int]],
        *,
        proc: str = "/proc",
    ) -> None:
        """Start to follow the tree below *root_pid*.

        Args:
            root_pid: The command's own process.
            also: Gives pids known from elsewhere to be of the job, daemonised ones for example.
            own: Gives stepscope's own pids. They and what they start are not of the job, even
                where they stand below *root_pid*.
            proc: Where procfs is mounted.
        """
        self.root_pid = root_pid
        self.runqueue_missing = _why_no_runqueue(proc)
        """Why no run-queue delays can be had here, or None when they can."""
        self._also = also
        self._own = own
        self._proc = proc
        self._born_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)
        self._refreshed_ns: int | None = None
        self._scanned_ns: int | None = None
        self._scans = 0
        self._newest_pid: bytes | None = None
        self._scan_needed = True
        self._strangers: set[int] = set()
        self._told: set[int] = set()
        self._job_ticks = 0
        self._own_ticks = 0
        root = self._read(root_pid)
        # Parents always stand before their children here; `_reread` relies on it.
        self._members: dict[int, Process] = {} if root is None else {root_pid: root}
        self._own_members: dict[int, Process] = {}

    @property
    def processes(self) -> Mapping[int, Process]:
        """The job's running processes by pid, as of the last refresh."""
        return {pid: process for pid, process in self._members.items() if not process.ended}

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the job since the tree was made; never goes down.

        Ended children are in it, and so is what a process used between its start and the
        refresh that found it, unless it was there before the tree was made.
        """
        return self._job_ticks / _TICKS_PER_S

    @property
    def own_cpu_seconds(self) -> float:
        """CPU time of stepscope's own processes since the tree was made; never goes down."""
        return self._own_ticks / _TICKS_PER_S

    def refresh(self, now_ns: int) -> None:
        """Read the known processes again and look for new ones.

        Once per tick: a second call with the same *now_ns* does nothing, so that every sampler
        can ask for it. All of `/proc` is listed at most every two seconds, and new processes are
        looked for only when the kernel has given out a pid since the last time.
        """
        if now_ns == self._refreshed_ns:
            return
        self._refreshed_ns = now_ns
        own = set(self._own()) - {self.root_pid}
        before = self._members
        self._members = self._reread(before, own)
        self._adopt_told(own)
        if self._pids_given_out():
            self._scan_needed = True
            self._adopt_children(own)
        if self._scan_needed and self._scan_due(now_ns):
            self._scan(own)
            self._scan_needed = False
        self._account(before)
        self._account_own(own)

    def _read(self, pid: int) -> Process | None:
        """One process, or None when it is gone (or hidden, which is the same to us)."""
        directory = f"{self._proc}/{pid}"
        try:
            stat = read_bytes(f"{directory}/stat")
            runqueue_ns = None
            if self.runqueue_missing is None:
                runqueue_ns = int(read_bytes(f"{directory}/schedstat").split()[1])
        except _GONE:
            return None
        return _parse_stat(pid, stat, runqueue_ns)

    def _reread(self, known: Mapping[int, Process], own: set[int]) -> dict[int, Process]:
        """Those of *known* that are still there, as they are now.

        Read until nobody vanishes between the first and the last of them: a child read alive
        just before its parent waited for it would be counted twice, once itself and once in
        its parent's waited-for time.
        """
        for _ in range(_MOST_READS):
            still: dict[int, Process] = {}
            for pid, old in known.items():
                new = None if pid in own else self._read(pid)
                if new is not None and new.start_ticks == old.start_ticks:
                    still[pid] = new
            if len(still) == len(known):
                break
            known = still
        return still

    def _pids_given_out(self) -> bool:
        """Whether a process or thread may have been started since the last call."""
        before = self._newest_pid
        try:
            self._newest_pid = read_bytes(f"{self._proc}/loadavg").split()[-1]
        except OSError:
            return True
        return self._newest_pid != before

    def _scan_due(self, now_ns: int) -> bool:
        if self._scanned_ns is not None and now_ns - self._scanned_ns < _SCAN_INTERVAL_NS:
            return False
        self._scanned_ns = now_ns
        return True

    def _adopt_told(self, own: set[int]) -> None:
        """Take in the pids known from elsewhere, each once: later it may be anybody's."""
        for pid in set(self._also()) - self._told:
            self._told.add(pid)
            process = None if pid in self._members or pid in own else self._read(pid)
            if process is not None:
                self._members[pid] = process
                self._strangers.clear()  # its children may have been taken for strangers
                self._newest_pid = None

    def _adopt_children(self, own: set[int]) -> None:
        """Take in children through their parents' lists, which name what main threads forked."""
        parents = list(self._members)
        for parent in parents:  # grows while it is walked
            # Kernels may lack the file: the scan finds them all.
            for pid in children_of(parent, self._proc):
                if pid in self._members or pid in own:
                    continue
                child = self._read(pid)
                if child is not None:
                    self._members[pid] = child
                    parents.append(pid)

    def _scan(self, own: set[int]) -> None:
        """Take in every process with a parent in the job, reading only pids not met before."""
        self._scans += 1
        if self._scans % _SCANS_BEFORE_FORGETTING == 0:
            self._strangers.clear()
        present = {int(name) for name in _names(self._proc) if name.isdigit()}
        fresh: dict[int, Process] = {}
        for pid in sorted(present - self._strangers - self._members.keys() - own):
            process = self._read(pid)
            if process is not None:
                fresh[pid] = process
        while found := [p for p in fresh.values() if p.parent_pid in self._members]:
            for process in found:
                self._members[process.pid] = fresh.pop(process.pid)
        self._strangers = (self._strangers & present) | fresh.keys()

    def _account(self, before: Mapping[int, Process]) -> None:
        """Add to the job's CPU time what was used since *before*.

        Used by a process that stays: the growth of its own time. By one found just now: all of
        it, when it started under our eyes. By ended ones: what appeared in the waited-for time
        of those that stay, less what had been counted while they lived. That last part would be
        negative where nobody waited for a process, hence the floor.
        """
        used = waited = 0
        ended = dict(before)
        for pid, process in self._members.items():
            old = ended.pop(pid, None)
            if old is not None and old.start_ticks == process.start_ticks:
                used += process.cpu_ticks - old.cpu_ticks
                waited += process.waited_cpu_ticks - old.waited_cpu_ticks
            elif process.start_ticks >= self._born_ticks:
                used += process.all_cpu_ticks
        counted = sum(old.all_cpu_ticks for old in ended.values())
        self._job_ticks += max(0, used) + max(0, waited - counted)

    def _account_own(self, own: set[int]) -> None:
        """Add to stepscope's own CPU time; waited-for time is left out, it may be the job's."""
        before, self._own_members = self._own_members, {}
        for pid in own:
            process = self._read(pid)
            if process is None:
                continue
            self._own_members[pid] = process
            old = before.get(pid)
            if old is not None and old.start_ticks == process.start_ticks:
                self._own_ticks += max(0, process.cpu_ticks - old.cpu_ticks)
            elif process.start_ticks >= self._born_ticks:
                self._own_ticks += process.cpu_ticks


class ProcessSampler:
    """CPU, memory and run-queue delay of each process of the job."""

    group = "processes"

    def __init__(self, job: JobTree) -> None:
        self._job = job
        self._before: Mapping[int, Process] = {}
        self._before_ns = 0

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples of each process; see `Sampler.sample`."""
        self._job.refresh(now_ns)
        before, elapsed_ns = self._before, now_ns - self._before_ns
        self._before, self._before_ns = self._job.processes, now_ns
        for pid, process in self._before.items():
            yield Sample("process_memory_bytes", str(pid), process.memory_bytes)
            old = before.get(pid)
            if old is not None and old.start_ticks == process.start_ticks and elapsed_ns > 0:
                yield from _rates(old, process, elapsed_ns)


def _rates(old: Process, new: Process, elapsed_ns: int) -> Iterator[Sample]:
    device = str(new.pid)
    busy_s = max(0, new.cpu_ticks - old.cpu_ticks) / _TICKS_PER_S
    yield Sample("process_cpu_cores", device, busy_s * _NS_PER_S / elapsed_ns)
    if new.runqueue_ns is not None and old.runqueue_ns is not None:
        # A long wait is booked when it ends, so that a tick can be charged more than its length.
        waited = (new.runqueue_ns - old.runqueue_ns) / elapsed_ns
        yield Sample("process_runqueue_ratio", device, min(1.0, max(0.0, waited)))


def _parse_stat(pid: int, stat: bytes, runqueue_ns: int | None) -> Process:
    # The command's name may hold blanks and parentheses: fields count from the last one.
    fields = stat[stat.rindex(b")") + 2 :].split(None, 22)
    return Process(
        pid=pid,
        parent_pid=int(fields[1]),
        start_ticks=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        waited_cpu_ticks=int(fields[13]) + int(fields[14]),
        memory_bytes=int(fields[21]) * _PAGE_BYTES,
        runqueue_ns=runqueue_ns,
        ended=fields[0] in b"ZX",
    )


def _why_no_runqueue(proc: str) -> str | None:
    try:
        running_ns, _, slices = map(int, read_bytes(f"{proc}/self/schedstat").split())
    except (OSError, ValueError):
        return "this kernel keeps no scheduler statistics (/proc/<pid>/schedstat is absent)"
    if running_ns == slices == 0:  # we are running, so zeros mean that nobody counts
        return "scheduler statistics are switched off in this kernel"
    return None


def children_of(pid: int, proc: str = "/proc") -> list[int]:
    """What a process's main thread has forked; nothing where the kernel does not list it."""
    try:
        return [int(child) for child in read_bytes(f"{proc}/{pid}/task/{pid}/children").split()]
    except _GONE:
        return []


def _names(directory: str) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]
