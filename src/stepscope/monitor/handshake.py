"""Handshake between launcher and monitor, through small files in the spool.

Files survive the process that wrote them: either process may be killed at any time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from stepscope.schema import MALFORMED_JSON, STUCK_ALERT

RESERVED_BYTES = 256
"""Least size of a file of the handshake; the rest of it is blank."""


class JobExit(msgspec.Struct, frozen=True, kw_only=True):
    """Exit status of the command."""

    exit_code: int | None
    signal: int | None
    ended_monotonic_ns: int | None = None
    """Time of the end by the monotonic clock; null from earlier versions."""

    @classmethod
    def of(cls, wait_status: int) -> JobExit:
        """Decode the wait status of a command that has just ended."""
        code = os.waitstatus_to_exitcode(wait_status)
        return cls(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            ended_monotonic_ns=time.monotonic_ns(),
        )


class StopSignal(msgspec.Struct, frozen=True, kw_only=True):
    """Signal that the launcher has sent to the job: forwarded, or because of a stop request."""

    signal: int
    rule: str | None = None
    """Rule that requested the stop, or the alert of a stuck job."""
    by: str | None = None
    """Person who requested the stop."""
    node: str | None = None
    """Node of the same job that was stopped first; None if that is this one."""

    @property
    def is_requested(self) -> bool:
        """True for a stop request; False for a signal from the terminal or the system."""
        return self.rule is not None or self.by is not None

    @property
    def reason(self) -> str:
        """Reason for the stop, as a sentence."""
        location = "" if self.node is None else f" on node {self.node}"
        if self.rule == STUCK_ALERT:
            return (
                f"--on-stuck stopped the job{location} (signal {self.signal}), because it was stuck"
            )
        if self.rule is not None:
            return (
                f"the rule {self.rule} fired{location} and stopped the job (signal {self.signal})"
            )
        if self.by is not None:
            return f"{self.by} stopped the job{location} (signal {self.signal})"
        return f"signal {self.signal} was forwarded to the job"


class Handshake:
    """Files of the handshake in one spool."""

    def __init__(self, spool: Path) -> None:
        self._exit = spool / "job-exit.json"
        self._stop = spool / "job-stop.json"
        self._elsewhere = spool / "job-stop-elsewhere.json"
        self._detached = spool / "detached"

    def reserve(self) -> None:
        """Reserve room for the exit status: the spool may be full when the command ends.

        Raises:
            OSError: the spool cannot be written.
        """
        self._exit.with_name(self._exit.name + ".new").write_bytes(bytes(RESERVED_BYTES))

    def write_exit(self, job_exit: JobExit) -> None:
        """Report that the command has ended."""
        _replace(self._exit, msgspec.json.encode(job_exit))

    def write_stop(self, stop: StopSignal) -> None:
        """Report a signal to the job."""
        _replace(self._stop, msgspec.json.encode(stop))

    def write_stop_elsewhere(self, stop: StopSignal) -> None:
        """Ask the launcher to stop the job as well: it was stopped on another node."""
        _replace(self._elsewhere, msgspec.json.encode(stop))

    def write_detached(self) -> None:
        """Report that the monitor continues with orphaned processes of the command."""
        _replace(self._detached, b"")

    def is_detached(self) -> bool:
        """Check whether the monitor has reported orphaned processes."""
        return self._detached.exists()

    def read_exit(self) -> JobExit | None:
        """Read the exit status of the command; None while it runs, or if it is unknown."""
        try:
            return msgspec.json.decode(self._exit.read_bytes(), type=JobExit)
        except (FileNotFoundError, *MALFORMED_JSON):
            return None

    def read_stop(self) -> StopSignal | None:
        """Read the signal to the job; None without one."""
        return _read_signal(self._stop)

    def read_stop_elsewhere(self) -> StopSignal | None:
        """Read the request to stop the job as another node has done; None without one."""
        return _read_signal(self._elsewhere)


def _read_signal(path: Path) -> StopSignal | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StopSignal)
    except (OSError, *MALFORMED_JSON):
        return None


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)  # somebody may have deleted the spool
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        content = data.ljust(RESERVED_BYTES)
        os.write(descriptor, content)  # without a new block if the file was reserved
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
    temporary.replace(path)
