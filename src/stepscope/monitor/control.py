"""Control of a job: processes that are no children, ends, stops, changes of configuration.

Stops of a job on all of its nodes: the node that is asked to stop the job tells the others. The
launcher of a node looks for requests in its spool only, so that a slow run never makes it wait. The
monitors pass them on through the run; where that is in an object store, the uploads of the nodes
exchange them.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from stepscope import errors, schema, spool, store
from stepscope.monitor.config import Handshake, StopSignal
from stepscope.monitor.windows.service import WindowService


def find_processes(variable: str, value: str) -> dict[int, int]:
    """Find the processes that were started with this environment variable.

    A daemon has no relation to the command that started it, except for the inherited environment.

    Returns:
        Start ticks by pid.
    """
    entry = f"{variable}={value}".encode()
    processes = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment = (directory / "environ").read_bytes().split(b"\0")
        except OSError:  # ended, or of another user
            continue
        ticks = spool.process_start_ticks(directory.name) if entry in environment else None
        if ticks is not None:
            processes[int(directory.name)] = ticks
    return processes


PIDFD_GET_INFO = 0xC040FF0B
"""ioctl of a pidfd: `_IOWR(0xFF, 11, struct pidfd_info)` of include/uapi/linux/pidfd.h."""
PIDFD_INFO_EXIT = 1 << 3
"""Flag for the wait status of a process that has been reaped; since Linux 6.15."""
PIDFD_INFO = struct.Struct("=Q52xi")
"""Flags and wait status, the first and the last field of `struct pidfd_info`."""


class ProcessEnd:
    """End of one process, which must be running when this is created."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError:  # ended, or a kernel without pidfds
            self._descriptor = -1

    def __enter__(self) -> ProcessEnd:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> None:
        """Return after *seconds*, or as soon as the process has ended."""
        if seconds <= 0:
            return
        if self._descriptor < 0:
            time.sleep(seconds)
        else:
            select.select([self._descriptor], [], [], seconds)

    def read_wait_status(self) -> int | None:
        """Return the wait status of the process, as `os.waitpid` does; None while it runs, or where
        the kernel tells it to the parent only.

        Until the parent has read it, it is field 52 of /proc/<pid>/stat (proc_pid_stat(5)).
        Afterwards, Linux 6.15 and later keep it with the pidfd.
        """
        if self._descriptor < 0:
            return None
        try:
            # Raises where we may not read field 52, which is 0 then.
            Path(f"/proc/{self._pid}/ns/pid").readlink()
        except OSError:
            return self._read_kept_status()
        fields = spool.read_process_fields(self._pid)
        if fields is None:
            return self._read_kept_status()
        return int(fields[49]) if fields[0] == b"Z" else None

    def _read_kept_status(self) -> int | None:
        info = bytearray(PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0))
        try:
            fcntl.ioctl(self._descriptor, PIDFD_GET_INFO, info)
        except OSError:  # an older kernel
            return None
        flags, status = PIDFD_INFO.unpack(info)
        return int(status) if flags & PIDFD_INFO_EXIT else None


class StopRelay:
    """Passes on requests to stop the job, from and to one node.

    Args:
        location: the run.
        launcher: the launcher of this node in a run of several; None in a run of one, where nothing
            is to be done.
        handshake: files that this monitor and its launcher share.
    """

    def __init__(
        self, location: str, launcher: schema.LauncherInfo | None, handshake: Handshake
    ) -> None:
        self._run = None if launcher is None else store.SharedRun(location)
        self._launcher = launcher
        self._handshake = handshake
        self._count = 0
        """Number of stops in the run that were read."""
        self._is_told = False

    def poll(self) -> None:
        """Tell the other nodes that the job was stopped here, and this node of a stop elsewhere.

        Raises:
            OSError: the run or the spool cannot be read or written; the next call tries again.
        """
        if self._run is None or self._launcher is None:
            return
        for stop in self._run.read_stops(self._count + 1):
            if stop.node != self._launcher.node and stop.incarnation >= self._launcher.incarnation:
                self._handshake.write_stop_elsewhere(
                    StopSignal(signal=signal.SIGTERM, rule=stop.rule, by=stop.by, node=stop.node)
                )
            self._count += 1
        here = self._handshake.read_stop()
        if here is not None and here.is_requested and here.node is None and not self._is_told:
            self._run.add_stop(
                schema.JobStop(
                    node=self._launcher.node,
                    incarnation=self._run.find_latest_incarnation(),
                    rule=here.rule,
                    by=here.by,
                    stopped_ns=time.time_ns(),
                )
            )
            self._is_told = True


class Reconfiguration:
    """Changes of the configuration of a run, in their order.

    Args:
        run: local directory of the run.
        windows: detailed windows of this node.
    """

    def __init__(self, run: str, windows: WindowService) -> None:
        self._changes = store.ConfigurationChanges(run)
        self._windows = windows
        self._count = 0
        """Number of requests that are decided and, if accepted, applied."""

    def poll(self, set_interval: Callable[[int], None]) -> None:
        """Decide on new requests, and apply the newest configuration.

        Args:
            set_interval: sets the sampling interval, in milliseconds.

        Raises:
            OSError: the run or the spool cannot be written; the next call tries again.
        """
        newest, number = None, self._count
        while (request := self._changes.read_request(number + 1)) is not None:
            decision = self._changes.read_decision(request.number)
            if decision is None:
                if newest is not None:
                    break  # that one applies first
                decision = self._changes.decide(request.number, self._decide(request))
            newest, number = decision.configuration or newest, request.number
        if newest is not None:
            self._windows.configure(newest, number)
            set_interval(newest.interval_ms)
        self._count = number

    def _decide(self, request: schema.ConfigurationRequest) -> schema.ConfigurationDecision:
        now_ns = time.time_ns()
        try:
            schedules = self._windows.admit(request.configuration.schedules)
        except errors.UsageError as error:
            return schema.ConfigurationDecision(
                decided_ns=now_ns, configuration=None, refusal=str(error)
            )
        return schema.ConfigurationDecision(
            decided_ns=now_ns,
            configuration=msgspec.structs.replace(request.configuration, schedules=schedules),
        )
