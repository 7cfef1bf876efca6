"""Causes that were not found: available evidence, and the recording that would show them."""

from __future__ import annotations

from stepscope.analysis import MIN_SAMPLES, BatchCreation
from stepscope.diagnosis.verdict import Evidence
from stepscope.quantities import count, count_of, percent
from stepscope.run import Rank, Run
from stepscope.schema import ImportedFact


def explain_missing_batches(rank: Rank, making: BatchCreation | None) -> str:
    """Name the recording that would show the cause of late batches."""
    if rank.facts(ImportedFact):
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
        f"{count_of(making.sample_count, 'stack sample')} of batch creation, "
        f"{count(MIN_SAMPLES)} are needed: a longer run would show it."
    )


def explain_missing_lines(rank: Rank) -> str:
    """Name the recording that would show the code behind host overhead."""
    if rank.facts(ImportedFact):
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
    parts = [] if cpu is None else [f"the cores {percent(cpu)}"]
    if gpus:
        low, high = percent(min(gpus)), percent(max(gpus))
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
