"""Traffic of the network interfaces."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.monitor.samplers.base import Rates, Sample, Unavailable, read_bytes

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
