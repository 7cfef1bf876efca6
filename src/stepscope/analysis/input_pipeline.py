"""How batches are made, and what the training thread waits for.

The training thread's waiting time is split into parts that sum to it:

    starting     iterators being made, the first batch of each, and their end: workers start
                 and stop
    handing_over the batch lay ready; receiving it took the time
    making       no batch lay ready: the time it takes to make one, split by stage

A batch can lie ready and still come late, because the worker that has to send it is busy with the
next one: both need that worker's interpreter. Workers that are busy for a share b of the time can
deliver no faster than they make, so of receiving at most 1 - b of the steps counts as
`handing_over`, and the rest as `making`.

`making` is split in proportion to the time the workers (or, without workers, the training
thread) spend in each stage: collating as measured, the rest by stack samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.code_stages import STAGE_NAMES, Frame, Stage, classify_stack, parse_stack
from stepscope.analysis.spans import FLAG_NO_RESULT, Spans
from stepscope.analysis.steps import Steps, steps_of
from stepscope.intervals import Int, contains, union

MAX_WEIGHT_PERIODS = 50
"""A longer pause means that the sampler had stopped."""
MIN_SAMPLES = 20
"""Fewer stack samples than this do not say how fetching time is split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSamples:
    """Stack samples of one process, sorted by time; `stack` are positions in `stacks`.

    A sampler that had to wait for the interpreter lock (a C function held it) comes late, so a
    sample stands for the time since the one before it, not for one period.
    """

    t_ns: Int
    weight_ns: Int
    stack: NDArray[np.int32]
    stacks: Sequence[str]
    user_line: NDArray[np.int32]
    sources: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """Text of lines of the user's that were seen running, by file and line."""

    def line_text(self, frames: Sequence[Frame], line: int) -> str:
        """The line that runs in the innermost frame of the user's; '' where it is not known."""
        files = [frame.file for frame in frames if not frame.library]
        return self.sources.get((files[-1], line), "") if files else ""


def sample_weights(t_ns: Int, period_ns: int) -> Int:
    """Nanoseconds that each sample of a steady sampler stands for; 1 if no period is known."""
    if not len(t_ns) or period_ns <= 0:
        return np.ones(len(t_ns), dtype=np.int64)
    since = np.diff(t_ns, prepend=t_ns[0] - period_ns)
    return np.where(since > MAX_WEIGHT_PERIODS * period_ns, period_ns, since).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """One process that makes batches: a worker, or the training process itself."""

    process: str
    worker: bool
    spans: Spans
    samples: StackSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """A stage of making a batch."""

    stage: Stage
    name: str
    ratio: float
    """Share of the time spent making batches."""
    labels: dict[str, float]
    """What the stage consists of, by share of the time spent making batches, largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """What it takes to make batches."""

    batch_count: int
    mean_ns: float
    """Wall time of one fetch."""
    cpu_ratio: float
    """CPU time of the fetching thread over its wall time; low when it waits for storage."""
    samples_ratio: float | None
    """Share of the fetch inside __getitem__ or next."""
    collate_ratio: float
    transforms: dict[str, float]
    """Measured share of the fetch in each member of a transform chain, largest first."""
    sample_count: int
    """Stack samples that the stages rest on."""
    stages: list[StageShare]
    """Largest first; empty when there are too few samples."""
    worker_busy_ratio: float | None
    """Share of the time the workers were making batches; None without workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Where the training thread's waiting goes; sums over measured steps, in nanoseconds."""

    total_ns: int
    starting_ns: int
    handing_over_ns: int
    making_ns: int
    starved_ratio: float | None
    """Share of requests that found no batch ready; None without workers."""
    irregular_ns: int = 0
    """Part of the handing over beyond the median of the batches that took longer than it. Batches
    are alike, so that this is hardly the batches' own."""


def find_waiting(spans: Spans, steps: Steps, chosen: NDArray[np.bool_]) -> Waiting:
    """Split the waiting time of the chosen steps (a mask over steps)."""
    waits = spans.take(spans.is_kind("data_wait", "loader_start") & (spans.thread == steps.thread))
    step = steps_of(waits.start, steps)
    kept = (step >= 0) & chosen[np.maximum(step, 0)]
    first = np.zeros(len(waits), dtype=np.bool_)
    starts = waits.is_kind("loader_start")
    first[1:] = starts[:-1]
    waits, first = waits.take(kept), first[kept]
    duration = waits.duration
    starts = waits.is_kind("loader_start")
    ready = waits.value > 0
    inline = waits.value < 0
    exhausted = waits.has_flag(FLAG_NO_RESULT)
    starting = starts | ((first | exhausted) & ~ready & ~inline)
    handing = ~starting & ready
    asked = ~starts & ~inline & ~exhausted
    handed_over = duration[handing]
    usual = np.median(handed_over) if len(handed_over) else 0.0
    return Waiting(
        total_ns=int(duration.sum()),
        starting_ns=int(duration[starting].sum()),
        handing_over_ns=int(handed_over.sum()),
        making_ns=int(duration[~starting & ~handing].sum()),
        starved_ratio=float((~ready[asked]).mean()) if asked.any() else None,
        irregular_ns=int(np.maximum(handed_over - usual, 0).sum()),
    )


def late_batches(waiting: Waiting, making: Making | None, wall_ns: int) -> Waiting:
    """The waiting, by what the batches are late for.

    Args:
        waiting: as it was seen.
        making: of the same batches.
        wall_ns: of the steps that waited.
    """
    if making is None or making.worker_busy_ratio is None:
        return waiting
    idle_ns = round((1 - min(1.0, making.worker_busy_ratio)) * wall_ns)
    busy_ns = max(0, waiting.handing_over_ns - idle_ns)
    return replace(
        waiting,
        handing_over_ns=waiting.handing_over_ns - busy_ns,
        making_ns=waiting.making_ns + busy_ns,
        irregular_ns=max(0, waiting.irregular_ns - busy_ns),
    )


def find_making(fetchers: Sequence[Fetcher], steps: Steps) -> Making | None:
    """What making the training batches takes, over all fetchers; None when none were made."""
    parts = [_Part.of(fetcher, steps) for fetcher in fetchers]
    parts = [part for part in parts if len(part.fetches)]
    if not parts:
        return None
    wall = sum(part.wall_ns for part in parts)
    collate = sum(part.kind_ns("collate") for part in parts) / wall
    sampled = _merge([part.stage_times() for part in parts])
    count = sum(part.sample_count() for part in parts) if sampled else 0
    return Making(
        batch_count=sum(len(part.fetches) for part in parts),
        mean_ns=wall / sum(len(part.fetches) for part in parts),
        cpu_ratio=min(1.0, sum(int(part.fetches.value.sum()) for part in parts) / wall),
        samples_ratio=sum(part.value_ns("samples") for part in parts) / wall,
        collate_ratio=collate,
        transforms=_transforms(parts, wall),
        sample_count=count,
        stages=_stages(sampled, collate) if count >= MIN_SAMPLES else [],
        worker_busy_ratio=_worker_busy(parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One fetcher's work for training batches."""

    fetcher: Fetcher
    fetches: Spans
    inner: Spans

    @classmethod
    def of(cls, fetcher: Fetcher, steps: Steps) -> _Part:
        spans = fetcher.spans
        first, last = int(steps.start[0]), int(steps.end[-1])
        fetches = spans.of("fetch")
        fetches = fetches.take((fetches.start >= first - _LEAD_NS) & (fetches.start < last))
        fetches = fetches.take(~contains(steps.evaluation, fetches.start))
        inner = spans.of("samples", "collate", "transform")
        inside = contains(union(fetches.intervals), inner.start)
        return cls(fetcher=fetcher, fetches=fetches, inner=inner.take(inside))

    @property
    def wall_ns(self) -> int:
        return int(self.fetches.duration.sum())

    def kind_ns(self, kind: str) -> int:
        return int(self.inner.of(kind).duration.sum())

    def value_ns(self, kind: str) -> int:
        return int(self.inner.of(kind).value.sum())

    def _inside(self) -> NDArray[np.bool_]:
        return contains(union(self.fetches.intervals), self.fetcher.samples.t_ns)

    def sample_count(self) -> int:
        """Stack samples inside fetches."""
        return int(self._inside().sum())

    def stage_times(self) -> _StageTimes:
        """Time that the stack samples inside fetches stand for."""
        samples, inside = self.fetcher.samples, self._inside()
        collating = contains(union(self.inner.of("collate").intervals), samples.t_ns)
        seen = np.stack([collating, samples.stack, samples.user_line], axis=1)[inside]
        places, place = np.unique(seen, axis=0, return_inverse=True)
        spent = np.bincount(
            place.ravel(), weights=samples.weight_ns[inside], minlength=len(places)
        ).astype(np.int64)
        times: _StageTimes = {}
        for (in_collate, code, line), time_ns in zip(places.tolist(), spent.tolist(), strict=True):
            frames = parse_stack(samples.stacks[code])
            text = samples.line_text(frames, line)
            staged = classify_stack(frames, collating=bool(in_collate), line=text)
            if staged is not None:
                key = (staged.stage, staged.label, bool(in_collate))
                times[key] = times.get(key, 0) + time_ns
        return times


_StageTimes = dict[tuple[Stage, str, bool], int]
"""Nanoseconds by stage, label, and whether the collate function was running."""

_LEAD_NS = 60_000_000_000
"""Workers make the first batches before the first step begins: look back this far."""


def _merge(counts: Sequence[_StageTimes]) -> _StageTimes:
    merged: _StageTimes = {}
    for part in counts:
        for key, number in part.items():
            merged[key] = merged.get(key, 0) + number
    return merged


def _stages(sampled: _StageTimes, collate_ratio: float) -> list[StageShare]:
    """The collate function's part as it was measured, the rest of the time as it was sampled."""
    total = max(1, sum(sampled.values()))
    collated = sum(time_ns for (_, _, in_collate), time_ns in sampled.items() if in_collate)
    rest = max(1, total - collated)
    shares: dict[Stage, dict[str, float]] = {}
    for (stage, label, in_collate), time_ns in sampled.items():
        of_part = time_ns / max(1, collated) if in_collate else time_ns / rest
        ratio = of_part * (collate_ratio if in_collate else 1 - collate_ratio)
        labels = shares.setdefault(stage, {})
        labels[label] = labels.get(label, 0.0) + ratio
    if not collated and collate_ratio > 0:
        shares.setdefault("collate", {})["collate function"] = collate_ratio
    found = [
        StageShare(
            stage=stage, name=STAGE_NAMES[stage], ratio=sum(labels.values()), labels=_sorted(labels)
        )
        for stage, labels in shares.items()
    ]
    return sorted(found, key=lambda share: -share.ratio)


def _transforms(parts: Sequence[_Part], wall: int) -> dict[str, float]:
    times: dict[str, float] = {}
    for part in parts:
        transforms = part.inner.of("transform")
        for code in np.unique(transforms.name).tolist():
            spent = int(transforms.value[transforms.name == code].sum())
            name = transforms.names[code]
            times[name] = times.get(name, 0.0) + spent / wall
    return _sorted(times)


def _worker_busy(parts: Sequence[_Part]) -> float | None:
    busy = wall = 0
    for part in parts:
        if part.fetcher.worker:
            busy += part.wall_ns
            wall += int(part.fetches.end[-1] - part.fetches.start[0])
    return busy / wall if wall else None


def _sorted(shares: dict[str, float]) -> dict[str, float]:
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


__all__ = [
    "Fetcher",
    "Making",
    "StackSamples",
    "StageShare",
    "Waiting",
    "find_making",
    "find_waiting",
    "late_batches",
]
