"""What launcher and monitor tell each other, through small files in the spool.

Files, because either may be killed at any time and the other has to know all the same.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class JobExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the command ended."""

    exit_code: int | None
    signal: int | None
    ended_ns: int
    """Epoch nanoseconds."""


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The launcher passed a signal on to the job, or sent it one because of a rule or a wish."""

    signal: int
    rule: str | None = None
    by: str | None = None
    """Who wished it."""

    @property
    def was_wished(self) -> bool:
        """Whether it came neither from the terminal nor from the system."""
        return self.rule is not None or self.by is not None

    @property
    def reason(self) -> str:
        """Why the job was stopped, as a sentence."""
        if self.rule is not None:
            return f"the rule {self.rule} fired and stopped the job (signal {self.signal})"
        if self.by is not None:
            return f"{self.by} stopped the job (signal {self.signal})"
        return f"signal {self.signal} was passed on to the job"


class Exchange:
    """Reads and writes these files."""

    def __init__(self, spool: Path) -> None:
        self._exit = spool / "job-exit.json"
        self._stop = spool / "job-stop.json"
        self._detached = spool / "detached"

    def write_exit(self, job_exit: JobExit) -> None:
        """The command has ended."""
        _replace(self._exit, msgspec.json.encode(job_exit))

    def write_stop(self, request: StopRequest) -> None:
        """The job has been asked to stop."""
        _replace(self._stop, msgspec.json.encode(request))

    def write_detached(self) -> None:
        """The monitor stays with processes that outlive the command."""
        _replace(self._detached, b"")

    def is_detached(self) -> bool:
        """True once the monitor has said so."""
        return self._detached.exists()

    def read_exit(self) -> JobExit | None:
        """How the command ended, None while it has not or nobody knows."""
        try:
            return msgspec.json.decode(self._exit.read_bytes(), type=JobExit)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def read_stop(self) -> StopRequest | None:
        """The signal that was passed on, None when none was."""
        try:
            return msgspec.json.decode(self._stop.read_bytes(), type=StopRequest)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(data)
    temporary.replace(path)
