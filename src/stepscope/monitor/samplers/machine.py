"""Utilization of cores, disks, memory and network interfaces of the node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stepscope.monitor.samplers.base import Rates, Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobTree

_NS_PER_S = 1_000_000_000


class _Core(NamedTuple):
    """Cumulative clock ticks of one core; busy ticks include stolen ones."""

    busy: int
    idle: int
    iowait: int
    stolen: int


class _Share(NamedTuple):
    """Shares of the time between two readings of a core."""

    busy: float
    iowait: float
    stolen: float


class CpuSampler:
    """Sampler of the busy and I/O-wait shares per core, and of the cores used by the job,
    stepscope and other processes."""

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
        self._previous_ns = 0
        self._job_s = 0.0
        self._own_s = 0.0
        try:
            cores = _parse_cores(read_bytes(self._path))
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}") from None
        if not cores:
            raise Unavailable(f"{self._path} lists no cores")

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample every core and the node; see `Sampler.sample`."""
        self._job.refresh(now_ns)
        previous, cores = self._cores, _parse_cores(read_bytes(self._path))
        elapsed_s = (now_ns - self._previous_ns) / _NS_PER_S
        job_s = self._job.cpu_seconds - self._job_s
        own_s = self._job.own_cpu_seconds - self._own_s
        self._cores, self._previous_ns = cores, now_ns
        self._job_s, self._own_s = self._job.cpu_seconds, self._job.own_cpu_seconds
        if previous is None or elapsed_s <= 0:
            return
        shares = _compute_shares(previous, cores)
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
        # If /proc/stat is virtualised (lxcfs), its numbers are not those of the affinity mask.
        job_shares = [shares[core] for core in self._job_cores() if core in shares]
        job_shares = job_shares or list(shares.values())
        if job_shares:
            yield from _aggregate("cpu_busy", [share.busy for share in job_shares])
            yield from _aggregate("cpu_iowait", [share.iowait for share in job_shares])

    def _job_cores(self) -> frozenset[str]:
        """Read the cores of the job, at every tick, because `taskset` may change them later."""
        try:
            self._available = frozenset(map(str, os.sched_getaffinity(self._job.root_pid)))
        except OSError:
            pass  # it has ended: its last mask applies to the remaining processes
        return self._available


def _aggregate(metric: str, shares: list[float]) -> Iterator[Sample]:
    """Compute mean and maximum over cores. The maximum is stored because machines have hundreds of
    cores: it shows whether any was busy without reading all of them."""
    yield Sample(f"{metric}_ratio", "", sum(shares) / len(shares))
    yield Sample(f"{metric}_max_ratio", "", max(shares))


def _compute_shares(
    previous: Mapping[str, _Core], current: Mapping[str, _Core]
) -> dict[str, _Share]:
    """Compute the shares of every core that was online at both readings and had ticks between."""
    shares: dict[str, _Share] = {}
    for core, new in current.items():
        old = previous.get(core)
        if old is None:
            continue
        # The kernel sometimes decreases the counter of I/O wait.
        busy, idle, iowait, stolen = (max(0, n - o) for n, o in zip(new, old, strict=True))
        if total := busy + idle + iowait:
            shares[core] = _Share(busy / total, iowait / total, stolen / total)
    return shares


def _parse_cores(stat: bytes) -> dict[str, _Core]:
    cores: dict[str, _Core] = {}
    # The line "intr" after the cores is longer than all before it; do not split it.
    for line in stat.partition(b"\nintr")[0].split(b"\n"):
        if not line.startswith(b"cpu") or line.startswith(b"cpu "):
            continue
        name, user, nice, system, idle, iowait, irq, softirq, *rest = line.split()
        # User time includes guest time. Stolen time counts as busy: the core was not available.
        stolen = int(rest[0]) if rest else 0
        busy = int(user) + int(nice) + int(system) + int(irq) + int(softirq) + stolen
        cores[name[3:].decode()] = _Core(busy, int(idle), int(iowait), stolen)
    return cores


_SECTOR_BYTES = 512
"""Size of a sector in `/proc/diskstats`, for any disk."""


class DiskSampler:
    """Sampler of the bytes per second read from and written to every physical disk."""

    group = "disk"

    def __init__(self, *, proc: str = "/proc", sys: Path = Path("/sys")) -> None:
        """Sample this node's disks.

        Raises:
            Unavailable: no physical disk is visible.
        """
        self._path = f"{proc}/diskstats"
        self._blocks = sys / "block"
        self._physical: dict[bytes, bool] = {}
        self._rates = Rates("disk_read_bytes_per_s", "disk_write_bytes_per_s")
        try:
            disks = self._read()
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}") from None
        if not disks:
            raise Unavailable(f"{self._blocks} has no physical disk of {self._path}")

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample every disk; see `Sampler.sample`."""
        return self._rates.update(now_ns, self._read())

    def _read(self) -> dict[str, tuple[int, ...]]:
        disks: dict[str, tuple[int, ...]] = {}
        for line in read_bytes(self._path).splitlines():
            fields = line.split(None, 10)
            if self._is_physical(fields[2]):
                read, written = int(fields[5]), int(fields[9])
                disks[fields[2].decode()] = (read * _SECTOR_BYTES, written * _SECTOR_BYTES)
        return disks

    def _is_physical(self, name: bytes) -> bool:
        """Check whether a block device is hardware.

        Only disks have a directory under /sys/block, not partitions, and only hardware has a
        `device` in it. So this one rule excludes partitions, loop and RAM disks, and the mappings
        and arrays that would count the same bytes again.
        """
        is_physical = self._physical.get(name)
        if is_physical is None:
            directory = name.decode().replace("/", "!")  # the spelling of sysfs
            is_physical = (self._blocks / directory / "device").exists()
            self._physical[name] = is_physical
        return is_physical


class MemorySampler:
    """Sampler of memory used and available, and of swap used, in bytes."""

    group = "memory"

    def __init__(self, *, proc: str = "/proc") -> None:
        """Sample this node's memory.

        Raises:
            Unavailable: `/proc/meminfo` cannot be read or lacks the required fields.
        """
        self._path = f"{proc}/meminfo"
        try:
            fields = _parse_meminfo(read_bytes(self._path))
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}") from None
        if not {b"MemTotal", b"MemAvailable"} <= fields.keys():
            raise Unavailable(f"{self._path} lacks the total and available memory")

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the node; see `Sampler.sample`."""
        fields = _parse_meminfo(read_bytes(self._path))
        available = fields[b"MemAvailable"]
        yield Sample("memory_used_bytes", "", fields[b"MemTotal"] - available)
        yield Sample("memory_available_bytes", "", available)
        if b"SwapTotal" in fields:
            yield Sample("swap_used_bytes", "", fields[b"SwapTotal"] - fields[b"SwapFree"])


def memory_total_bytes(*, proc: str = "/proc") -> int:
    """Read the memory size of the node in bytes."""
    return _parse_meminfo(read_bytes(f"{proc}/meminfo"))[b"MemTotal"]


_FIELDS = frozenset({b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree"})


def _parse_meminfo(meminfo: bytes) -> dict[bytes, int]:
    """Parse the fields in use, in bytes: the unit "kB" of the file means KiB."""
    fields: dict[bytes, int] = {}
    for line in meminfo.split(b"\n"):
        name, _, value = line.partition(b":")
        if name in _FIELDS:
            fields[name] = int(value.split()[0]) * 1024
    return fields


_LOOPBACK = b"lo"
_HEADER_LINES = 2


class NetworkSampler:
    """Sampler of the bytes per second received and sent by every interface except loopback.

    Interfaces without any traffic since boot are left out: some nodes have dozens of them.
    """

    group = "network"

    def __init__(self, *, proc: str = "/proc") -> None:
        """Sample the interfaces of this network namespace.

        Raises:
            Unavailable: `/proc/net/dev` cannot be read.
        """
        self._path = f"{proc}/net/dev"
        self._rates = Rates("network_received_bytes_per_s", "network_sent_bytes_per_s")
        try:
            self._read()
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}") from None

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample every interface; see `Sampler.sample`."""
        return self._rates.update(now_ns, self._read())

    def _read(self) -> dict[str, tuple[int, ...]]:
        interfaces: dict[str, tuple[int, ...]] = {}
        for line in read_bytes(self._path).splitlines()[_HEADER_LINES:]:
            name, _, counters = line.rpartition(b":")  # an alias has a colon in its name
            name = name.strip()
            fields = counters.split(None, 9)
            traffic = (int(fields[0]), int(fields[8]))
            if name != _LOOPBACK and any(traffic):
                interfaces[name.decode()] = traffic
        return interfaces
