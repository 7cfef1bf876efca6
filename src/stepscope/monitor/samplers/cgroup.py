"""Limits that a control group puts on the job, in cgroup v1, v2 and both at once.

A process stands in one directory of each hierarchy, and every directory from there up to the
mount may limit it: the least limit wins. In a container `/proc/self/cgroup` may show the host's
path, which is not visible below the container's mount; the mount itself is then the process's
own directory.

Every function takes *root*, the directory that stands for `/`, and *pid*, whose limits to find.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stepscope.monitor.samplers.base import Sample, Unavailable

__all__ = ["ThrottleSampler", "cores_available", "memory_limit_bytes"]

_NS_PER_US = 1_000
_V1_NO_LIMIT_BYTES = 1 << 62
"""Version 1 writes "no limit" as the largest number of whole pages."""
MOVING_S = 0.05
"""Libraries that ask every core for its kind move their thread from one to the next: importing
PyTorch does so for 3 to 6 ms. A mask that is still the same after this is meant."""


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """Where a process stands in the hierarchy of one controller."""

    version: int
    own: Path
    top: Path

    def levels(self) -> Iterator[Path]:
        """The process's own directory and all above it, up to the mount."""
        yield self.own
        if self.own != self.top:
            for level in self.own.parents:
                yield level
                if level == self.top:
                    return


@dataclass(frozen=True, slots=True)
class _Quota:
    """CPU time that a directory grants in each period."""

    directory: Path
    quota_ns: int
    period_ns: int

    @property
    def cores(self) -> float:
        return self.quota_ns / self.period_ns


def cores_available(
    root: Path = Path("/"), *, pid: int | None = None, affinity: int | None = None
) -> float:
    """Cores that the process *pid* (ours by default) may use.

    The least of its affinity mask, its cpuset and every CPU quota above it. *affinity* is the
    size of the mask; it is asked of the kernel when not given.
    """
    if affinity is None:
        affinity = _affinity(pid)
    limits = [float(affinity), *(quota.cores for quota in _quotas(root, pid))]
    cpuset = _hierarchy("cpuset", root, pid)
    if cpuset is not None:
        limits += [float(size) for size in map(_cpuset_size, cpuset.levels()) if size]
    return min(limits)


def memory_limit_bytes(root: Path = Path("/"), *, pid: int | None = None) -> int | None:
    """The least memory limit above the process *pid* (ours by default), or None without one."""
    hierarchy = _hierarchy("memory", root, pid)
    if hierarchy is None:
        return None
    name = "memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max"
    limits = []
    for level in hierarchy.levels():
        text = _read(level / name)
        if text.isdigit() and int(text) < _V1_NO_LIMIT_BYTES:
            limits.append(int(text))
    return min(limits, default=None)


class _Throttled(NamedTuple):
    """Cumulative counters of one directory."""

    queues_ns: int
    """Time stood still, summed over the cores that had something to run."""
    periods: int
    """Periods in which the quota ran out."""


class ThrottleSampler:
    """Share of the time in which the job's CPU quota was used up."""

    group = "cgroup"

    def __init__(self, pid: int | None = None, root: Path = Path("/")) -> None:
        """Sample the quotas above the process *pid* (ours by default).

        Raises:
            Unavailable: No quota limits it.
        """
        self._quotas = list(_quotas(root, pid))
        if not self._quotas:
            raise Unavailable("no CPU quota limits the job, so that it cannot be throttled")
        self._before: dict[Path, _Throttled] = {}
        self._before_ns = 0

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """The share of the level that stood still most; see `Sampler.sample`."""
        before, elapsed_ns = self._before, now_ns - self._before_ns
        self._before, self._before_ns = {}, now_ns
        shares: list[float] = []
        for quota in self._quotas:
            now = _throttled(quota.directory)
            if now is None:
                continue
            self._before[quota.directory] = now
            old = before.get(quota.directory)
            if old is not None and elapsed_ns > 0:
                shares.append(min(1.0, _stood_still_ns(quota, old, now) / elapsed_ns))
        if shares:
            yield Sample("cgroup_throttled_ratio", "", max(shares))


def _stood_still_ns(quota: _Quota, old: _Throttled, new: _Throttled) -> float:
    """Wall time without any quota left, from a counter that sums over cores.

    With k cores running until the quota Q of a period P is used up, the group runs for Q / k and
    stands still for P - Q / k, on k cores: the counter grows by T = k P - Q. So k = (T + Q) / P,
    and the time stood still is T / k. A group that began late in a period stands still for less
    than that; but never for more than T, as one core at least was waiting.
    """
    grown_ns = max(0, new.queues_ns - old.queues_ns)
    if grown_ns == 0:
        return 0.0
    periods = max(1, new.periods - old.periods)
    cores = (grown_ns + periods * quota.quota_ns) / (periods * quota.period_ns)
    return grown_ns / max(1.0, cores)


def _throttled(directory: Path) -> _Throttled | None:
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
        if not cores >= os.sched_getaffinity(0):  # ours is what the job began with
            time.sleep(MOVING_S)
            cores |= os.sched_getaffinity(pid or 0)
        return len(cores)
    except ProcessLookupError:
        return os.cpu_count() or 1


def _cpuset_size(level: Path) -> int | None:
    """Cores in the effective set of one directory: "0-3,8" has five."""
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        if text := _read(level / name):
            ranges = [part.partition("-") for part in text.split(",")]
            return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    return None


def _hierarchy(controller: str, root: Path, pid: int | None) -> _Hierarchy | None:
    """Where *pid* stands for *controller*: in version 1 where it is mounted so, else in 2."""
    paths = _membership(root, pid)
    for version, key in ((1, controller), (2, "")):
        mount = _mount(version, key, root)
        if mount is not None and key in paths:
            top, exported = mount
            return _Hierarchy(version, _own_directory(top, exported, paths[key]), top)
    return None


def _membership(root: Path, pid: int | None) -> dict[str, str]:
    """Path of the process's group by controller of version 1; by "" in version 2."""
    paths: dict[str, str] = {}
    for line in _read(root / "proc" / str(pid or "self") / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _mount(version: int, controller: str, root: Path) -> tuple[Path, str] | None:
    """Mount point of a hierarchy below *root*, and which of its directories is mounted there."""
    for line in _read(root / "proc/self/mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        exported, mount_point = fields.split()[3:5]
        kind, _, options = rest.split(None, 2)
        if version == 1:
            fits = kind == "cgroup" and controller in options.split(",")
        else:
            fits = kind == "cgroup2"
        if fits:
            return root / mount_point.lstrip("/"), exported
    return None


def _own_directory(top: Path, exported: str, path: str) -> Path:
    """The group's directory below the mount, or the mount where it cannot be seen."""
    wanted = PurePosixPath(path)
    if ".." in wanted.parts:  # outside this cgroup namespace
        return top
    for base in (exported, "/"):
        if wanted.is_relative_to(base):
            directory = top / wanted.relative_to(base)
            if directory.is_dir():
                return directory
    return top


def _read(path: Path) -> str:
    """The file's text, empty where it cannot be read: an absent file limits nothing."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
