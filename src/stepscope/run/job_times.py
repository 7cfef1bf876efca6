"""Start, training period and end of a job."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from stepscope.quantities import duration
from stepscope.run.run import Run
from stepscope.schema import JobState, JobStatus
from stepscope.store import RunReader

_STATES_BY_PRIORITY = (
    JobState.IN_PROGRESS,
    JobState.STOPPING,
    JobState.FAILED,
    JobState.STOPPED,
    JobState.UNKNOWN,
    JobState.COMPLETED,
)


def is_lost(status: JobStatus) -> bool:
    """Return True for a running job whose last heartbeat is too old."""
    return status.is_silent(time.time_ns())


def job_state(statuses: Collection[JobStatus]) -> JobState | None:
    """Return the state of a job: it runs as long as it runs on any node; None without a status,
    as for imported files.

    Of a job that was restarted, the nodes of the latest incarnation count. The end of a node that
    is lost is unknown: the job runs on others, or has ended there.
    """
    latest = max((status.incarnation for status in statuses), default=1)
    present = [status for status in statuses if status.incarnation == latest]
    lost = [status for status in present if is_lost(status)]
    states = {status.state for status in present if status not in lost}
    if lost:  # of a job whose only node is lost, the last state is shown
        states |= {JobState.UNKNOWN} if states else {status.state for status in lost}
    return next((state for state in _STATES_BY_PRIORITY if state in states), None)


def has_ended(statuses: Collection[JobStatus]) -> bool:
    """Return True if a job runs on no node any more, as far as is known; also without a status."""
    state = job_state(statuses)
    return state is None or state.is_final


def node_state(status: JobStatus, statuses: Collection[JobStatus]) -> JobState:
    """Return the state of a job on one node: unknown if that is lost and another one is not."""
    is_alone = all(is_lost(one) for one in statuses)
    return JobState.UNKNOWN if is_lost(status) and not is_alone else status.state


def explain_lost_node(status: JobStatus, statuses: Collection[JobStatus]) -> str | None:
    """Explain the state of a node that is lost, as a sentence; None for another node."""
    if node_state(status, statuses) is status.state:
        return status.reason
    silence = duration(max(0, time.time_ns() - status.heartbeat_ns))
    return (
        f"its monitor has sent no heartbeat for {silence}: the host, or stepscope on it, was "
        "killed or is cut off"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatistics:
    """Periods of a job; initialization, training and finalization sum to its duration.

    If the recording of its processes ended before the job, training and finalization are None.
    """

    start_ns: int
    end_ns: int
    initialization_ns: int | None
    """From the start to the first step of any rank; None, like the two below, without steps."""
    training_ns: int | None
    """To the end of the last step of any rank, evaluation between steps included."""
    finalization_ns: int | None

    @property
    def duration_ns(self) -> int:
        """From start to end."""
        return self.end_ns - self.start_ns

    @property
    def training_start_ns(self) -> int | None:
        """Start of the first step, in epoch nanoseconds."""
        return None if self.initialization_ns is None else self.start_ns + self.initialization_ns

    @property
    def training_end_ns(self) -> int | None:
        """End of the last step, in epoch nanoseconds."""
        return None if self.finalization_ns is None else self.end_ns - self.finalization_ns

    @property
    def initialization_ratio(self) -> float | None:
        """Share of the duration of the job."""
        return self._share(self.initialization_ns)

    @property
    def training_ratio(self) -> float | None:
        """Share of the duration of the job."""
        return self._share(self.training_ns)

    @property
    def finalization_ratio(self) -> float | None:
        """Share of the duration of the job."""
        return self._share(self.finalization_ns)

    def _share(self, part_ns: int | None) -> float | None:
        return None if part_ns is None or not self.duration_ns else part_ns / self.duration_ns


def job_borders(run: Run) -> tuple[int, int]:
    """Return start and end of the job, in epoch nanoseconds.

    The start is that of the run where no process reported one; the end of a running job is its last
    heartbeat.
    """
    statuses = list(run.reader.statuses().values())
    processes = [process for process in run.processes if process.started_ns]
    traces = run.traces
    starts = [status.started_ns for status in statuses]
    starts += [process.started_ns for process in processes]
    starts += [trace.start_ns for trace in traces]
    # Where the wall clock was set back in a run of an earlier version, the last record is the end.
    ends = [run.clock.end_ns if s.end_ns is None else s.end_ns for s in statuses]
    ends += [process.ended_ns for process in processes if process.ended_ns is not None]
    ends += [trace.end_ns for trace in traces]
    start = min(starts, default=run.reader.info.created_ns)
    return start, max([start, *ends])  # a command that cannot start ends before the job does


def machine_count(reader: RunReader) -> int:
    """Count the machines of the job or of an import; 0 if unknown.

    Several launchers of a job on one machine, or a second start there, have a node each.
    """
    nodes = reader.nodes()
    hosts = {nodes[name].host or name if name in nodes else name for name in reader.statuses()}
    return len(hosts) or len(nodes)


def find_recording_end(run: Run) -> int | None:
    """Return when the recording of the job's processes ended, in epoch nanoseconds; None if it
    continued to the end of the job, or continues."""
    ends = [node.recording_end_ns for node in run.nodes.values() if node.recording_end_ns]
    end_ns = min(ends, default=None)
    _, job_end_ns = job_borders(run.whole_run)
    return end_ns if end_ns is not None and end_ns < job_end_ns else None


def explain_recording_end(run: Run) -> str | None:
    """Explain in one sentence which time of the run or range has no record of the processes; None
    if there is no such time."""
    end_ns = find_recording_end(run)
    if end_ns is None or end_ns >= run.period.end_ns:
        return None
    limit_s = run.reader.info.options.get("cpu_profiling_duration_s", 0)
    return (
        "Steps, annotations, scalars and stack samples were recorded only for the first "
        f"{duration(1e9 * limit_s)} of the job (--cpu-profiling-duration); later ones are unknown."
    )


def job_statistics(run: Run) -> JobStatistics:
    """Divide a job into its periods."""
    ranks = run.all_ranks
    start_ns, end_ns = job_borders(run)
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
    is_complete = find_recording_end(run) is None
    return JobStatistics(
        start_ns=start_ns,
        end_ns=end_ns,
        initialization_ns=first - start_ns,
        training_ns=last - first if is_complete else None,
        finalization_ns=end_ns - last if is_complete else None,
    )
