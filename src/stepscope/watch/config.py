"""Configuration of the watch process, its lease and limits, and requests to stop the job.

Stop requests to a job's launcher: a small file next to the span logs. A file survives the process
that wrote it: the launcher sees the request of a watch process that has been killed since. It is
local, so that looking for it never makes the launcher wait.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from stepscope import schema, store
from stepscope.budget import Budget, release_memory

ActionKind = Literal["stop", "command", "webhook", "notify"]


class ActionError(Exception):
    """Failure of an action that a rule starts; a retry may succeed.

    The job and the run are not affected, and the finding lists the attempts. Check the command, URL
    or address of the option that asks for the action.
    """


class ActionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Action on a finding."""

    kind: ActionKind
    address: str
    """The command, the URL, or, to stop the job, the path of the stop request."""
    target: str
    """Form of the address that the run records: no secrets."""
    rules: list[str] | None = None
    """Rules that trigger the action; None for all."""


class ExportConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A place that is sent the figures of the job while it runs and when it has ended."""

    format: str
    output: str


class WatchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration, passed as JSON on standard input: URLs hold secrets, and every user of the
    machine can read command lines."""

    run: str
    shown: str | None = None
    """Location of the run in alerts, if it is another one: the URL of a run that is recorded for an
    object store."""
    node: str | None = None
    """This node, if the launchers of several nodes share the run: the one that holds the lease
    evaluates the rules. None for the only node."""
    launcher_pid: int
    """PID of `stepscope run`."""
    scan_ns: int
    selection: schema.RuleSelection = schema.RuleSelection()
    """Rules at the start of the job."""
    also: list[str] = []
    """Further rules, which actions refer to: names, or `path.py:MyRule`."""
    actions: list[ActionConfig] = []
    budget: Budget = Budget()
    """CPU time and memory of this process."""
    report: str | None = None
    """File of the report that is written while the job runs."""
    exports: list[ExportConfig] = []
    takes_census: bool = True
    """Take a census of the processes whose memory grows for certain."""


def user_name() -> str:
    """Return the name of the user of this process, or the number where there is no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


LEASE_POLL_S = 2.0


class LeaseWatch:
    """Lease of this node as its watch process sees it; the monitor of the node takes it.

    Args:
        location: the run.
        node: this node; None in a run of one node, which needs no lease.
    """

    def __init__(self, location: str, node: str | None) -> None:
        self._run = store.SharedRun(location)
        self._node = node
        self._is_held = node is None
        self._next_s = 0.0

    def is_held(self) -> bool:
        """Return True if this node evaluates the rules; reads the run every two seconds at most.

        Where the run cannot be read, the last answer holds.
        """
        if self._node is not None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LEASE_POLL_S
            try:
                lease = self._run.read_lease()
            except OSError:
                return self._is_held
            self._is_held = lease is not None and lease.node == self._node
        return self._is_held

    def wait(self, launcher_pid: int, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Wait for the lease.

        Args:
            launcher_pid: the launcher, whose end ends the wait.
            sleep: waits for a number of seconds.

        Returns:
            False if the launcher has ended before.
        """
        while not self.is_held():
            if os.getppid() != launcher_pid:
                return False
            sleep(LEASE_POLL_S / 4)
        return True


REFRESH_S = 3.0
MAX_READING_SHARE = 0.02
"""Maximum share of the time spent on reading the growing run; a large run is read less often."""


class ReadingBudget:
    """Limit of an expensive operation to a share of the time. All CPU time of the process during
    the operation counts, because queries run in threads of their own.

    Args:
        max_share: the limit, as a share of one core.
        interval_s: minimum time between two operations.
        credit_s: time over which the limit holds on average; 0 if it holds for each operation.
        clock: monotonic time in seconds.
        cpu_clock: CPU time of this process in seconds.
    """

    def __init__(
        self,
        max_share: float = MAX_READING_SHARE,
        *,
        interval_s: float = REFRESH_S,
        credit_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._max_share = max_share
        self._interval_s = interval_s
        self._credit_s = credit_s
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._next_s = clock()
        self._paid_s = self._next_s - credit_s
        """Time up to which the share of the time is spent."""

    @property
    def allows(self) -> bool:
        """True when the operation may be done now."""
        return self._clock() >= self._next_s

    @property
    def wait_s(self) -> float:
        """Time until the next operation may be done."""
        return max(0.0, self._next_s - self._clock())

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Measure the cost of the operation in the body, after which its memory is released."""
        start_s = self._cpu_clock()
        try:
            yield
        finally:
            release_memory()
            cost_s, now_s = self._cpu_clock() - start_s, self._clock()
            self._paid_s = max(self._paid_s, now_s - self._credit_s) + cost_s / self._max_share
            self._next_s = max(now_s + self._interval_s, self._paid_s)


STOP_REQUEST_FILE = "stop-request.json"


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a rule or a person to stop the job."""

    rule: str | None = None
    by: str | None = None
    """The person, where the request comes from no rule."""


def write_stop_request(path: Path, request: StopRequest) -> None:
    """Write a request, replacing an earlier one.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(msgspec.json.encode(request))
    temporary.replace(path)


def read_stop_request(path: Path) -> StopRequest | None:
    """Read the request; None while there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StopRequest)
    except (OSError, *schema.MALFORMED_JSON):
        return None
