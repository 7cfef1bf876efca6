"""Times of a job: training period, epochs, incarnations, last records of its ranks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import Annotated

import msgspec
import numpy as np

from stepscope import analysis, intervals, schema, store
from stepscope.quantities import count_of, duration
from stepscope.run.model.run import Rank, Run
from stepscope.run.model.tables import OF_STEP_SAMPLER

_STATES_BY_PRIORITY = (
    schema.JobState.IN_PROGRESS,
    schema.JobState.STOPPING,
    schema.JobState.FAILED,
    schema.JobState.STOPPED,
    schema.JobState.UNKNOWN,
    schema.JobState.COMPLETED,
)


def is_lost(status: schema.JobStatus) -> bool:
    """Return True for a running job whose last heartbeat is too old."""
    return status.is_silent(time.time_ns())


def job_state(statuses: Collection[schema.JobStatus]) -> schema.JobState | None:
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
        states |= {schema.JobState.UNKNOWN} if states else {status.state for status in lost}
    return next((state for state in _STATES_BY_PRIORITY if state in states), None)


def has_ended(statuses: Collection[schema.JobStatus]) -> bool:
    """Return True if a job runs on no node any more, as far as is known; also without a status."""
    state = job_state(statuses)
    return state is None or state.is_final


def node_state(status: schema.JobStatus, statuses: Collection[schema.JobStatus]) -> schema.JobState:
    """Return the state of a job on one node: unknown if that is lost and another one is not."""
    is_alone = all(is_lost(one) for one in statuses)
    return schema.JobState.UNKNOWN if is_lost(status) and not is_alone else status.state


def explain_lost_node(
    status: schema.JobStatus, statuses: Collection[schema.JobStatus]
) -> str | None:
    """Explain the state of a node that is lost, as a sentence; None for another node."""
    if node_state(status, statuses) is status.state:
        return status.reason
    silence = duration(max(0, time.time_ns() - status.heartbeat_ns))
    return (
        f"its monitor has sent no heartbeat for {silence}: the host, or stepscope on it, was "
        "killed or is cut off"
    )


class JobStatistics(msgspec.Struct, frozen=True, kw_only=True):
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


def list_programs(run: Run) -> list[schema.ProcessInfo]:
    """List the Python processes of the job of which only stacks are recorded, such as launchers, by
    their start. They are not among `run.processes`: no figure of the steps is about them."""
    programs = [p for p in run.reader.processes() if p.role == "program"]
    return sorted(programs, key=lambda p: (p.launched_ns or p.started_ns, p.pid))


def machine_count(reader: store.RunReader) -> int:
    """Count the machines of the job or of an import; 0 if unknown."""
    return count_machines(reader.nodes(), reader.statuses())


def count_machines(nodes: Mapping[str, schema.NodeInfo], statuses: Iterable[str]) -> int:
    """Count the machines of nodes, and of names of nodes with a status.

    Several launchers of a job on one machine, or a second start there, have a node each.
    """
    hosts = {nodes[name].host or name if name in nodes else name for name in statuses}
    return len(hosts) or len(nodes)


def count_gpus(run: Run) -> int:
    """Count the GPUs of the machines of a job; without any the devices with work in traces."""
    gpus = {
        (node.host or node.node, gpu.get("uuid", index))
        for node in run.nodes.values()
        for index, gpu in enumerate(node.gpus)
    }
    return len(gpus) or count_devices_with_work(run)


def count_devices_with_work(run: Run) -> int:
    """Count the pairs of a rank and a device with kernels in the traces of a run."""
    rank_of: Mapping[int, object] = {t.trace: (t.rank, t.process) for t in run.traces}
    rows = run.reader.sql("SELECT DISTINCT trace, device FROM kernels")
    pairs = zip(rows["trace"].tolist(), rows["device"].tolist(), strict=True)
    return len({(rank_of.get(trace), device) for trace, device in pairs})


def count_cores(run: Run) -> float:
    """Count the cores that a job may use on its machines; 0 if unknown."""
    cores: defaultdict[str, float] = defaultdict(float)
    for node in run.nodes.values():  # of which launchers on one machine have one each
        host = node.host or node.node
        cores[host] = max(cores[host], node.cores_available)
    return sum(cores.values())


def count_ranks(run: Run) -> int:
    """Count the ranks with training steps, or those with traces."""
    return len(run.ranks) or len({(t.rank, t.process) for t in run.traces})


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


NO_STEPS = "no training steps were recorded, and epochs are counted by their DataLoader"
NO_LOADER = "the training steps use no torch DataLoader, and epochs are counted by its passes"
NO_EPOCH = "no pass over the training data was complete: the record ends within the first one"
RESTARTED_LOADER = "the DataLoader is restarted for every batch, so its passes are not epochs"


class Epochs(msgspec.Struct, frozen=True, kw_only=True):
    """Complete passes of the DataLoader that feeds training, on the first rank."""

    count: int
    mean_ns: float
    """From the start of a pass to the start of the next, evaluation and checkpoints in between
    included. The last pass ends when the loader is exhausted."""
    steps: float
    """Mean training steps per epoch."""


def find_epochs(run: Run) -> Epochs | str:
    """Find the epochs of a job, or return one sentence on why they are unknown."""
    if not run.ranks:
        return NO_STEPS
    rank = run.ranks[0]
    if rank.loader is None:
        return NO_LOADER
    borders = _borders(rank, rank.loader.name)
    if len(borders) < 2:
        return NO_EPOCH
    first, last = np.searchsorted(rank.steps.start, [borders[0], borders[-1]]).tolist()
    count = len(borders) - 1
    if last - first < 2 * count:
        return RESTARTED_LOADER
    return Epochs(
        count=count, mean_ns=float(borders[-1] - borders[0]) / count, steps=(last - first) / count
    )


def _borders(rank: Rank, name: str) -> intervals.Int:
    """Find the starts of passes of one loader, and the end of the last one if it was complete."""
    spans = rank.spans.of("loader_start", "data_wait")
    spans = spans.on_thread(rank.steps.thread)
    waits = spans.is_kind("data_wait")
    is_loader = waits & spans.is_named(name)
    # A start span names the dataset, which loaders share: the span after it tells them apart.
    start_rows = np.flatnonzero(~waits)
    followed_rows = start_rows[start_rows + 1 < len(spans)]
    starts = spans.start[followed_rows[is_loader[followed_rows + 1]]]
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    exhausted = is_loader & spans.has_flag(analysis.FLAG_NO_RESULT) & (spans.start > starts[-1])
    ends = spans.end[exhausted][:1]
    return np.append(starts, ends)


class IncarnationSteps(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the training processes of a job."""

    number: Annotated[int, schema.field_label(display="identifier")]
    """Counted from 1."""
    started_ns: Annotated[int, schema.field_label(unit="epoch_ns")]
    """Start of its first process."""
    nodes: list[str]
    rank_count: int
    """Training processes with steps."""
    step_count: int
    """Steps of the rank that has completed the most."""


def list_incarnations(run: Run) -> list[IncarnationSteps]:
    """List the incarnations with processes, by number, also those outside of the range of a run."""
    run = run.whole_run
    ranks: dict[int, list[Rank]] = defaultdict(list)
    for rank in run.all_ranks:
        ranks[rank.process.incarnation].append(rank)
    numbers = sorted({process.incarnation for process in run.processes})
    members = {n: [p for p in run.processes if p.incarnation == n] for n in numbers}
    return [
        IncarnationSteps(
            number=number,
            started_ns=min(process.started_ns for process in members[number]),
            nodes=sorted({process.node for process in members[number]}),
            rank_count=len(ranks[number]),
            step_count=_max_steps(ranks[number]),
        )
        for number in numbers
    ]


def find_current_processes(run: Run) -> set[str]:
    """Find the processes of the incarnation whose ranks a run shows."""
    numbers = {process.incarnation for process in run.processes}
    if len(numbers) > 1:  # else the steps are not needed
        numbers = {rank.process.incarnation for rank in run.ranks} or {max(numbers)}
    return {process.process for process in run.processes if process.incarnation in numbers}


def explain_incarnations(run: Run) -> str | None:
    """Say which start of the job the figures are of; None for a job that was started once."""
    incarnations = list_incarnations(run)
    if len(incarnations) < 2 or not run.ranks:
        return None
    current = run.ranks[0].process.incarnation
    earlier = ", ".join(
        f"{one.number}: {count_of(one.step_count, 'step')}"
        for one in incarnations
        if one.number != current
    )
    figures = (
        f"figures are of incarnation {current}, with {count_of(_max_steps(run.ranks), 'step')}, "
        f"without those of others ({earlier})."
    )
    twins = _find_simultaneous_ranks(run)
    if not twins:
        return f"The job was restarted: {figures}"
    return (
        f"Rank {twins[0].process.rank} ran at the same time on {_list_places(twins)}, which counts "
        f"as a restart: {figures} Give each process a rank of its own."
    )


def _find_simultaneous_ranks(run: Run) -> list[Rank]:
    """Find two processes on different nodes that had one rank of one world size for most of their
    time, by the clocks of the nodes; empty if there are none.

    The monitors cannot tell: a process that takes the rank of one on another node looks like one
    after a restart.
    """
    by_rank: dict[tuple[int, int | None], list[Rank]] = defaultdict(list)
    for rank in run.whole_run.all_ranks:
        if rank.process.rank is not None:
            by_rank[rank.process.rank, rank.process.world_size].append(rank)
    pairs = (pair for _, ranks in sorted(by_rank.items()) for pair in combinations(ranks, 2))
    return next((list(pair) for pair in pairs if _are_simultaneous(*pair)), [])


def _are_simultaneous(first: Rank, second: Rank) -> bool:
    if first.process.node == second.process.node:
        return False
    both = (first.steps, second.steps)
    shared_ns = min(steps.end[-1] for steps in both) - max(steps.start[0] for steps in both)
    return bool(2 * shared_ns > min(steps.end[-1] - steps.start[0] for steps in both))


def find_repeated_ranks(run: Run) -> list[str]:
    """Name the ranks of one incarnation that two processes with steps have, a sentence each."""
    by_rank: dict[int, list[Rank]] = defaultdict(list)
    for rank in run.ranks:
        if rank.process.rank is not None:
            by_rank[rank.process.rank].append(rank)
    return [
        f"Rank {number} was recorded {len(ranks)} times, on {_list_places(ranks)}: figures of all "
        "ranks count each of them."
        for number, ranks in sorted(by_rank.items())
        if len(ranks) > 1
    ]


def _list_places(ranks: Iterable[Rank]) -> str:
    return " and ".join(f"{r.process.node} (process {r.process.pid})" for r in ranks)


def _max_steps(ranks: Iterable[Rank]) -> int:
    return max((len(rank.steps) for rank in ranks), default=0)


ANY_SAMPLE = "true"
"""Condition of all stack samples."""


class RankEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Last records of one rank."""

    last_ns: int
    """Time of its last span or stack sample, epoch nanoseconds."""
    calls: list[analysis.Call]
    """Collectives that the script has called itself, numbered from 1; their records are complete
    however the process has ended."""


def read_rank_ends(run: Run) -> dict[int, RankEnd]:
    """Read the last records of each rank, of its last process."""
    processes = {}
    for process in sorted(run.processes, key=lambda process: process.started_ns):
        if process.rank is not None and process.role == "main":
            processes[process.rank] = process.process
    last = read_last_times(run)
    calls = _read_calls(run)
    return {
        rank: RankEnd(last_ns=last[process], calls=calls.get(process, []))
        for rank, process in processes.items()
        if process in last
    }


def read_last_times(run: Run, samples: str = OF_STEP_SAMPLER) -> dict[str, int]:
    """Read the time of the last span or stack sample of each process, epoch nanoseconds.

    Args:
        samples: condition of the stack samples.
    """
    queries = {
        "spans": "SELECT process, max(greatest(start_ns, coalesce(end_ns, start_ns))) AS t_ns "
        "FROM spans GROUP BY process",
        "stacks": "SELECT process, max(t_ns) AS t_ns FROM stacks "  # noqa: S608 - a constant
        f"WHERE {samples} GROUP BY process",
    }
    last: dict[str, int] = {}
    for table, query in queries.items():
        if run.reader.has(table):
            rows = run.reader.sql(query)
            for process, t_ns in zip(rows["process"].tolist(), rows["t_ns"].tolist(), strict=True):
                last[process] = max(t_ns, last.get(process, t_ns))
    return last


def _read_calls(run: Run) -> dict[str, list[analysis.Call]]:
    if not run.reader.has("spans"):
        return {}
    columns = run.reader.table(
        "spans",
        ("process", "name", "value", "start_ns", "end_ns"),
        condition="kind = 'communication'",
        order_by="process, start_ns, seq",
    )
    calls: dict[str, list[analysis.Call]] = {}
    has_end = ~np.ma.getmaskarray(columns["end_ns"])
    for process, name, value, start_ns, has_ended in zip(
        columns["process"].tolist(),
        columns["name"].tolist(),
        columns["value"].tolist(),
        columns["start_ns"].tolist(),
        has_end.tolist(),
        strict=True,
    ):
        sequence = calls.setdefault(process, [])
        size = f"{value} bytes" if value else ""
        sequence.append(analysis.Call("", len(sequence) + 1, name, size, "", has_ended, start_ns))
    return calls
