"""Activity of processes that were sampled from outside: without spans, only their stacks tell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.analysis.code_stages import (
    Frame,
    Stage,
    classify_stack,
    is_outside_dataset,
    parse_stack,
)
from stepscope.analysis.input_pipeline import StackSamples
from stepscope.intervals import Mask

Activity = Literal["data_wait", "forward", "backward", "optimizer", "communication", "other"]
BLOCK_NS = 1_000_000_000
"""Samples of one second are not independent of each other: a step may take as long."""

_ACTIVITIES: tuple[tuple[Activity, str, frozenset[str]], ...] = (
    ("data_wait", "torch/utils/data/dataloader.py", frozenset({"__next__", "__iter__"})),
    ("communication", "torch/distributed/distributed_c10d.py", frozenset()),
    ("backward", "torch/_tensor.py", frozenset({"backward"})),
    ("backward", "torch/autograd/__init__.py", frozenset({"backward", "grad"})),
    ("optimizer", "torch/optim/optimizer.py", frozenset()),
    ("forward", "torch/nn/modules/module.py", frozenset({"_call_impl", "_wrapped_call_impl"})),
)
"""Code of PyTorch by which an activity is told: file, and functions of it; none for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadActivity:
    """Activities of the main thread of one process."""

    sample_count: int
    counts: dict[Activity, int]
    wait_blocks: list[float]
    """Share of samples that wait for a batch, by second."""

    @property
    def is_training(self) -> bool:
        """True if it was seen in PyTorch's training code."""
        return any(count for activity, count in self.counts.items() if activity != "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledShare:
    """Share of time, estimated from samples."""

    ratio: float
    standard_error: float
    """From the variation between seconds; at least that of half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledBatchWork:
    """Creation of batches, from the stacks of the processes that create them."""

    process_count: int
    busy_ratio: float
    """Share of samples inside the creation of a batch."""
    stages: dict[Stage, float]
    """Shares of the samples inside, largest first."""
    label: str
    """Code that has most of the samples of the largest stage."""


def classify_activity(frames: Sequence[Frame]) -> Activity:
    """Classify a stack of a training thread by the outermost code of PyTorch that names one."""
    for frame in frames:
        for activity, file, functions in _ACTIVITIES:
            is_named = not functions or frame.bare_function in functions
            if is_named and frame.file.endswith(file):
                return activity
    return "other"


def measure_thread_activity(samples: StackSamples) -> ThreadActivity:
    """Count the activities of a sampled thread; every sample stands for the same time."""
    activities = [classify_activity(parse_stack(stack)) for stack in samples.stacks]
    counts = Counter(activities[code] for code in samples.stack.tolist())
    waits: Mask = np.array([a == "data_wait" for a in activities], dtype=bool)[samples.stack]
    _, block = np.unique(samples.t_ns // BLOCK_NS, return_inverse=True)
    wait_blocks = np.bincount(block, weights=waits) / np.bincount(block) if len(block) else block
    return ThreadActivity(
        sample_count=len(samples.t_ns), counts=dict(counts), wait_blocks=wait_blocks.tolist()
    )


def estimate_wait_share(threads: Sequence[ThreadActivity]) -> SampledShare:
    """Estimate the share of time in which training threads wait for batches.

    The standard error is that of the mean of `n` seconds, s / sqrt(n), and at least 1 / (2 n).
    """
    waiting = sum(thread.counts.get("data_wait", 0) for thread in threads)
    blocks = np.array([share for thread in threads for share in thread.wait_blocks])
    spread = float(blocks.std(ddof=1)) if len(blocks) > 1 else 1.0
    return SampledShare(
        ratio=waiting / sum(thread.sample_count for thread in threads),
        standard_error=max(spread / math.sqrt(len(blocks)), 0.5 / len(blocks)),
    )


def measure_sampled_batches(processes: Sequence[StackSamples]) -> SampledBatchWork | None:
    """Measure the creation of batches by some processes; None if none was seen."""
    stages: Counter[Stage] = Counter()
    labels: Counter[tuple[Stage, str]] = Counter()
    total = 0
    for samples in processes:
        stacks = [parse_stack(stack) for stack in samples.stacks]
        staged = [classify_stack(s, collating=is_outside_dataset(s)) for s in stacks]
        total += len(samples.t_ns)
        for code, count in Counter(samples.stack.tolist()).items():
            stack = staged[code]
            if stack is not None:
                stages[stack.stage] += count
                labels[stack.stage, stack.label] += count
    inside = stages.total()
    if not inside:
        return None
    largest = stages.most_common(1)[0][0]
    label = max((pair for pair in labels if pair[0] == largest), key=lambda pair: labels[pair])[1]
    return SampledBatchWork(
        process_count=len(processes),
        busy_ratio=inside / total,
        stages={stage: count / inside for stage, count in stages.most_common()},
        label=label,
    )
