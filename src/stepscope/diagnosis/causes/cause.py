"""Inputs and result of the search for a cause, also where none was found."""

from __future__ import annotations

import msgspec

from stepscope import analysis, quantities, schema
from stepscope.diagnosis.shares.pipeline_model import Pipeline
from stepscope.diagnosis.shares.shares import PhaseSplit, Shares
from stepscope.diagnosis.verdict import CORE_SHARE, LOOP_SHARE, Evidence, EvidenceKind, Stage
from stepscope.quantities import number
from stepscope.run import Rank, Run

CONTRIBUTING_RATIO = 0.05
"""A cause gets a fix of its own with at least this share of the step that is left without the main
cause …"""
MIN_CONTRIBUTING_RATIO = 0.02
"""… if that is at least this share of the step."""
EVEN_ODDS = 0.5
"""Certainty where nothing tells which of two is larger: a debug switch, or what it slows down."""


def limit_contributing(main_share: float) -> float:
    """Return the least share of the step of a cause that gets a fix of its own.

    Args:
        main_share: share of the step that the fix for the main cause removes.
    """
    return max(MIN_CONTRIBUTING_RATIO, CONTRIBUTING_RATIO * (1 - main_share))


class CauseInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of the search for a cause within a suspect."""

    run: Run
    shares: Shares
    """Shares of the job's step."""
    split: PhaseSplit
    starved_rank: Rank
    """The rank that waits longest for batches; the other ranks wait for it."""
    pipeline: Pipeline | None
    """Input pipeline of the starved rank; None where batch creation was not recorded."""

    @property
    def base_ns(self) -> float:
        """Mean time per step that `shares` are of."""
        return self.run.mean_step_ns * (1 - self.shares.without_core)

    @property
    def bases_ns(self) -> dict[str, float]:
        """Mean time per step by denominator, for those that are not the mean step."""
        bases_ns = {}
        if self.shares.share_of == CORE_SHARE:
            bases_ns[CORE_SHARE] = self.base_ns
        if self.split.evaluation:
            bases_ns[LOOP_SHARE] = self.run.mean_step_ns / (1 - self.split.evaluation)
        return bases_ns


class CauseFinding(msgspec.Struct, kw_only=True):
    """A cause with its evidence."""

    cause: str
    missing: str = ""
    """The recording that would show an `UNKNOWN` cause, a full sentence."""
    words: str = ""
    """Words for the cause, where they say more than its name."""
    site: str = ""
    """The part of the program that has most of the time, a full sentence; empty if unknown."""
    evidence_kind: EvidenceKind = "timed"
    certainty: float = 1.0
    """Probability that this cause is the largest of its suspect; 1 where all was measured."""
    reason: str | None = None
    """Reason for a fix, where it differs from the first evidence."""
    stages: list[Stage] = msgspec.field(default_factory=list)
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    fixed_line: str = ""
    """Line of the script, as file:line, that a fix of this cause concerns; its work is no other
    cause."""
    contributing: list[tuple[str, float, str]] = msgspec.field(default_factory=list)
    """Other causes of the same suspect that are worth a fix: cause, share of the step and reason,
    largest first."""


def explain_missing_batches(rank: Rank, making: analysis.BatchCreation | None) -> str:
    """Name the recording that would show the cause of late batches."""
    if rank.facts(schema.ImportedFact):
        return (
            "Stack samples of the processes that create batches would show it; the imported files "
            "contain none."
        )
    if making is None:
        return (
            "Stack samples inside batch creation would show it; only batches of a torch DataLoader "
            "are followed."
        )
    if making.stages:
        return (
            "The stack samples show no Python code of the dataset: a profiler of native code would "
            "show it."
        )
    return (
        f"{quantities.count_of(making.sample_count, 'stack sample')} of batch creation, "
        f"{quantities.count(analysis.MIN_SAMPLES)} are needed: a longer run would show it."
    )


def explain_missing_lines(rank: Rank) -> str:
    """Name the recording that would show the code behind host overhead."""
    if rank.facts(schema.ImportedFact):
        return (
            "Stack samples of the training thread would show it; the imported files contain none."
        )
    return (
        "No stack sample shows the code: a longer run, or a window with Python calls "
        "(`stepscope run --start-step N --stacks -- CMD`), would."
    )


def describe_utilization(run: Run) -> list[Evidence]:
    """Describe how busy cores and GPUs were; empty where that was not sampled."""
    cpu = run.mean_over_nodes("cpu_busy_ratio")
    gpus = [
        ratio
        for metrics in run.metrics.values()
        for device in metrics.devices_of("gpu_busy_ratio")
        if (ratio := metrics.mean("gpu_busy_ratio", device)) is not None
    ]
    parts = [] if cpu is None else [f"the cores {quantities.percent(cpu)}"]
    if gpus:
        low, high = quantities.percent(min(gpus)), quantities.percent(max(gpus))
        parts.append(f"the GPUs {low}" if low == high else f"the GPUs {low} to {high}")
    if not parts:
        return []
    return [
        Evidence(
            text=f"Busy share of the time: {', '.join(parts)}.",
            value=cpu if cpu is not None else max(gpus),
            unit="ratio",
            source="system",
        )
    ]


def times(value: float) -> str:
    """Format how often something happens.

    >>> times(1), times(16.42)
    ('once', '16.4 times')
    """
    return "once" if value == 1 else f"{number(value)} times"
