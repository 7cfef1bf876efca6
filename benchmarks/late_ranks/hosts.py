"""Two hosts on one machine: network namespaces joined by a pair of virtual interfaces, or, without
the right to make them, two names on the loopback interface."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

INTERFACE = "ss0"
HOST_COUNT = 2


@dataclass(frozen=True, kw_only=True)
class Host:
    """One of the hosts."""

    name: str
    prefix: tuple[str, ...]
    """Command that runs another one on the host."""
    interface: str
    address: str

    def limit_bandwidth(self, megabits: float) -> None:
        """Limit the rate at which the host sends.

        Raises:
            subprocess.CalledProcessError: the kernel has no token bucket filter.
        """
        _call(
            *self.prefix, "tc", "qdisc", "replace", "dev", self.interface, "root", "tbf",
            "rate", f"{megabits}mbit", "burst", "32kbit", "latency", "400ms",
        )  # fmt: skip


def has_namespaces() -> bool:
    """Return True if this process may make network namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"ss{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    _call("ip", "netns", "del", name)
    return True


@contextmanager
def make_hosts(*, isolated: bool) -> Iterator[list[Host]]:
    """Make two hosts, and remove them in the end.

    Args:
        isolated: they are network namespaces; otherwise two names.
    """
    if not isolated:
        yield [
            Host(name=f"host{n}", prefix=(), interface="lo", address="127.0.0.1")
            for n in range(HOST_COUNT)
        ]
        return
    names = [f"ss{os.getpid()}-{n}" for n in range(HOST_COUNT)]
    try:
        for name in names:
            _call("ip", "netns", "add", name)
            _call("ip", "-n", name, "link", "set", "lo", "up")
        peer = ("peer", "name", INTERFACE, "netns", names[1])
        _call("ip", "-n", names[0], "link", "add", INTERFACE, "type", "veth", *peer)
        hosts = []
        for number, name in enumerate(names):
            address = f"10.213.7.{number + 1}"
            _call("ip", "-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
            _call("ip", "-n", name, "link", "set", INTERFACE, "up")
            prefix = ("ip", "netns", "exec", name)
            hosts.append(
                Host(name=f"host{number}", prefix=prefix, interface=INTERFACE, address=address)
            )
        yield hosts
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def find_free_port() -> int:
    """Find a port that nothing listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


def _call(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)
