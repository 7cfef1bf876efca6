"""What the server is told when it starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from stepscope.server.forking import TASKS

FIRST_PORT = 8420
SHORTEST_TOKEN = 12
MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may take."""

    answer_s: float = 60.0
    """A worker that has not answered by then is killed."""
    grace_s: float = 2.0
    """How much longer a worker may go on with an answer that nobody waits for any more. Long
    enough to get over what it only does once for a run, such as reading a list of tracks."""
    answer_bytes: int = 64 * MB
    body_bytes: int = 64_000
    """Of a request."""
    body_s: float = 10.0
    """How long a request may take to arrive."""
    worker_bytes: int = 220 * MB
    """A worker whose memory has grown by more than this is replaced once it has answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server."""

    root: Path | str
    """Runs at or below this directory are served, no link in it; or below this URL."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 for the first free one from 8420 on."""
    token: str | None = None
    """What everybody must know who asks; None when nobody need."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which this machine may be called, besides those that are known."""
    source_roots: tuple[Path, ...] = ()
    """Source files at or below these may be shown."""
    limits: Limits = field(default_factory=Limits)
    tasks: str = TASKS
    """Module with `TASKS`, which workers import."""

    @property
    def on_loopback(self) -> bool:
        """Whether only processes of this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
