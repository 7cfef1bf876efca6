"""Records of a job that are missing, each cause with a sentence of its own."""

from __future__ import annotations

import errno
import os
from collections import Counter

from stepscope.quantities import count, duration, memory
from stepscope.run import Run
from stepscope.schema import ProcessInfo

_FULL_SPOOL = "the spool was full; raise --spool-limit"
_CAUSES = {
    "": _FULL_SPOOL,
    "ENOSPC": (
        "the file system of the spool was full, or had no inodes left; free space there or pass "
        "another directory to --spool"
    ),
    "EDQUOT": (
        "the disk quota of the spool was exhausted; free space there or pass another directory to "
        "--spool"
    ),
    "EFBIG": (
        "the limit on file sizes (ulimit -f) is below the 128 KiB of a file of span logs; raise it"
    ),
    "EMFILE": "too many files were open in one process; raise the limit (ulimit -n)",
    "ENFILE": "too many files were open on the machine; raise the limit (fs.file-max)",
    "ENOENT": "the spool was deleted",
    "unknown": "it could not write to the spool, or was killed when it had just begun to record",
}
"""Reasons by cause; '' for runs that have no cause."""
_MIN_NOTED_PAUSE_NS = 1_000_000_000


def count_dropped(run: Run) -> int:
    """Count the records that the processes of a run could not keep."""
    return sum(process.dropped_count for process in run.processes)


def explain_drops(run: Run) -> str | None:
    """Say how many records were dropped, and why most of them were; None without any."""
    dropped: Counter[str] = Counter()
    for process in run.processes:
        dropped.update(_count_by_cause(process))
    if not dropped:
        return None
    cause, _ = dropped.most_common(1)[0]
    total = dropped.total() + run.reader.row_count("spans")
    return (
        f"{count(dropped.total())} of {count(total)} records were dropped because "
        f"{_explain_cause(run, cause)}"
    )


def explain_loss(run: Run) -> str | None:
    """Say why records that the job made are missing, or may be; None where no loss was noted."""
    drops = explain_drops(run)
    if drops is not None:
        return drops
    for process in run.processes:
        if process.refusal is not None:
            cause = _explain_cause(run, process.refusal)
            return f"{process.title} could not be recorded because {cause}"
    for status in run.reader.statuses().values():
        for refusal in status.refusals:
            cause = _explain_cause(run, refusal)
            return f"a process of the job could not be recorded because {cause}"
    losses = [loss for status in run.reader.statuses().values() for loss in status.losses]
    return losses[0] if losses else None


def list_losses(run: Run) -> list[str]:
    """List all reasons for which records are missing, one sentence each."""
    losses = [loss for status in run.reader.statuses().values() for loss in status.losses]
    for process in run.processes:
        losses += [
            f"Process {process.pid}: {count(dropped)} records dropped because "
            f"{_explain_cause(run, cause)}."
            for cause, dropped in _count_by_cause(process).items()
        ]
        if process.refusal is not None:
            losses.append(
                f"Process {process.pid} was not recorded because "
                f"{_explain_cause(run, process.refusal)}."
            )
    for status in run.reader.statuses().values():
        losses += [
            f"Processes were not recorded because {_explain_cause(run, refusal)}."
            for refusal in status.refusals
        ]
    return losses


def _count_by_cause(process: ProcessInfo) -> dict[str, int]:
    if process.dropped_by_cause:
        return process.dropped_by_cause
    return {"": process.dropped_count} if process.dropped_count else {}


def _explain_cause(run: Run, cause: str) -> str:
    if cause == "spool_limit":
        return _explain_limit(run)
    if cause in _CAUSES:
        return _CAUSES[cause]
    return f"the spool could not be written: {os.strerror(getattr(errno, cause, errno.EIO))}"


def _explain_limit(run: Run) -> str:
    limit = run.reader.info.options.get("spool_limit_bytes")
    pause_ns = max((status.max_pause_ns for status in run.reader.statuses().values()), default=0)
    if limit is None:
        return _FULL_SPOOL
    if pause_ns < _MIN_NOTED_PAUSE_NS:
        return f"the spool reached its limit of {memory(limit)}; raise --spool-limit"
    return (
        f"the monitor did not run for {duration(pause_ns)}, in which the spool reached its limit "
        f"of {memory(limit)}"
    )
