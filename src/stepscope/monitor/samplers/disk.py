"""Reads and writes of the physical disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepscope.monitor.samplers.base import Rates, Sample, Unavailable, read_bytes

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
