"""What is read from and written to the physical disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepscope.monitor.samplers.base import Rates, Sample, Unavailable, read_bytes

__all__ = ["DiskSampler"]

_SECTOR_BYTES = 512
"""In `/proc/diskstats` a sector has this size whatever the disk's own."""


class DiskSampler:
    """Bytes per second read from and written to each physical disk."""

    group = "disk"

    def __init__(self, *, proc: str = "/proc", sys: Path = Path("/sys")) -> None:
        """Sample this node's disks.

        Raises:
            Unavailable: There is no physical disk to be seen.
        """
        self._path = f"{proc}/diskstats"
        self._blocks = sys / "block"
        self._physical: dict[bytes, bool] = {}
        self._rates = Rates("disk_read_bytes_per_s", "disk_write_bytes_per_s")
        try:
            seen = self._read()
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}") from None
        if not seen:
            raise Unavailable(f"no physical disk of {self._path} stands under {self._blocks}")

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples of each disk; see `Sampler.sample`."""
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
        """Whether a piece of hardware stands behind *name*.

        Only whole disks have a directory under /sys/block, and only those with hardware behind
        them a `device` in it. So partitions, loop and RAM disks, and the mappings and arrays
        that would count the same bytes again are all left out by one rule.
        """
        known = self._physical.get(name)
        if known is None:
            directory = name.decode().replace("/", "!")  # as sysfs spells it
            known = self._physical[name] = (self._blocks / directory / "device").exists()
        return known
