"""Jobs with pipeline and data parallelism, played event by event: traces with a known answer.

job = StageJob(stages=4, data_ranks=2, microbatches=8)
played = play(job, job.draw_times(seed=1))
played.operations     a recorded trace, in random order
played.step_ns        durations of its steps

An operation of the schedule knows by name what it waits for: schedule, microbatch and chunk are
given here, where the analysis infers them from the trace.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import StageOperations

Name = tuple[str, int, int, int]
"""Operation of one data rank: kind, stage, microbatch (or number), chunk of the stage."""
Key = tuple[Name, int, int]
"""With step and data rank."""
Times = dict[Key, int]
COMMUNICATING = (
    *("forward-send", "forward-recv", "backward-send", "backward-recv", "params-all-gather"),
    *("grads-reduce-scatter", "separate-grads-all-reduce", "embedding-grads-all-reduce"),
    *("layernorm-grads-all-reduce", "optimizer-clip-main-grad"),
)
MEAN_US = {
    "forward-compute": 1000,
    "backward-compute": 2000,
    "gc": 5,
    "optimizer": 300,
    "params-all-gather": 400,
    "grads-reduce-scatter": 500,
    "separate-grads-all-reduce": 60,
    "embedding-grads-all-reduce": 120,
    "layernorm-grads-all-reduce": 30,
    "optimizer-clip-main-grad": 40,
}


@dataclass(frozen=True, kw_only=True)
class StageJob:
    """Shape of a job."""

    stages: int = 4
    data_ranks: int = 2
    microbatches: int = 8
    chunks: int = 1
    """Chunks of the model per stage (virtual stages)."""
    steps: int = 3
    overlaps: bool = False
    """Exchange gradients while other chunks compute."""
    records_idle: bool = False
    """Record transfers of the first and last chunk that transfer nothing."""
    leaves_out: frozenset[str] = frozenset()
    """Kinds that the job does not have."""

    def draw_times(
        self,
        seed: int,
        *,
        noise: float = 0.02,
        slow: Callable[[Name, int, int], float] = lambda name, step, data_rank: 1.0,
    ) -> Times:
        """Draw the time of every operation.

        Args:
            seed: of the random numbers.
            noise: standard deviation relative to the mean.
            slow: factor by operation, step and data rank.
        """
        random = np.random.default_rng(seed)
        times = {}
        for name in self.names():
            for step in range(self.steps):
                for data_rank in range(self.data_ranks):
                    mean = MEAN_US.get(name[0], 50) * slow(name, step, data_rank)
                    draw = mean * max(0.2, 1 + noise * random.standard_normal())
                    times[name, step, data_rank] = round(1000 * draw)
        return times

    def names(self) -> list[Name]:
        """List the operations of a data rank."""
        return [name for stage in range(self.stages) for name in self.order(stage)]

    def order(self, stage: int) -> list[Name]:
        """List the operations of a stage."""
        names: list[Name] = [("params-all-gather", stage, c, c) for c in range(self.chunks)]
        for compute in self.schedule(stage):
            names.append(compute)
            kind, _, microbatch, chunk = compute
            for transfer, sends in ((kind.replace("compute", "recv"), False),
                                    (kind.replace("compute", "send"), True)):  # fmt: skip
                if self.peer(compute, sends=sends) is not None or self.records_idle:
                    names.append((transfer, stage, microbatch, chunk))
        names += [("gc", stage, 0, 0), ("layernorm-grads-all-reduce", stage, 0, 0)]
        names += [("grads-reduce-scatter", stage, c, c) for c in range(self.chunks)]
        if self.overlaps:
            names.append(("separate-grads-all-reduce", stage, 0, 0))
        if stage in {0, self.stages - 1}:
            names.append(("embedding-grads-all-reduce", stage, 0, 0))
        names += [("optimizer-clip-main-grad", stage, 0, 0), ("optimizer", stage, 0, 0)]
        return [name for name in names if name[0] not in self.leaves_out]

    def schedule(self, stage: int) -> list[Name]:
        """List the computations of a stage in the order 1F1B, interleaved with several chunks."""
        total = self.microbatches * self.chunks
        if self.chunks == 1:
            ahead = self.stages - stage - 1
        else:
            ahead = 2 * (self.stages - stage - 1) + (self.chunks - 1) * self.stages
        ahead = min(ahead, total)
        forward = [self._unit("forward-compute", stage, n) for n in range(total)]
        backward = [self._unit("backward-compute", stage, n) for n in range(total)]
        order = forward[:ahead]
        for late, early in zip(forward[ahead:], backward, strict=False):
            order += [late, early]
        return order + backward[total - ahead :]

    def _unit(self, kind: str, stage: int, number: int) -> Name:
        """Name the n-th computation of a kind: microbatches in groups of as many as stages."""
        if self.chunks == 1:
            return kind, stage, number, 0
        chunk = number // self.stages % self.chunks
        microbatch = number // (self.stages * self.chunks) * self.stages + number % self.stages
        return kind, stage, microbatch, chunk if kind[0] == "f" else self.chunks - 1 - chunk

    def peer(self, compute: Name, *, sends: bool) -> Name | None:
        """Name the computation on the neighbouring chunk; None at the ends of the model."""
        kind, stage, microbatch, chunk = compute
        position = chunk * self.stages + stage + (1 if (kind[0] == "f") == sends else -1)
        if not 0 <= position < self.stages * self.chunks:
            return None
        return kind, position % self.stages, microbatch, position // self.stages


@dataclass(kw_only=True)
class Played:
    """A trace and what is known about it."""

    operations: StageOperations
    step_ns: list[int]


@dataclass(kw_only=True)
class _Plan:
    """Dependencies and group of each operation."""

    before: dict[Key, list[Key]] = field(default_factory=lambda: defaultdict(list))
    group: dict[Key, tuple[object, ...]] = field(default_factory=dict)


def play(
    job: StageJob, times: Mapping[Key, float], *, delays_us: float = 0.0, seed: int = 0
) -> Played:
    """Play a job in the order of time.

    Args:
        job: its shape.
        times: time of each operation: duration, or transfer from the latest start of its group.
        delays_us: mean delay between the moment at which an operation could start and its start.
        seed: of the delays and the order of the rows.
    """
    plan = _plan(job)
    random = np.random.default_rng(seed)
    start: dict[Key, float] = {}
    end: dict[Key, float] = {}
    missing = {key: len(plan.before[key]) for key in times}
    followers: dict[Key, list[Key]] = defaultdict(list)
    for key in times:
        for source in plan.before[key]:
            followers[source].append(key)
    members: dict[tuple[object, ...], list[Key]] = defaultdict(list)
    for key in times:
        members[plan.group.get(key, key)].append(key)
    events: list[tuple[float, int, str, Key]] = []

    def at(time: float, event: str, key: Key) -> None:
        heapq.heappush(events, (time, len(start) + len(events) + len(end), event, key))

    def launch(now: float, key: Key) -> None:
        at(now + (round(1000 * random.exponential(delays_us)) if delays_us else 0), "start", key)

    for key, count in missing.items():
        if not count:
            launch(0.0, key)
    while events:
        now, _, event, key = heapq.heappop(events)
        if event == "start":
            start[key] = now
            group = members[plan.group.get(key, key)]
            if all(member in start for member in group):
                for member in group:
                    at(now + times[member], "end", member)
            continue
        end[key] = now
        for follower in followers[key]:
            missing[follower] -= 1
            if not missing[follower]:
                launch(now, follower)
    if len(end) < len(times):
        raise ValueError("the job does not end")
    step_ns = [
        max(end[p] for p in times if p[1] == step) - min(start[p] for p in times if p[1] == step)
        for step in range(job.steps)
    ]
    return Played(operations=_record(job, start, end, random), step_ns=step_ns)


def average_times(job: StageJob, times: Mapping[Key, float]) -> dict[Key, float]:
    """Give every operation the average of its kind: the median of communication. A transfer that
    transfers nothing has the mean over steps and data ranks."""
    labels = {key: key[0] if _is_idle(job, key[0]) else key[0][0] for key in times}
    values = defaultdict(list)
    for key, time in times.items():
        values[labels[key]].append(time)
    center = {
        label: float(np.median(group) if label in COMMUNICATING else np.mean(group))
        for label, group in values.items()
    }
    return {key: center[labels[key]] for key in times}


def _is_idle(job: StageJob, name: Name) -> bool:
    """Return True for a transfer that transfers nothing."""
    kind, stage, microbatch, chunk = name
    direction, _, role = kind.partition("-")
    if role not in {"send", "recv"}:
        return False
    return (
        job.peer((f"{direction}-compute", stage, microbatch, chunk), sends=role == "send") is None
    )


def _plan(job: StageJob) -> _Plan:
    plan = _Plan()
    for step in range(job.steps):
        for data_rank in range(job.data_ranks):
            for stage in range(job.stages):
                names = set(job.order(stage))
                for name, sources in _waits(job, stage):
                    for source in sources:
                        if name in names and source in names:
                            plan.before[name, step, data_rank].append((source, step, data_rank))
                for name in names:
                    group = _group_of(job, name, step, data_rank)
                    if group is not None:
                        plan.group[name, step, data_rank] = group
    return plan


def _waits(job: StageJob, stage: int) -> Iterator[tuple[Name, list[Name]]]:
    """List what the operations of a stage wait for."""
    schedule = job.schedule(stage)
    yield from ((later, [earlier]) for earlier, later in itertools.pairwise(schedule))
    streams: dict[str, list[Name]] = defaultdict(list)
    previous: dict[str, Name] = {}
    for compute in schedule:
        kind, _, microbatch, chunk = compute
        receive = (kind.replace("compute", "recv"), stage, microbatch, chunk)
        send = (kind.replace("compute", "send"), stage, microbatch, chunk)
        yield compute, [receive]
        yield send, [compute]
        if kind in previous:
            yield receive, [previous[kind]]
        previous[kind] = compute
        for transfer, sends in ((receive, False), (send, True)):
            if job.peer(compute, sends=sends) is not None or job.records_idle:
                streams[transfer[0]].append(transfer)
    for stream in streams.values():
        yield from ((later, [earlier]) for earlier, later in itertools.pairwise(stream))
    kinds = [name[0] for name in schedule]
    first = kinds.index("backward-compute")
    if first >= 2 and kinds[first - 2 : first] == ["forward-compute"] * 2:
        for kind in ("backward-recv", "backward-send"):
            if streams[kind]:
                yield streams[kind][0], [schedule[first - 2]]
    yield from _exchanges(job, stage, schedule)


def _exchanges(
    job: StageJob, stage: int, schedule: Sequence[Name]
) -> Iterator[tuple[Name, list[Name]]]:
    gathers: list[Name] = [("params-all-gather", stage, c, c) for c in range(job.chunks)]
    scatters: list[Name] = [("grads-reduce-scatter", stage, c, c) for c in range(job.chunks)]
    if job.overlaps:  # the last chunk ends first
        scatters.reverse()
    stream = [n for n in [*gathers, *scatters] if n[0] not in job.leaves_out]
    yield from ((later, [earlier]) for earlier, later in itertools.pairwise(stream))
    for gather in gathers:
        first = next(n for n in schedule if n[0] == "forward-compute" and n[3] == gather[3])
        yield first, [gather]
    closing: list[Name] = [("gc", stage, 0, 0), ("layernorm-grads-all-reduce", stage, 0, 0)]
    closing.append(("embedding-grads-all-reduce", stage, 0, 0))
    if job.overlaps:
        closing.append(("separate-grads-all-reduce", stage, 0, 0))
        for scatter in scatters:
            same = [n for n in schedule if n[0] == "backward-compute" and n[3] == scatter[3]]
            yield scatter, [same[-1]]
        after = next(n for n in closing[1:] if n in job.order(stage))
        yield after, [scatters[-1]]
    else:
        closing += scatters
    closing += [("optimizer-clip-main-grad", stage, 0, 0), ("optimizer", stage, 0, 0)]
    present = set(job.order(stage))
    closing = [schedule[-1], *(n for n in closing if n in present)]
    yield from ((later, [earlier]) for earlier, later in itertools.pairwise(closing))


def _group_of(job: StageJob, name: Name, step: int, data_rank: int) -> tuple[object, ...] | None:
    """Return what identifies the group of an operation; None for one that waits for no other."""
    kind, stage, microbatch, chunk = name
    if kind in {"params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"}:
        return kind, stage, microbatch, chunk, step
    if kind == "embedding-grads-all-reduce":
        return kind, step, data_rank
    if kind == "optimizer-clip-main-grad":
        return kind, step
    direction, _, role = kind.partition("-")
    if role in {"send", "recv"} and not _is_idle(job, name):
        compute = (f"{direction}-compute", stage, microbatch, chunk)
        peer = job.peer(compute, sends=role == "send")
        return direction, step, data_rank, *sorted([str(compute), str(peer)])
    return None


def _record(
    job: StageJob, start: Mapping[Key, float], end: Mapping[Key, float], random: np.random.Generator
) -> StageOperations:
    """Record a trace; operations of a kind and worker are numbered in the order of time."""
    kinds = sorted({key[0][0] for key in start})
    by_worker: dict[tuple[str, int, int, int], list[Key]] = defaultdict(list)
    for key in start:
        (kind, stage, _, _), step, data_rank = key
        by_worker[kind, stage, step, data_rank].append(key)
    rows = []
    for keys in by_worker.values():
        for sequence, key in enumerate(sorted(keys, key=lambda p: (start[p], end[p], p))):
            (kind, stage, microbatch, chunk), step, data_rank = key
            computes = kind.endswith("-compute")
            has_chunk = computes or kind in {"params-all-gather", "grads-reduce-scatter"}
            rows.append(
                (
                    *(data_rank, stage, data_rank + stage * job.data_ranks, 10 + 7 * step),
                    *(kinds.index(kind), sequence, chunk if has_chunk else -1),
                    chunk * job.stages + stage if computes else -1,
                    microbatch if computes else -1,
                    *(round(start[key]), round(end[key])),
                )
            )
    columns = np.array(rows, dtype=np.int64)[random.permutation(len(rows))].T
    names = ("data_rank", "stage", "rank", "step", "kind", "sequence", "chunk", "model_chunk",
             "microbatch", "start_ns", "end_ns")  # fmt: skip
    return StageOperations(**dict(zip(names, columns, strict=True)), kinds=kinds)


def write_parquet(
    operations: StageOperations, path: Path, *, leave_out: Sequence[str] = ()
) -> None:
    """Write operations in the columns of StragglerAnalysis, times in seconds."""
    columns: dict[str, NDArray[Any]] = {
        "dp_rank": operations.data_rank,
        "stage": operations.stage,
        "rank": operations.rank,
        "step": operations.step,
        "optype": np.array(operations.kinds, dtype=object)[operations.kind],
        "start_ts": operations.start_ns / 1e9,
        "duration": (operations.end_ns - operations.start_ns) / 1e9,
        "seq_id": operations.sequence,
        "mc": operations.chunk,
        "mb_id": operations.microbatch,
        "gmc": operations.model_chunk,
    }
    table = {name: values for name, values in columns.items() if name not in leave_out}
    connection = duckdb.connect()
    connection.register("operations", table)
    connection.execute(f"COPY (SELECT * FROM operations) TO '{path}' (FORMAT parquet)")  # noqa: S608
    connection.close()
