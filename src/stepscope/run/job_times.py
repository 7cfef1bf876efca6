"""When a job began, trained, was last heard of and ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.run.run import Rank, Run
from stepscope.schema import JobStatus

SILENT_NS = 30_000_000_000
"""A job in progress whose monitor has not been heard for this long is given up for lost."""


def is_lost(status: JobStatus) -> bool:
    """Whether a job in progress has not been heard of for too long."""
    return not status.state.final and time.time_ns() - status.heartbeat_ns > SILENT_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatistics:
    """The job from beginning to end; initialization, training and finalization sum to it."""

    start_ns: int
    end_ns: int
    initialization_ns: int | None
    """Until the first step of any rank begins; None, as the two below, without steps."""
    training_ns: int | None
    """From there to the end of the last step of any rank, evaluation between steps included."""
    finalization_ns: int | None

    @property
    def duration_ns(self) -> int:
        """From beginning to end."""
        return self.end_ns - self.start_ns


def job_borders(run: Run) -> tuple[int, int]:
    """When the job began, or else the run was made; and when it ended or was last heard of."""
    statuses = list(run.reader.statuses().values())
    processes = [process for process in run.processes if process.started_ns]
    traces = run.traces
    begins = [status.started_ns for status in statuses]
    begins += [process.started_ns for process in processes]
    begins += [trace.start_ns for trace in traces]
    ends = [status.ended_ns or status.heartbeat_ns for status in statuses]
    ends += [process.ended_ns for process in processes if process.ended_ns is not None]
    ends += [trace.end_ns for trace in traces]
    begin = min(begins, default=run.reader.info.created_ns)
    return begin, max(ends, default=begin)


def machine_count(run: Run) -> int:
    """Machines that the job was watched on, or that an import knows of; 0 where nobody says."""
    return len(run.reader.statuses()) or len(run.nodes)


def job_statistics(ranks: Sequence[Rank], start_ns: int, end_ns: int) -> JobStatistics:
    """The parts of a job that lasted from `start_ns` to `end_ns`."""
    if not ranks:
        return JobStatistics(
            start_ns=start_ns,
            end_ns=end_ns,
            initialization_ns=None,
            training_ns=None,
            finalization_ns=None,
        )
    first = min(int(rank.steps.start[0]) for rank in ranks)
    last = max(int(rank.steps.end[-1]) for rank in ranks)
    return JobStatistics(
        start_ns=start_ns,
        end_ns=end_ns,
        initialization_ns=first - start_ns,
        training_ns=last - first,
        finalization_ns=end_ns - last,
    )
