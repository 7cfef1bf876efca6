"""Record of how a job has ended badly: failures of its processes, kills, its last output."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepscope import masking, schema, spool
from stepscope.monitor.config import ErrorOutput, JobExit, MonitorConfig, StopSignal
from stepscope.monitor.process_logs import ProcessLogs
from stepscope.monitor.samplers.base import read_bytes
from stepscope.monitor.samplers.cgroup import count_memory_kills

FAILURE_STATUS = 1
"""Exit status of Python after an uncaught exception."""
MAX_FAILURE_AGE_NS = 60_000_000_000
"""Time before the end of a job in which the failure of a process may be the cause; launchers take
half a minute to end the others."""
MAX_OUTPUT_LINES = 200
MAX_OUTPUT_BYTES = 1 << 18
NO_FILE = (
    "of error output that does not go to a regular file, only what Python writes to sys.stderr is "
    "kept"
)
NOT_RECORDED = "the error output of the job was not recorded (--no-output)"
_CRASH = re.compile(r"Fatal Python error: (.*)")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class DeathRecorder:
    """Recorder of the end of a job on one node.

    Args:
        config: configuration of the monitor of the job; None if the job has ended before.
        keeps_output: keep what the job printed about its end.
    """

    def __init__(self, config: MonitorConfig | None = None, *, keeps_output: bool = True) -> None:
        self._output = None if config is None else config.error_output
        self._keeps_output = keeps_output
        self._group_kills = self._machine_kills = None
        if config is not None:
            self._group_kills, self._machine_kills = count_memory_kills(), _count_machine_kills()

    def describe(
        self,
        info: schema.NodeInfo,
        spool_directory: str,
        processes: Sequence[ProcessLogs],
        job_exit: JobExit | None,
        stop: StopSignal | None,
    ) -> schema.NodeDeath:
        """Describe the end of a job that has failed, or that was stopped."""
        offset_ns = info.epoch_offset_ns
        ended_ns = None if job_exit is None else job_exit.ended_monotonic_ns
        since_ns = (ended_ns or time.monotonic_ns()) - MAX_FAILURE_AGE_NS
        failures = [
            _make_failure(failure, offset_ns, keeps_text=self._keeps_output)
            for failure in spool.read_failures(spool_directory)
            if failure["t_ns"] >= since_ns
        ]
        crashes = [_make_crash(process) for process in processes if process.crash]
        return schema.NodeDeath(
            node=info.node,
            is_forwarded=stop is not None and not stop.is_requested,
            failures=sorted([*failures, *crashes], key=lambda failure: failure.t_ns),
            killed=[process.name for process in processes if process.ended and not process.end],
            group_kill_count=_subtract(count_memory_kills(), self._group_kills),
            machine_kill_count=_subtract(_count_machine_kills(), self._machine_kills),
            output=self._read_output(failures, processes),
            output_missing=self._explain_output(),
        )

    def _read_output(
        self, failures: Sequence[schema.ProcessFailure], processes: Sequence[ProcessLogs]
    ) -> list[str]:
        """Read the last lines of the file; without one, those that the process that failed first
        wrote, or all, or the uncaught exceptions."""
        if not self._keeps_output:
            return []
        if self._output is not None:
            text = _read_end(self._output)
        else:
            texts = {process.pid: process.error_output for process in processes}
            first = min(failures, key=lambda failure: failure.t_ns, default=None)
            text = texts.get(first.pid, "") if first is not None else ""
            text = text or "".join(texts.values())
            text = text or "\n".join(line for failure in failures for line in failure.traceback)
        lines = masking.mask_text("\n".join(_split_lines(text))).splitlines()
        while lines and not lines[-1].strip():
            lines.pop()
        return lines[-MAX_OUTPUT_LINES:]

    def _explain_output(self) -> str | None:
        if not self._keeps_output:
            return NOT_RECORDED
        return NO_FILE if self._output is None else None


def find_last_failure(spool_directory: str) -> dict[str, Any] | None:
    """Find the last failure, of a launcher if there is no other; None without any."""
    failures = spool.read_failures(spool_directory)
    direct = [failure for failure in failures if not spool.is_relayed(failure)]
    return next(reversed(direct or failures), None)


def _make_failure(
    failure: dict[str, Any], offset_ns: int, *, keeps_text: bool
) -> schema.ProcessFailure:
    space = failure.get("shared_memory") or [None, None]
    text = "\n".join(failure.get("traceback", [])) if keeps_text else ""
    return schema.ProcessFailure(
        pid=failure["pid"],
        t_ns=failure["t_ns"] + offset_ns,
        exception=failure["exception"],
        message=masking.mask_text(failure["message"]),
        is_relayed=spool.is_relayed(failure),
        frames=[
            schema.StackFrame(file=file, line=line, function=function)
            for file, line, function in failure.get("frames", [])
        ],
        traceback=masking.mask_text(text).splitlines(),
        shared_memory_bytes=space[0],
        shared_memory_free_bytes=space[1],
    )


def _make_crash(process: ProcessLogs) -> schema.ProcessFailure:
    """Read what `faulthandler` wrote: the stack of the thread that crashed, of the main thread if
    that is none of Python."""
    names = _CRASH.findall(process.crash)
    threads = process.crash.split("\n\n")
    current = [text for text in threads if text.startswith("Current thread")]
    remaining = [text for text in threads if text.startswith("Thread")]
    frames = [
        schema.StackFrame(file=file, line=int(line), function=function)
        for file, line, function in _FRAME.findall((current or remaining or [""])[-1])
    ]
    return schema.ProcessFailure(
        pid=process.pid, t_ns=process.crashed_ns, message=names[-1] if names else "", frames=frames
    )


def _subtract(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(0, now - before)


def _count_machine_kills() -> int | None:
    """Count the processes of the machine that the kernel has killed for want of memory since its
    start; None where it does not say (Linux before 4.13)."""
    with suppress(OSError):
        count = re.search(rb"^oom_kill (\d+)$", read_bytes("/proc/vmstat"), re.MULTILINE)
        return None if count is None else int(count[1])
    return None


def _read_end(output: ErrorOutput) -> str:
    """Read what the job has written last."""
    try:
        with Path(output.path).open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_ino != output.inode:
                return ""
            file.seek(max(output.start, state.st_size - MAX_OUTPUT_BYTES))
            return file.read(MAX_OUTPUT_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _split_lines(text: str) -> list[str]:
    """Split the last lines of the job; those of stepscope itself are not of it, and of a line that
    a progress bar overwrites, the last state counts."""
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return [line for line in lines if not line.startswith("stepscope: ")]
