"""What the cores do, and who keeps them busy: the job, stepscope itself, or others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobTree

__all__ = ["CpuSampler"]

_NS_PER_S = 1_000_000_000


class _Core(NamedTuple):
    """Cumulative clock ticks of one core; those that were stolen are among the busy ones."""

    busy: int
    idle: int
    iowait: int
    stolen: int


class _Share(NamedTuple):
    """Shares of the time between two readings of one core."""

    busy: float
    iowait: float
    stolen: float


class CpuSampler:
    """Busy and I/O-wait share of each core, and cores kept busy by whom."""

    group = "cpu"

    def __init__(self, job: JobTree, *, proc: str = "/proc") -> None:
        """Sample the cores of this node for *job*.

        Raises:
            Unavailable: `/proc/stat` cannot be read or names no core.
        """
        self._job = job
        self._path = f"{proc}/stat"
        self._available: frozenset[str] = frozenset()
        self._cores: Mapping[str, _Core] | None = None
        self._before_ns = 0
        self._job_s = 0.0
        self._own_s = 0.0
        try:
            cores = _parse_cores(read_bytes(self._path))
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}") from None
        if not cores:
            raise Unavailable(f"{self._path} names no core")

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples of each core and of the node; see `Sampler.sample`."""
        self._job.refresh(now_ns)
        before, cores = self._cores, _parse_cores(read_bytes(self._path))
        elapsed_s = (now_ns - self._before_ns) / _NS_PER_S
        job_s = self._job.cpu_seconds - self._job_s
        own_s = self._job.own_cpu_seconds - self._own_s
        self._cores, self._before_ns = cores, now_ns
        self._job_s, self._own_s = self._job.cpu_seconds, self._job.own_cpu_seconds
        if before is None or elapsed_s <= 0:
            return
        shares = _shares(before, cores)
        yield from self._core_samples(shares)
        yield Sample("job_cpu_cores", "", job_s / elapsed_s)
        yield Sample("own_cpu_cores", "", own_s / elapsed_s)
        if shares:
            busy_cores = sum(share.busy for share in shares.values())
            outside = busy_cores - (job_s + own_s) / elapsed_s
            # Cores and processes are read at slightly different times and in ticks of 10 ms.
            yield Sample("outside_cpu_cores", "", max(0.0, outside))
            yield Sample("stolen_cpu_cores", "", sum(share.stolen for share in shares.values()))

    def _core_samples(self, shares: Mapping[str, _Share]) -> Iterator[Sample]:
        for core, share in shares.items():
            yield Sample("core_busy_ratio", core, share.busy)
            yield Sample("core_iowait_ratio", core, share.iowait)
        # Where /proc/stat is virtualised (lxcfs) its numbers are not those of the affinity mask.
        mine = [shares[core] for core in self._job_cores() if core in shares]
        mine = mine or list(shares.values())
        if mine:
            yield from _across("cpu_busy", [share.busy for share in mine])
            yield from _across("cpu_iowait", [share.iowait for share in mine])

    def _job_cores(self) -> frozenset[str]:
        """The cores the job may run on; asked at every tick because `taskset` comes late."""
        try:
            self._available = frozenset(map(str, os.sched_getaffinity(self._job.root_pid)))
        except OSError:
            pass  # it ended: the last answer stands for the processes it left behind
        return self._available


def _across(metric: str, shares: list[float]) -> Iterator[Sample]:
    """Mean and maximum over cores. The maximum is stored because machines have hundreds of cores:
    whether any of them was busy is then known without reading them all."""
    yield Sample(f"{metric}_ratio", "", sum(shares) / len(shares))
    yield Sample(f"{metric}_max_ratio", "", max(shares))


def _shares(before: Mapping[str, _Core], now: Mapping[str, _Core]) -> dict[str, _Share]:
    """Shares of each core that was online at both readings and whose clock went on."""
    shares: dict[str, _Share] = {}
    for core, new in now.items():
        old = before.get(core)
        if old is None:
            continue
        # The kernel takes I/O wait back at times: a decrease is none.
        busy, idle, iowait, stolen = (max(0, n - o) for n, o in zip(new, old, strict=True))
        if total := busy + idle + iowait:
            shares[core] = _Share(busy / total, iowait / total, stolen / total)
    return shares


def _parse_cores(stat: bytes) -> dict[str, _Core]:
    cores: dict[str, _Core] = {}
    # The line "intr" behind the cores is longer than all before it; do not split it.
    for line in stat.partition(b"\nintr")[0].split(b"\n"):
        if not line.startswith(b"cpu") or line.startswith(b"cpu "):
            continue
        name, user, nice, system, idle, iowait, irq, softirq, *rest = line.split()
        # Guest time is part of user time already. Stolen time counts as busy: the core was not
        # to be had, and nobody in the job had it.
        stolen = int(rest[0]) if rest else 0
        busy = int(user) + int(nice) + int(system) + int(irq) + int(softirq) + stolen
        cores[name[3:].decode()] = _Core(busy, int(idle), int(iowait), stolen)
    return cores
