"""Collectives of all ranks: exposed exchange, shared steps, alignment of clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema, store
from stepscope.run.model.run import Rank, Run

NO_RECORDER = (
    "the version of PyTorch in this job has no recorder of collectives, or it is off "
    "(TORCH_FR_BUFFER_SIZE=0): only collectives that the script calls itself, and the account of "
    "DistributedDataParallel, are recorded"
)
NO_TIMES = (
    "the logs of NCCL Inspector do not have the times of the calls: record them with "
    "NCCL_INSPECTOR_DUMP_VERBOSE=1"
)
NO_RANKS = "the ranks of the processes that have called the recorded collectives are unknown"
_COLUMNS = (
    *("node", "process", "log", "seq", "t_ns", "rank", "group", "kind", "number", "backend"),
    "ended_ns",
)
REPLICAS = (
    "the time of communication is not known: the replicas of tf.distribute exchange data inside "
    "compiled functions"
)
NO_CALLS = "no collective was recorded: the job has one process, or uses no process group"

NO_RECORDER_IMPORTED = (
    "no dump of PyTorch's flight recorder and no log of NCCL Inspector was imported; they number "
    "the collectives of a whole job"
)


class RecordedCollectives(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of collectives between several ranks, without those between two."""

    ranks: list[int]
    """Rank by its index."""
    nodes: list[str]
    """Node of each rank."""
    node: intervals.Int
    """Index of the node of each call in `node_names`."""
    node_names: list[str]
    process: intervals.Int
    """Index of the process of each call in `processes`."""
    processes: list[str]
    kinds: list[str]
    """Kind of call by code."""
    is_on_host: NDArray[np.bool_]
    """True for a call that the host carries out."""
    ended_ns: intervals.Int
    """When the watchdog saw that the call had ended; -1 where none did."""
    arrivals: analysis.RankArrivals
    """Calls by rank. The code of a group tells starts of the job apart, and calls of one number:
    a process that destroys its groups and makes them again numbers from 1 again."""
    skipped_count: int
    """Calls that the recorder has overwritten before they were read."""


def has_replicas(run: Run) -> bool:
    """Return True if processes have replicas, whose communication is not recorded."""
    return any(process.facts_of(schema.ReplicasFact) for process in run.processes)


def read_recorded_collectives(run: Run) -> RecordedCollectives | str:
    """Read the recorded collectives, or explain why there are none."""
    if not run.reader.has("collective_calls"):
        facts = [
            fact
            for process in run.processes
            for fact in process.facts_of(schema.FlightRecorderFact)
        ]
        if has_replicas(run):
            return REPLICAS
        if run.is_imported:
            return NO_RECORDER_IMPORTED
        return NO_RECORDER if facts and not any(f.is_available for f in facts) else NO_CALLS
    columns = run.reader.table(
        "collective_calls",
        _COLUMNS,
        condition=f"{run.period.condition('t_ns')} AND is_p2p = 0 AND rank IS NOT NULL "
        f"AND log <> '{schema.UNTIMED_INSPECTOR_LOG}'",
        encoded=("node", "process", "log", "group", "kind", "backend"),
    )
    if not len(columns["seq"]):
        logs = run.reader.table("collective_calls", ("log", "rank"), encoded=("log",))
        if schema.UNTIMED_INSPECTOR_LOG in logs["log"].values:
            return NO_TIMES
        if np.ma.getmaskarray(logs["rank"]).all():
            return NO_RANKS
    ranks, rank = np.unique(np.ma.getdata(columns["rank"]), return_inverse=True)
    rank = rank.astype(np.int64)
    group = columns["group"].codes.astype(np.int64)
    process = columns["process"].codes
    incarnations = {one.process: one.incarnation for one in run.processes}
    starts = [incarnations.get(name, 1) for name in columns["process"].values]
    start = np.array(starts, dtype=np.int64)[process]
    repetition = _count_earlier((rank, start), process, _find_first_ns(process, columns["t_ns"]))
    occurrence = _count_earlier(
        (process, columns["log"].codes, group, columns["number"]), columns["seq"], columns["seq"]
    )
    _, number = np.unique(
        np.stack([start, repetition, occurrence, group]), axis=1, return_inverse=True
    )
    nodes, backend = columns["node"], columns["backend"]
    names = [nodes.values[code] or "" for code in nodes.codes.tolist()]
    # The code of a missing backend is -1.
    is_host_backend = np.array([*(value in HOST_BACKENDS for value in backend.values), False])
    first_rows = [int(np.flatnonzero(rank == index)[0]) for index in range(len(ranks))]
    return RecordedCollectives(
        ranks=ranks.tolist(),
        nodes=[names[row] for row in first_rows],
        node=nodes.codes.astype(np.int64),
        node_names=[name or "" for name in nodes.values],
        process=process.astype(np.int64),
        processes=[name or "" for name in columns["process"].values],
        kinds=[name or "" for name in columns["kind"].values],
        is_on_host=is_host_backend[backend.codes],
        ended_ns=np.ma.filled(columns["ended_ns"], -1),
        arrivals=analysis.RankArrivals(
            rank=rank,
            group=number.reshape(-1).astype(np.int64),
            number=columns["number"],
            kind=columns["kind"].codes.astype(np.int64),
            t_ns=columns["t_ns"],
        ),
        skipped_count=count_skipped_calls(run),
    )


def count_skipped_calls(run: Run) -> int:
    """Count the calls of a process before its last recorded one that are not in the run: the
    recorder numbers them from 0. Imported dumps and logs may lack the first ones."""
    rows = run.reader.sql(
        "SELECT coalesce(sum(missing), 0) AS missing FROM ("
        "SELECT max(seq) + 1 - count(DISTINCT seq) AS missing FROM collective_calls "
        "WHERE log <> 'import' AND log NOT LIKE 'inspector%' GROUP BY process, log)"
    )
    return int(rows["missing"][0])


def _find_first_ns(process: NDArray[np.int32], t_ns: intervals.Int) -> intervals.Int:
    """Find the time of the first call of the process of each call."""
    first_ns = np.full(int(process.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, process, t_ns)
    return np.asarray(first_ns[process])


def _count_earlier(
    keys: tuple[intervals.Int, ...], member: intervals.Int, position: intervals.Int
) -> intervals.Int:
    """Count, for each row, the members with the same keys that come before its own.

    Args:
        keys: values that rows have in common.
        member: rows of one member are alike.
        position: position of the member of each row.
    """
    order = np.lexsort((member, position, *keys))
    is_new_key = np.zeros(len(order), dtype=np.bool_)
    for key in keys:
        is_new_key[1:] |= np.diff(key[order]) != 0
    is_new_member = is_new_key.copy()
    is_new_member[1:] |= np.diff(member[order]) != 0
    count = np.cumsum(is_new_member)
    base = np.maximum.accumulate(np.where(is_new_key, count, 0))
    result = np.empty(len(order), dtype=np.int64)
    result[order] = count - base
    return result


HOST_BACKENDS = ("gloo", "mpi", "ucc")
"""Backends that send from the host: a backward pass does not return before they have ended."""
_ON_HOST = ", ".join(map(store.literal, HOST_BACKENDS))


def read_calls(
    reader: store.RunReader, processes: Sequence[str], since_ns: int | None = None
) -> dict[str, analysis.RecordedCalls]:
    """Read the collectives of processes that send from the host only, by process.

    Args:
        reader: the run.
        processes: names.
        since_ns: first time; None for all.
    """
    if not processes or not reader.has("collective_calls"):
        return {}
    names = ", ".join(map(store.literal, processes))
    since = "" if since_ns is None else f"AND t_ns >= {since_ns} "
    rows = reader.sql(
        # A call between two ranks is no exchange of gradients, but has a number, too.
        "SELECT process, list(t_ns ORDER BY seq) AS t_ns, list(seq ORDER BY seq) AS seq "  # noqa: S608 - quoted literals
        f"FROM collective_calls WHERE process IN ({names}) {since}"
        f"GROUP BY process HAVING bool_and(coalesce(backend IN ({_ON_HOST}), FALSE)) "
        "AND count(DISTINCT log) = 1"
    )
    return {
        process: analysis.RecordedCalls(
            t_ns=np.asarray(t_ns, dtype=np.int64), seq=np.asarray(seq, dtype=np.int64)
        )
        for process, t_ns, seq in zip(rows["process"], rows["t_ns"], rows["seq"], strict=True)
    }


def measure_step_exchange(
    spans: analysis.Spans, steps: intervals.Intervals, calls: analysis.RecordedCalls
) -> NDArray[np.float64]:
    """Measure the exposed exchange of steps; NaN where their collectives were not all recorded.

    Args:
        spans: spans of the training thread.
        steps: its steps.
        calls: its collectives.
    """
    explicit = spans.of("communication")
    # An asynchronous one, such as that of a communication hook, does not wait for its end.
    blocking = explicit.take(~explicit.has_flag(analysis.FLAG_ASYNC))
    passes = spans.of("backward").intervals
    return analysis.measure_exchange(steps, passes, calls, blocking.intervals)


def read_exchange(ranks: Sequence[Rank]) -> list[NDArray[np.float64] | None]:
    """Read the exposed exchange of the steps of each rank; None without calls, and for phases on
    the clock of a device: the end of a pass on the host tells nothing then."""
    on_host = [rank for rank in ranks if rank.table.steps.frame.clock == "host"]
    calls = read_calls(ranks[0].run.reader, [rank.process.process for rank in on_host])
    return [
        measure_step_exchange(
            rank.spans.on_thread(rank.steps.thread),
            intervals.Intervals(rank.steps.start, rank.steps.end),
            calls[rank.process.process],
        )
        if rank.process.process in calls
        else None
        for rank in ranks
    ]


Float = NDArray[np.float64]


class SharedSteps:
    """Measured steps that all ranks have; arrays have the shape (ranks, steps).

    Of thousands of ranks, one array takes a hundred megabytes: those of single phases are made on
    each access.

    Args:
        ranks: at least one.
        number: number of each step.
        recorded_ns: exposed exchange of these steps by recorded collectives; None to estimate it by
            the timing of DDP.
    """

    def __init__(
        self, ranks: Sequence[Rank], number: intervals.Int, recorded_ns: Float | None = None
    ) -> None:
        self.number = number
        self._ranks = ranks
        self._recorded_ns = recorded_ns
        self._exchange_ratios = list(map(_read_exchange_ratio, ranks))
        self.wall_ns = self._stack(lambda steps: steps.wall_ns)
        self.communication_ns = self._stack(
            lambda steps: steps.phase_ns.read_narrow("communication")
        )
        """Exposed communication: collectives, and the part of backward passes that is not
        compute."""
        if self._has_exchange:
            self.communication_ns += self.exchange_ns

    @property
    def phase_ns(self) -> Mapping[str, Float]:
        """Own work by phase; the compute alone of backward passes."""
        return _OwnWork(self)

    @property
    def exchange_ns(self) -> Float:
        """Part of `communication_ns` inside backward passes."""
        backward = self._stack(lambda steps: steps.phase_ns.read_narrow("backward"))
        return backward - self._estimate_compute(backward)

    def own_work_ns(self, phase: str) -> Float:
        """Own work of one phase."""
        if not any(rank.table.steps.phase_ns.read_narrow(phase).any() for rank in self._ranks):
            return np.broadcast_to(0.0, self.wall_ns.shape)
        times = self._stack(lambda steps: steps.phase_ns.read_narrow(phase))
        if phase == "backward" and self._has_exchange:
            return self._estimate_compute(times)
        return times

    @property
    def _has_exchange(self) -> bool:
        return self._recorded_ns is not None or any(
            ratio is not None for ratio in self._exchange_ratios
        )

    def _estimate_compute(self, backward_ns: Float) -> Float:
        """Estimate the compute in backward passes."""
        if self._recorded_ns is None:
            return analysis.estimate_backward_compute(backward_ns, self._exchange_ratios)
        return np.maximum(backward_ns - self._recorded_ns, 0.0)

    def _stack(self, select: Callable[[analysis.PackedSteps], NDArray[np.generic]]) -> Float:
        """Stack the values of the shared steps of all ranks."""
        values = np.empty((len(self._ranks), len(self.number)))
        first, last = int(self.number[0]), int(self.number[-1])
        is_consecutive = last - first == len(self.number) - 1
        for row, rank in enumerate(self._ranks):
            shift = rank.table.steps.frame.first
            rows = slice(first - shift, last + 1 - shift) if is_consecutive else self.number - shift
            values[row] = select(rank.table.steps)[rows]
        return values


class _OwnWork(Mapping[str, Float]):
    """Own work by phase, without communication."""

    def __init__(self, steps: SharedSteps) -> None:
        self._steps = steps
        self._phases = [phase for phase in analysis.PHASES if phase != "communication"]

    def __getitem__(self, phase: str) -> Float:
        if phase not in self._phases:
            raise KeyError(phase)
        return self._steps.own_work_ns(phase)

    def __iter__(self) -> Iterator[str]:
        return iter(self._phases)

    def __len__(self) -> int:
        return len(self._phases)


def read_shared_steps(ranks: Sequence[Rank]) -> SharedSteps | None:
    """Read the measured steps that all ranks have; None without any.

    Where the recorder of collectives has the calls of all ranks, they tell the exposed exchange of
    each step, and steps without all calls are left out. Otherwise DDP's timing estimates it.
    """
    if not ranks:
        return None
    numbers = ranks[0].steps.number[ranks[0].steps.measured()]
    for rank in ranks[1:]:
        measured = rank.steps.number[rank.steps.measured()]
        if not np.array_equal(measured, numbers):
            numbers = np.intersect1d(numbers, measured, assume_unique=True)
    if not len(numbers):
        return None
    recorded_ns = _read_recorded_exchange(ranks, numbers)
    if recorded_ns is None:
        return SharedSteps(ranks, numbers)
    is_complete = ~np.isnan(recorded_ns).any(axis=0)
    return SharedSteps(ranks, numbers[is_complete], recorded_ns[:, is_complete])


def _read_recorded_exchange(ranks: Sequence[Rank], numbers: intervals.Int) -> Float | None:
    """Read the recorded exchange of steps, shape (ranks, steps); None if too few are complete."""
    recorded = [exchange for exchange in read_exchange(ranks) if exchange is not None]
    if len(recorded) < len(ranks):
        return None
    exchange = np.stack(
        [values[numbers - rank.steps.first] for values, rank in zip(recorded, ranks, strict=True)]
    )
    is_complete = ~np.isnan(exchange).any(axis=0)
    return exchange if is_complete.mean() >= analysis.MIN_RECORDED_RATIO else None


def _read_exchange_ratio(rank: Rank) -> float | None:
    """Read DDP's timing of the exposed exchange; None where it exchanged nothing."""
    accounts = rank.facts(schema.DdpFact)
    return analysis.compute_exposed_exchange_ratio(accounts[-1]) if accounts else None


NO_SHARED_COLLECTIVES = (
    "ranks of different nodes have called no collective together of which it is known when it "
    "ended, so clocks of nodes are not aligned"
)


class NodeClocks(msgspec.Struct, frozen=True, kw_only=True):
    """Clocks of nodes relative to that of the reference node, which has offset and residual 0."""

    reference: str
    clocks: dict[str, analysis.NodeClock | None]
    """By node with matched collectives; None where they do not bound the clock, or where it was
    set during the job."""

    @property
    def difference_residual_ns(self) -> float | None:
        """Largest possible error of the difference between times of any two nodes, the sum of their
        residuals; None if a clock is not known."""
        residuals = [clock.residual_ns for clock in self.clocks.values() if clock is not None]
        return sum(sorted(residuals)[-2:]) if len(residuals) == len(self.clocks) else None

    def to_reference(self, recorded: RecordedCollectives) -> intervals.Int:
        """Convert the times of calls to the clock of the reference node. Times of nodes without a
        known clock remain as they are."""
        t_ns = recorded.arrivals.t_ns.copy()
        for code, name in enumerate(recorded.node_names):
            clock, is_here = self.clocks.get(name), recorded.node == code
            if clock is not None and is_here.any():
                t_ns[is_here] = clock.to_reference(t_ns[is_here])
        return t_ns


def align_node_clocks(run: Run) -> NodeClocks | str:
    """Align the clocks of the nodes of a run, or explain why that is not possible.

    The whole run counts: a range of it has fewer collectives. See `analysis.clock_alignment`.
    """
    return run.whole_run.derive(_align)


def _align(run: Run) -> NodeClocks | str:
    recorded = read_recorded_collectives(run)
    if isinstance(recorded, str):
        return recorded
    times = _find_times(run, recorded)
    nodes = np.unique(times.node).tolist()
    if len(np.unique(times.node[times.end_ns >= 0])) < 2:
        return NO_SHARED_COLLECTIVES
    clocks = analysis.align_clocks(times, reference=nodes[0])
    names = recorded.node_names
    return NodeClocks(
        reference=names[nodes[0]], clocks={names[code]: clock for code, clock in clocks.items()}
    )


def _find_times(run: Run, recorded: RecordedCollectives) -> analysis.CollectiveTimes:
    """Find the times of the collectives that ranks of several nodes called and all wait for."""
    arrivals = recorded.arrivals
    waits = np.array(
        [analysis.classify_collective(k) in analysis.SYNCHRONIZING_KINDS for k in recorded.kinds]
    )
    keys = np.stack([arrivals.group, arrivals.number, arrivals.kind])
    _, collective = np.unique(keys, axis=1, return_inverse=True)
    collective = collective.reshape(-1).astype(np.int64)
    count = int(collective.max(initial=-1)) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, dtype=np.int64)
    np.minimum.at(first, collective, recorded.node)
    np.maximum.at(last, collective, recorded.node)
    rows = np.flatnonzero(waits[arrivals.kind] & (first != last)[collective])
    end_ns, is_exact = _find_ends(run, recorded)
    return analysis.CollectiveTimes(
        node=recorded.node[rows],
        collective=collective[rows],
        start_ns=arrivals.t_ns[rows],
        end_ns=end_ns[rows],
        is_exact=is_exact[rows],
    )


def _find_ends(run: Run, recorded: RecordedCollectives) -> tuple[intervals.Int, NDArray[np.bool_]]:
    """Find the time by which each call had ended, -1 if unknown, and where it is its end.

    The recorder has only the time of the call for backends that send from the host. A call of the
    script that is not asynchronous ends with its span, and one that the framework makes in a
    backward pass by the end of the pass. An asynchronous one of the script, such as a hook of a
    gradient makes in the pass, may end after both. For other backends it is the time at which the
    watchdog saw that the call had ended.
    """
    end_ns = np.where(recorded.is_on_host, -1, recorded.ended_ns)
    is_exact = np.zeros(len(end_ns), dtype=np.bool_)
    steps = {rank.process.process: rank.steps for rank in run.all_ranks}
    processes = {process.process: process for process in run.processes}
    for code, name in enumerate(recorded.processes):
        rows = np.flatnonzero((recorded.process == code) & recorded.is_on_host)
        if not len(rows) or name not in processes:
            continue
        spans = run.step_spans(processes[name])
        passes, calls = _find_extents(spans, steps.get(name))
        times = recorded.arrivals.t_ns[rows]
        for extents in (passes, calls):  # a call of the script in a pass ends earlier
            index = np.searchsorted(extents.start, times, side="right") - 1
            is_inside = index >= 0
            is_inside[is_inside] = times[is_inside] < extents.end[index[is_inside]]
            end_ns[rows[is_inside]] = extents.end[index[is_inside]]
            is_exact[rows[is_inside]] = True
        is_async = spans.is_kind("communication") & spans.has_flag(analysis.FLAG_ASYNC)
        started = rows[intervals.contains(intervals.union(spans.take(is_async).intervals), times)]
        end_ns[started], is_exact[started] = -1, False
    return end_ns, is_exact


def _find_extents(
    spans: analysis.Spans, steps: analysis.Steps | None
) -> tuple[intervals.Intervals, intervals.Intervals]:
    """Find backward passes, and calls of the script that return at the end of the collective."""
    if steps is not None:
        spans = spans.on_thread(steps.thread)
    spans = spans.take(~spans.unfinished & ~spans.has_flag(analysis.FLAG_ASYNC))
    passes, calls = spans.of("backward").intervals, spans.of("communication").intervals
    return intervals.take_outermost(passes), intervals.take_outermost(calls)
