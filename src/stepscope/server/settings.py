"""Settings of the server, and the processes of its workers.

Fork server of the workers: a process that has imported all modules and opened nothing. The imports
take half a second, so that the process is started before anything else; hence this module imports
nothing of the project. Windows has no such process: there each worker imports all of it.
"""

from __future__ import annotations

import ipaddress
import multiprocessing
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # Windows has one of the two
    from multiprocessing.context import ForkServerContext, SpawnContext

TASKS = "stepscope.server.tasks"


def worker_context(tasks: str = TASKS) -> ForkServerContext | SpawnContext:
    """Configure the multiprocessing context of the workers.

    Args:
        tasks: module with `TASKS`, to import in the fork server.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", tasks, "stepscope.server.preloaded"])
    return context


def start_fork_server() -> None:
    """Start the process, which imports while the server does the same. It ignores Ctrl-C."""
    if worker_context().get_start_method() != "forkserver":
        return
    from multiprocessing import forkserver

    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, previous)


FIRST_PORT = 8420
MIN_TOKEN_LENGTH = 12
MB = 1_000_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one request."""

    response_s: float = 60.0
    """Time after which a worker without a response is killed."""
    grace_s: float = 2.0
    """Time that a worker has to finish a response after its client has disconnected. Long enough
    for work that is done once per run, such as reading the list of tracks."""
    response_bytes: int = 64 * MB
    body_bytes: int = 64_000
    """Size of the body of a request."""
    body_s: float = 10.0
    """Time for the body of a request, or for the next part of a trace, to arrive."""
    trace_bytes: int = 20_000 * MB
    """Size of a trace that a page sends."""
    worker_bytes: int = 220 * MB
    """Memory growth above which a worker is replaced after its response."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one server."""

    root: Path | str
    """Directory, without links in its path, or URL at or below which runs are served."""
    host: str = "127.0.0.1"
    port: int = 0
    """Port; 0 for the first free one from 8420 on."""
    token: str | None = None
    """Token that requests need; None for no token, which `stepscope ui` never does."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names to accept in addition to the machine's own."""
    source_roots: tuple[Path, ...] = ()
    """Directories below which source files may be shown."""
    limits: Limits = msgspec.field(default_factory=Limits)
    runs_directory: str = "."
    """Directory below the root for the runs of imported traces."""
    tasks: str = TASKS
    """Module with `TASKS`, which workers import."""

    @property
    def on_loopback(self) -> bool:
        """True when only processes of this machine can reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Check whether a name or an address belongs to the loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
