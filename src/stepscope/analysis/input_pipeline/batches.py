"""Batch creation by the input pipeline, and the data wait of the training thread.

The data wait is split by reason; the parts sum to it:

    starting      creation of an iterator, its first batch, and its end: workers start and stop
    handing_over  a batch was ready, receiving it took the time
    making        no batch was ready: creation of a batch, split by stage

A ready batch can arrive late because the worker that has to send it is busy with the next one:
both need that worker's interpreter. Workers that are busy for a share b of the time cannot deliver
faster than they create batches, so receiving counts as `handing_over` for at most 1 - b of the
steps' time, and as `making` beyond that.

`making` is split in proportion to the time that the workers (without workers: the training thread)
spend in each stage: collating as measured, the rest by stack samples.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.input_pipeline import code_stages, locks
from stepscope.analysis.steps.spans import FLAG_NO_RESULT, Spans
from stepscope.analysis.steps.steps import Steps, find_step_at

_DEFINITION = re.compile(r"@|(async )?def .*:$", re.DOTALL)
"""First line of a function, without a body."""
MAX_WEIGHT_PERIODS = 50
"""A sample represents at most this many periods: after a longer pause, the sampler had stopped."""
MIN_SAMPLES = 20
"""Minimum number of stack samples to split fetch time into stages."""
SLOW_WAIT_FACTOR = 2.0
FETCH_NOT_DETAILED = -1
"""Value of a fetch without CPU time."""


class StackSamples(msgspec.Struct, frozen=True, kw_only=True):
    """Stack samples of one process, sorted by time; `stack` indexes `stacks`.

    A sampler that waits for the interpreter lock (held by a C function) is late, so a sample
    stands for the time since the previous one, not for one period.
    """

    t_ns: intervals.Int
    weight_ns: intervals.Int
    stack: NDArray[np.int32]
    stacks: Sequence[str]
    user_line: NDArray[np.int32]
    sources: Mapping[tuple[str, int, int], str] = msgspec.field(default_factory=dict)
    """Text of the lines of user code in the samples, and of calls in them, by file, line number,
    and number of the call, 0 for the line itself."""
    functions: Mapping[tuple[str, str], frozenset[str]] = msgspec.field(default_factory=dict)
    """Names of globals and attributes that functions of user code use, by file and function."""
    definitions: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """First lines of functions of user code, by file and function."""

    def __len__(self) -> int:
        return len(self.t_ns)

    def take(self, rows: intervals.Mask) -> StackSamples:
        """Select the samples of a mask; their weights stay."""
        return replace(
            self,
            t_ns=self.t_ns[rows],
            weight_ns=self.weight_ns[rows],
            stack=self.stack[rows],
            user_line=self.user_line[rows],
        )

    def without_delays(self, delays: Spans) -> StackSamples:
        """Return the samples with weights of the time in which the thread was not waiting for a
        core.

        Args:
            delays: spans of the kind `run_queue`, each of which ends with a sample.
        """
        delays = delays.take(np.isin(delays.end, self.t_ns))
        weight_ns = self.weight_ns.copy()
        np.subtract.at(weight_ns, np.searchsorted(self.t_ns, delays.end), delays.value)
        return replace(self, weight_ns=np.maximum(weight_ns, 1))

    def find_entries(self) -> intervals.Mask:
        """Find the samples whose stack ends with a function of user code that has not begun. A
        sampler gets the interpreter lock at a call, so such a sample stands for code before it."""
        keys = np.stack([self.stack, self.user_line], axis=1)
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        entries = [self._is_at_entry(stack, line) for stack, line in unique.tolist()]
        return np.array(entries, dtype=np.bool_)[inverse.ravel()]

    def _is_at_entry(self, stack: int, line: int) -> bool:
        frame = code_stages.parse_stack(self.stacks[stack])[-1:]
        text = self.sources.get((frame[0].file, line, 0), "") if frame else ""
        return bool(_DEFINITION.match(text)) and not frame[0].library

    def running_text(self, stack: int, line: int) -> str:
        """Text of what the innermost frame of user code runs: the call without the calls of its
        arguments, which have ended, or else the whole line; '' if unknown, or if the whole line has
        several calls and code below it runs.

        Args:
            stack: a stack.
            line: its line of user code.
        """
        source = self.source_text(stack, line)
        if code_stages.parse_call(self.stacks[stack]):
            return leave_out_ended_calls(source)
        return code_stages.select_running_call(source, code_stages.parse_stack(self.stacks[stack]))

    def source_text(self, stack: int, line: int) -> str:
        """Source of the call that the innermost frame of user code runs, or else of its line; ''
        if unknown.

        Args:
            stack: a stack.
            line: its line of user code.
        """
        text = self.stacks[stack]
        files = [frame.file for frame in code_stages.parse_stack(text) if not frame.library]
        if not files:
            return ""
        return self.sources.get((files[-1], line, code_stages.parse_call(text)), "")


def weigh_samples(t_ns: intervals.Int, period_ns: int) -> intervals.Int:
    """Compute the nanoseconds that each sample represents; 1 without a known sampling period."""
    if not len(t_ns) or period_ns <= 0:
        return np.ones(len(t_ns), dtype=np.int64)
    since = np.diff(t_ns, prepend=t_ns[0] - period_ns)
    return np.where(since > MAX_WEIGHT_PERIODS * period_ns, period_ns, since).astype(np.int64)


class Fetcher(msgspec.Struct, frozen=True, kw_only=True):
    """One process that creates batches: a worker, or the training process itself."""

    process: str
    worker: bool
    spans: Spans
    samples: StackSamples
    detailed_every: int = 1
    """Largest number N such that one batch in N was recorded in detail."""
    delays: Spans | None = None
    """Time without a core of the sampled thread; None where not recorded."""


class StageShare(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of batch creation."""

    stage: code_stages.Stage
    name: str
    ratio: float
    """Share of batch creation time."""
    labels: dict[str, float]
    """Breakdown of the stage by label, as shares of batch creation time, largest first."""


class BatchCreation(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of creating batches, and its stages."""

    batch_count: int
    """Batches whose creation was recorded. Of quick batches it is recorded for one in N."""
    mean_ns: float
    """Wall time of one recorded fetch."""
    cpu_ratio: float | None
    """CPU time of the fetching thread divided by its wall time; low if it waits for storage. None
    where no fetch was recorded in detail, as in files of other tools."""
    samples_ratio: float | None
    """Share of the fetch inside __getitem__ or next; None where not recorded."""
    collate_ratio: float | None
    """Share of the fetch inside the collate function; None where not recorded."""
    transforms: dict[str, float]
    """Measured share of the fetch in each member of a transform chain, largest first."""
    sample_count: int
    """Number of stack samples behind `stages`."""
    stages: list[StageShare]
    """Stages, largest first; empty with too few samples."""
    worker_busy_ratio: float | None
    """Share of time in which the workers created batches; None without workers."""
    detailed_every: int = 1
    """Largest number N such that one batch in N was recorded in detail."""
    without_core_ratio: float | None = None
    """Share of the fetch in which the thread was runnable without a core; None where not
    recorded."""

    @property
    def is_locked(self) -> bool:
        """True if much of batch creation waits for a lock."""
        return any(s.stage == "lock" and s.ratio >= locks.MIN_RATIO for s in self.stages)


class DataWait(msgspec.Struct, frozen=True, kw_only=True):
    """Data wait of the training thread by reason; sums over measured steps, in nanoseconds."""

    total_ns: int
    starting_ns: int
    handing_over_ns: int
    making_ns: int
    starved_ratio: float | None
    """Share of requests that found no batch ready; None without workers."""
    irregular_ns: int = 0
    """Portion of the handing over above its median, summed over batches. Batches are alike, so the
    cause is hardly the batches themselves."""
    start_count: int = 0
    """Iterators created."""


def find_slow_waits(duration_ns: intervals.Int) -> intervals.Int:
    """Find the waits of at least `SLOW_WAIT_FACTOR` medians: indexes, the longest first."""
    limit_ns = SLOW_WAIT_FACTOR * float(np.median(duration_ns)) if len(duration_ns) else 0.0
    slow = np.flatnonzero(duration_ns >= max(limit_ns, 1))
    return slow[np.argsort(-duration_ns[slow], kind="stable")]


def split_data_wait(spans: Spans, steps: Steps, mask: NDArray[np.bool_]) -> DataWait:
    """Split the data wait of the steps that a mask selects by its reason."""
    waits = spans.of("data_wait", "loader_start").on_thread(steps.thread)
    step = find_step_at(waits.start, steps)
    selected = (step >= 0) & mask[np.maximum(step, 0)]
    is_first = np.zeros(len(waits), dtype=np.bool_)
    is_first[1:] = waits.is_kind("loader_start")[:-1]
    waits, is_first = waits.take(selected), is_first[selected]
    duration = waits.duration
    is_iterator_start = waits.is_kind("loader_start")
    is_ready = waits.value > 0
    is_inline = waits.value < 0
    is_exhausted = waits.has_flag(FLAG_NO_RESULT)
    starting = is_iterator_start | ((is_first | is_exhausted) & ~is_ready & ~is_inline)
    handing_over = ~starting & is_ready
    requests = ~is_iterator_start & ~is_inline & ~is_exhausted
    handover_ns = duration[handing_over]
    median_ns = np.median(handover_ns) if len(handover_ns) else 0.0
    return DataWait(
        total_ns=int(duration.sum()),
        starting_ns=int(duration[starting].sum()),
        handing_over_ns=int(handover_ns.sum()),
        making_ns=int(duration[~starting & ~handing_over].sum()),
        starved_ratio=float((~is_ready[requests]).mean()) if requests.any() else None,
        irregular_ns=int(np.maximum(handover_ns - median_ns, 0).sum()),
        start_count=int(is_iterator_start.sum()),
    )


def charge_busy_workers(wait: DataWait, creation: BatchCreation | None, wall_ns: int) -> DataWait:
    """Charge the handover to batch creation in proportion to the time that workers were busy.

    Args:
        wait: data wait as observed.
        creation: creation of the same batches.
        wall_ns: wall time of the steps that waited.
    """
    if creation is None or creation.worker_busy_ratio is None:
        return wait
    idle_ns = round((1 - min(1.0, creation.worker_busy_ratio)) * wall_ns)
    busy_ns = max(0, wait.handing_over_ns - idle_ns)
    return replace(
        wait,
        handing_over_ns=wait.handing_over_ns - busy_ns,
        making_ns=wait.making_ns + busy_ns,
        irregular_ns=max(0, wait.irregular_ns - busy_ns),
    )


def measure_batch_creation(fetchers: Iterable[Fetcher], steps: Steps) -> BatchCreation | None:
    """Measure the creation of training batches over all fetchers, one after the other: each may
    have millions of spans. None without any."""
    works = [work for fetcher in fetchers if (work := _measure_work(fetcher, steps)) is not None]
    if not works:
        return None
    is_detailed = any(work.is_detailed for work in works)
    wall_ns = max(1, sum(work.detailed_ns for work in works))
    cpu_ratio = min(1.0, sum(work.cpu_ns for work in works) / wall_ns)
    collate_ratio = sum(work.collate_ns for work in works) / wall_ns
    stage_times = _merge_times([work.stage_times for work in works])
    sample_count = sum(work.sample_count for work in works)
    batch_count = sum(work.batch_count for work in works)
    return BatchCreation(
        batch_count=batch_count,
        mean_ns=sum(work.wall_ns for work in works) / batch_count,
        cpu_ratio=cpu_ratio if is_detailed else None,
        samples_ratio=sum(work.samples_ns for work in works) / wall_ns if is_detailed else None,
        collate_ratio=collate_ratio if is_detailed else None,
        transforms=_measure_transforms(works, wall_ns),
        sample_count=sample_count,
        stages=_split_stages(stage_times, collate_ratio) if sample_count >= MIN_SAMPLES else [],
        worker_busy_ratio=_divide((work.wall_ns, work.worker_ns) for work in works),
        detailed_every=max(work.detailed_every for work in works),
        without_core_ratio=_divide((work.delay_ns, work.wall_ns) for work in works),
    )


class _FetcherWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one fetcher for training batches, in nanoseconds."""

    batch_count: int
    wall_ns: int
    is_detailed: bool
    """True if fetches have CPU time, samples, transforms and collation: all, or one in N. Shares of
    batch creation are those of these fetches."""
    detailed_ns: int
    cpu_ns: int
    samples_ns: int
    collate_ns: int
    transforms_ns: dict[str, int]
    stage_times: _StageTimes
    sample_count: int
    worker_ns: int | None
    """From the first fetch of a worker to the end of its last one; None for a training process."""
    delay_ns: int | None
    """Without a core during fetches: between them a worker wants none. None where not recorded."""
    detailed_every: int


def _measure_work(fetcher: Fetcher, steps: Steps) -> _FetcherWork | None:
    """Measure the work of a fetcher; None without training batches."""
    spans, delays = fetcher.spans, fetcher.delays
    first, last = int(steps.start[0]), int(steps.end[-1])
    trains = (spans.start >= first - MAX_LEAD_NS) & (spans.start < last)
    trains &= ~intervals.contains(steps.evaluation, spans.start)
    fetches = spans.take(trains & spans.is_kind("fetch"))
    if not len(fetches):
        return None
    fetching = intervals.union(fetches.intervals)
    # Quick fetches in a training process that were not recorded in detail have no spans of their
    # own, only the waits around them.
    creates = trains & spans.is_kind("fetch", *(() if fetcher.worker else ("data_wait",)))

    def select(kind: str) -> Spans:
        rows = np.flatnonzero(trains & spans.is_kind(kind))
        return spans.take(rows[intervals.contains(fetching, spans.start[rows])])

    detailed = fetches.take(fetches.value != FETCH_NOT_DETAILED)
    collating, transforms = select("collate").intervals, select("transform")
    stage_times, sample_count = _measure_stages(
        fetcher.samples,
        intervals.union(spans.take(creates).intervals),
        intervals.union(collating),
        intervals.union(detailed.intervals),
    )
    delay_ns = None
    if delays is not None:
        fetch_ns = intervals.overlap(delays.intervals, fetching)
        delay_ns = int(np.minimum(delays.value, fetch_ns).sum())
    return _FetcherWork(
        batch_count=len(fetches),
        wall_ns=int(fetches.duration.sum()),
        is_detailed=len(detailed) > 0,
        detailed_ns=int(detailed.duration.sum()),
        cpu_ns=int(detailed.value.sum()),
        samples_ns=int(select("samples").value.sum()),
        collate_ns=collating.total_ns,
        transforms_ns={
            transforms.names[code]: int(transforms.value[transforms.name == code].sum())
            for code in np.unique(transforms.name).tolist()
        },
        stage_times=stage_times,
        sample_count=sample_count,
        worker_ns=int(fetches.end[-1] - fetches.start[0]) if fetcher.worker else None,
        delay_ns=delay_ns,
        detailed_every=fetcher.detailed_every,
    )


def _measure_stages(
    samples: StackSamples,
    creating: intervals.Intervals,
    collating: intervals.Intervals,
    detailed: intervals.Intervals,
) -> tuple[_StageTimes, int]:
    """Sum the time of stack samples inside fetches by stage; and count those samples.

    Where collation was not recorded, a stack that does not come from the dataset is in it.

    Args:
        samples: of the fetcher.
        creating: times that contain all fetches.
        collating: calls of the collate function.
        detailed: fetches recorded in detail.
    """
    inside = intervals.contains(creating, samples.t_ns) & ~samples.find_entries()
    collates, in_detail = (intervals.contains(c, samples.t_ns) for c in (collating, detailed))
    keys = np.stack([collates, in_detail, samples.stack, samples.user_line], axis=1)[inside]
    unique, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    spent = np.bincount(
        inverse.ravel(), weights=samples.weight_ns[inside], minlength=len(unique)
    ).astype(np.int64)
    times: _StageTimes = {}
    sample_count = 0
    rows = zip(unique.tolist(), spent.tolist(), counts.tolist(), strict=True)
    for (is_collating, is_detailed, code, line), time_ns, count in rows:
        frames = code_stages.parse_stack(samples.stacks[code])
        text = samples.running_text(code, line)
        in_collate = bool(is_collating) if is_detailed else code_stages.is_outside_dataset(frames)
        staged = locks.classify_lock(frames, text) or code_stages.classify_stack(
            frames, collating=in_collate, line=text
        )
        if staged is not None:
            key = (staged.stage, staged.label, in_collate)
            times[key] = times.get(key, 0) + time_ns
            sample_count += count
    return times, sample_count


_StageTimes = dict[tuple[code_stages.Stage, str, bool], int]
"""Nanoseconds by stage, label, and whether the collate function was running."""

MAX_LEAD_NS = 60_000_000_000
"""Workers create the first batches before the first step starts: look back this far."""


def _merge_times(all_times: Sequence[_StageTimes]) -> _StageTimes:
    merged: _StageTimes = {}
    for times in all_times:
        for key, time_ns in times.items():
            merged[key] = merged.get(key, 0) + time_ns
    return merged


def _split_stages(times: _StageTimes, collate_ratio: float) -> list[StageShare]:
    """Split batch creation into stages: collating as measured, the rest as sampled."""
    total_ns = max(1, sum(times.values()))
    collate_ns = sum(time_ns for (_, _, in_collate), time_ns in times.items() if in_collate)
    rest_ns = max(1, total_ns - collate_ns)
    shares: dict[code_stages.Stage, dict[str, float]] = {}
    for (stage, label, in_collate), time_ns in times.items():
        sampled_ratio = time_ns / max(1, collate_ns) if in_collate else time_ns / rest_ns
        ratio = sampled_ratio * (collate_ratio if in_collate else 1 - collate_ratio)
        labels = shares.setdefault(stage, {})
        labels[label] = labels.get(label, 0.0) + ratio
    if not collate_ns and collate_ratio > 0:
        shares.setdefault("collate", {})["collate function"] = collate_ratio
    stages = [
        StageShare(
            stage=stage,
            name=code_stages.STAGE_LABELS[stage],
            ratio=sum(labels.values()),
            labels=_sort_descending(labels),
        )
        for stage, labels in shares.items()
    ]
    return sorted(stages, key=lambda share: -share.ratio)


def _measure_transforms(works: Sequence[_FetcherWork], wall_ns: int) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for work in works:
        for name, spent_ns in work.transforms_ns.items():
            ratios[name] = ratios.get(name, 0.0) + spent_ns / wall_ns
    return _sort_descending(ratios)


def _divide(times: Iterable[tuple[int | None, int | None]]) -> float | None:
    """Divide the sum of the first times by that of the second ones, where both were recorded; None
    where that is 0."""
    recorded = [(part, total) for part, total in times if part is not None and total is not None]
    total_ns = sum(total for _, total in recorded)
    return sum(part for part, _ in recorded) / total_ns if total_ns else None


def _sort_descending(shares: dict[str, float]) -> dict[str, float]:
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def parse_source_call(text: str) -> ast.Call | None:
    """Parse the text of a call; None for a statement, a part of one, or another expression."""
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return call if isinstance(call, ast.Call) else None


def leave_out_ended_calls(text: str) -> str:
    """Leave out of the text of a running call the parentheses of the calls of its arguments, which
    have ended: what they are named after does not run.

    >>> leave_out_ended_calls('print("loss", len(loss.item()))')
    'print("loss", len loss.item )))'
    """
    call = parse_source_call(text)
    if call is None:
        return text
    encoded, end = text.encode(), call.func.end_col_offset
    callee, arguments = encoded[:end].decode(), encoded[end:].decode()
    return callee.replace("(", " ") + arguments[:1] + arguments[1:].replace("(", " ")
