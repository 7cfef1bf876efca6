"""Threads of a process that compute beside its main thread, such as those of one operator.

Torch divides an operator between several threads, and the main thread goes on when the last one has
finished. A thread that has no core delays the main thread as if it had none itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stepscope.monitor.samplers.base import Sample, read_bytes
from stepscope.monitor.samplers.processes import JobTree, list_names

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
