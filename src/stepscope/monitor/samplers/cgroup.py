"""Limits of the job's control groups, in cgroup v1, v2 and both at once.

A process belongs to one directory of a hierarchy, and every directory from there up to the mount
may limit it: the smallest limit applies. In a container `/proc/self/cgroup` may show the host's
path, which is not visible below the container's mount; then the mount is the process's directory.

Every function takes *root*, the directory used as `/`, and *pid*, the process to look up.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from stepscope.monitor.samplers.base import Sample, Unavailable

_NS_PER_US = 1_000
_V1_NO_LIMIT_BYTES = 1 << 62
"""Version 1 writes "no limit" as the largest number of whole pages."""
AFFINITY_SETTLE_S = 0.05
"""Libraries that query the type of every core move their thread from one to the next: importing
PyTorch does so for 3 to 6 ms. A mask that is unchanged after this time is intended."""


class _Hierarchy(msgspec.Struct, frozen=True):
    """Directory of a process in the hierarchy of one controller."""

    version: int
    directory: Path
    top: Path

    def levels(self) -> Iterator[Path]:
        """Yield the directory of the process and all above it, up to the mount."""
        yield self.directory
        if self.directory != self.top:
            for level in self.directory.parents:
                yield level
                if level == self.top:
                    return


class _Quota(msgspec.Struct, frozen=True):
    """CPU time that a directory grants per period."""

    directory: Path
    quota_ns: int
    period_ns: int

    @property
    def cores(self) -> float:
        return self.quota_ns / self.period_ns


def cores_available(
    root: Path = Path("/"), *, pid: int | None = None, affinity: int | None = None
) -> float:
    """Count the cores that the process *pid* (default: the current one) may use.

    The smallest of its affinity mask, its cpuset and every CPU quota above it. *affinity* is the
    size of the mask; by default it is read from the kernel.
    """
    if affinity is None:
        affinity = _affinity(pid)
    limits = [float(affinity), *(quota.cores for quota in _quotas(root, pid))]
    cpuset = _hierarchy("cpuset", root, pid)
    if cpuset is not None:
        limits += [float(size) for size in map(_cpuset_size, cpuset.levels()) if size]
    return min(limits)


def memory_limit_bytes(root: Path = Path("/"), *, pid: int | None = None) -> int | None:
    """Read the smallest memory limit above the process *pid* (default: the current one); None
    without one."""
    return min((limit for _, limit in _memory_limits(root, pid)), default=None)


class MemoryUse(NamedTuple):
    """Memory of the processes of one directory, and its limit."""

    directory: Path
    used_bytes: int
    """Without pages of files, which the kernel drops or writes back before it kills a process."""
    limit_bytes: int

    @property
    def share(self) -> float:
        """Share of the limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 1.0


def most_used_memory_limit(root: Path = Path("/"), *, pid: int | None = None) -> MemoryUse | None:
    """Read the use of the memory limit that is nearest to its end; None without a limit."""
    uses = []
    for directory, limit in _memory_limits(root, pid):
        version_1 = _read(directory / "memory.usage_in_bytes")
        used = version_1 or _read(directory / "memory.current")
        prefix = "total_" if version_1 else ""
        pages = rf"^{prefix}(?:in)?active_file (\d+)$"
        cached = re.findall(pages, _read(directory / "memory.stat"), re.MULTILINE)
        if used.isdigit():
            used_bytes = int(used) - sum(map(int, cached))
            uses.append(MemoryUse(directory, max(0, used_bytes), limit))
    return max(uses, key=lambda use: use.share, default=None)


def count_memory_kills(root: Path = Path("/"), *, pid: int | None = None) -> int | None:
    """Count the processes in the directory of a process, and below, that the kernel has killed for
    want of memory; None where it does not say."""
    hierarchy = _hierarchy("memory", root, pid)
    if hierarchy is None:
        return None
    name = "memory.oom_control" if hierarchy.version == 1 else "memory.events"
    count = re.search(r"^oom_kill (\d+)$", _read(hierarchy.directory / name), re.MULTILINE)
    return None if count is None else int(count[1])


def read_memory_stall_us(root: Path = Path("/"), *, pid: int | None = None) -> int | None:
    """Read the time in which some task of the process's directory waited for memory, in
    microseconds since boot; that of the node in version 1, None where the kernel does not tell.

    https://docs.kernel.org/accounting/psi.html
    """
    hierarchy = _hierarchy("memory", root, pid)
    text = "" if hierarchy is None else _read(hierarchy.directory / "memory.pressure")
    match = _STALLED.search(text or _read(root / "proc/pressure/memory"))
    return None if match is None else int(match[1])


_STALLED = re.compile(r"^some .*total=(\d+)$", re.MULTILINE)


def _memory_limits(root: Path, pid: int | None) -> Iterator[tuple[Path, int]]:
    """Yield the directories above a process that limit its memory."""
    hierarchy = _hierarchy("memory", root, pid)
    if hierarchy is None:
        return
    name = "memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max"
    for level in hierarchy.levels():
        text = _read(level / name)
        if text.isdigit() and int(text) < _V1_NO_LIMIT_BYTES:
            yield level, int(text)


class _Throttled(NamedTuple):
    """Cumulative counters of one directory."""

    cores_ns: int
    """Throttled time, summed over the cores with runnable threads."""
    periods: int
    """Number of periods in which the quota was used up."""


class ThrottleSampler:
    """Share of the time in which the job's CPU quota was used up."""

    group = "cgroup"

    def __init__(self, pid: int | None = None, root: Path = Path("/")) -> None:
        """Sample the quotas above the process *pid* (default: the current one).

        Raises:
            Unavailable: no quota limits it.
        """
        self._quotas = list(_quotas(root, pid))
        if not self._quotas:
            raise Unavailable("the job has no CPU quota, so it cannot be throttled")
        self._previous: dict[Path, _Throttled] = {}
        self._previous_ns = 0

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample the share of the most throttled level; see `Sampler.sample`."""
        previous, elapsed_ns = self._previous, now_ns - self._previous_ns
        self._previous, self._previous_ns = {}, now_ns
        shares: list[float] = []
        for quota in self._quotas:
            new = _read_throttled(quota.directory)
            if new is None:
                continue
            self._previous[quota.directory] = new
            old = previous.get(quota.directory)
            if old is not None and elapsed_ns > 0:
                shares.append(min(1.0, _throttled_wall_ns(quota, old, new) / elapsed_ns))
        if shares:
            yield Sample("cgroup_throttled_ratio", "", max(shares))


def _throttled_wall_ns(quota: _Quota, old: _Throttled, new: _Throttled) -> float:
    """Compute the throttled wall time from a counter that sums over cores.

    With k cores running until the quota Q of a period P is used up, the group runs for Q / k and
    is throttled for P - Q / k, on k cores: the counter grows by T = k P - Q. So k = (T + Q) / P,
    and the throttled time is T / k. A group that started late in a period is throttled for less
    time; but never for more than T, as at least one core was waiting.
    """
    growth_ns = max(0, new.cores_ns - old.cores_ns)
    if growth_ns == 0:
        return 0.0
    periods = max(1, new.periods - old.periods)
    cores = (growth_ns + periods * quota.quota_ns) / (periods * quota.period_ns)
    return growth_ns / max(1.0, cores)


def _read_throttled(directory: Path) -> _Throttled | None:
    fields = dict(line.split(None, 1) for line in _read(directory / "cpu.stat").splitlines())
    periods = int(fields.get("nr_throttled", 0))
    if "throttled_usec" in fields:
        return _Throttled(int(fields["throttled_usec"]) * _NS_PER_US, periods)
    if "throttled_time" in fields:
        return _Throttled(int(fields["throttled_time"]), periods)
    return None


def _quotas(root: Path, pid: int | None) -> Iterator[_Quota]:
    hierarchy = _hierarchy("cpu", root, pid)
    if hierarchy is None:
        return
    for level in hierarchy.levels():
        if hierarchy.version == 1:
            words = [_read(level / "cpu.cfs_quota_us"), _read(level / "cpu.cfs_period_us")]
        else:
            words = _read(level / "cpu.max").split()
        # "max" and "-1" are no limit.
        if len(words) == 2 and all(word.isdigit() and int(word) > 0 for word in words):
            yield _Quota(level, int(words[0]) * _NS_PER_US, int(words[1]) * _NS_PER_US)


def _affinity(pid: int | None) -> int:
    try:
        cores = os.sched_getaffinity(pid or 0)
        if not cores >= os.sched_getaffinity(0):  # the job was started with our own mask
            time.sleep(AFFINITY_SETTLE_S)
            cores |= os.sched_getaffinity(pid or 0)
        return len(cores)
    except ProcessLookupError:
        return os.cpu_count() or 1


def _cpuset_size(level: Path) -> int | None:
    """Count the cores in the effective set of one directory: "0-3,8" has five."""
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        if text := _read(level / name):
            ranges = [part.partition("-") for part in text.split(",")]
            return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    return None


def _hierarchy(controller: str, root: Path, pid: int | None) -> _Hierarchy | None:
    """Find the directory of *pid* for *controller*: in version 1 if mounted, else in version 2."""
    paths = _membership(root, pid)
    for version, key in ((1, controller), (2, "")):
        mount = _mount(version, key, root)
        if mount is not None and key in paths:
            top, exported = mount
            return _Hierarchy(version, _group_directory(top, exported, paths[key]), top)
    return None


def _membership(root: Path, pid: int | None) -> dict[str, str]:
    """Read the path of the process's group by controller of version 1; by "" in version 2."""
    paths: dict[str, str] = {}
    for line in _read(root / "proc" / str(pid or "self") / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _mount(version: int, controller: str, root: Path) -> tuple[Path, str] | None:
    """Find the mount point of a hierarchy below *root*, and its directory that is mounted there."""
    for line in _read(root / "proc/self/mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        exported, mount_point = fields.split()[3:5]
        kind, _, options = rest.split(None, 2)
        if version == 1:
            matches = kind == "cgroup" and controller in options.split(",")
        else:
            matches = kind == "cgroup2"
        if matches:
            return root / mount_point.lstrip("/"), exported
    return None


def _group_directory(top: Path, exported: str, path: str) -> Path:
    """Find the group's directory below the mount, or the mount if it is not visible."""
    group = PurePosixPath(path)
    if ".." in group.parts:  # outside this cgroup namespace
        return top
    for base in (exported, "/"):
        if group.is_relative_to(base):
            directory = top / group.relative_to(base)
            if directory.is_dir():
                return directory
    return top


def _read(path: Path) -> str:
    """Read a file; empty if it cannot be read, as an absent file sets no limit."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
