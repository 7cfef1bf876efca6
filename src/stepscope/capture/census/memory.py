"""Memory of this process, and what copies of the pages that it shares with forks could cost.

A census counts a reference to each object that it looks at, which writes to its page. The kernel
copies a page that forked processes share for the one that writes (copy on write).
"""

from __future__ import annotations

import os

MAX_COPIED_RATIO = 0.5
"""Share of the available memory that copies may take."""
SMALL_BYTES = 64 << 20
"""Copies of less matter nowhere."""
_NS_PER_PAGE = 10
"""Time in which the kernel looks at a resident page for `smaps_rollup`, rounded up."""
_GROUPS = "/sys/fs/cgroup"


class MemoryUse:
    """Memory of this process in bytes; 0 where the system does not say.

    Args:
        resident: resident memory.
        anonymous: the part that belongs to no file.
        private: mapped by no other process.
        shared: limit on the anonymous memory that forked processes share with it.
    """

    __slots__ = ("anonymous", "private", "resident", "shared")

    def __init__(self, resident: int, anonymous: int, private: int, shared: int) -> None:
        self.resident = resident
        self.anonymous = anonymous
        self.private = private
        self.shared = shared


def read_memory(limit_ns: float) -> MemoryUse:
    """Read the memory of this process (proc_pid_smaps_rollup(5)).

    Args:
        limit_ns: time for it: the kernel looks at each page. Without that time, only what it counts
            anyway is read, and all anonymous memory may be shared.
    """
    words = _read("/proc/self/statm").split()
    page_count = int(words[1]) if len(words) > 1 else 0
    if _NS_PER_PAGE * page_count > limit_ns:
        fields = _read_fields("/proc/self/status")
        anonymous = fields.get(b"RssAnon", 0)
        return MemoryUse(fields.get(b"VmRSS", 0), anonymous, 0, anonymous)
    fields = _read_fields("/proc/self/smaps_rollup")
    anonymous = fields.get(b"Anonymous", 0)
    private = fields.get(b"Private_Dirty", 0) + fields.get(b"Private_Clean", 0)
    shared = min(anonymous, fields.get(b"Shared_Dirty", 0))
    return MemoryUse(fields.get(b"Rss", 0), anonymous, private, shared)


def has_room_for_copies(shared_bytes: int) -> bool:
    """Return True if copies of all shared pages fit into the memory that is available."""
    if shared_bytes <= SMALL_BYTES:
        return True
    available = _read_available()
    return available is None or shared_bytes <= MAX_COPIED_RATIO * available


def _read_available() -> int | None:
    """Read the memory that the machine and the control groups have left; None if unknown."""
    sizes = [
        size
        for size in (_read_fields("/proc/meminfo").get(b"MemAvailable"), _read_group())
        if size is not None
    ]
    return min(sizes) if sizes else None


def _read_group() -> int | None:
    """Read the memory that is left in the control groups of this process, version 2 or 1."""
    sizes = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = (os.fsdecode(part) for part in line.split(b":", 2))
        if controllers and "memory" not in controllers.split(","):
            continue
        names, root = ("memory.max", "memory.current"), _GROUPS
        if controllers:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            root = f"{_GROUPS}/memory"
        while True:
            limit, use = (_read(f"{root}{path}/{name}").strip() for name in names)
            if limit.isdigit() and use.isdigit():
                stat = _read(f"{root}{path}/memory.stat").split()
                pairs = dict(zip(stat[::2], stat[1::2]))
                files = sum(int(pairs.get(key, 0)) for key in (b"active_file", b"inactive_file"))
                sizes.append(max(0, int(limit) - int(use) + files))
            if path in {"", "/"}:
                break
            path = os.path.dirname(path)
    return min(sizes) if sizes else None


def _read_fields(path: str) -> dict[bytes, int]:
    """Read the sizes in bytes of a file of procfs with lines such as `Rss: 12 kB`."""
    fields = {}
    for line in _read(path).splitlines():
        name, _, rest = line.partition(b":")
        words = rest.split()
        if len(words) == 2 and words[0].isdigit() and words[1] == b"kB":
            fields[name] = 1024 * int(words[0])
    return fields


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 16)
        finally:
            os.close(descriptor)
    except OSError:
        return b""
