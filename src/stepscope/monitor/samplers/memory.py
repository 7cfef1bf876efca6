"""Memory and swap of the node."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes


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
