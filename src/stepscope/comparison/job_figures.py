"""Figures of whole jobs, and their change between two runs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.cost import price_job
from stepscope.run import Run, job_statistics, machine_count
from stepscope.schema import field_label

NS_PER_HOUR = 3.6e12
SCOPE = (
    "the whole run on all machines, start-up and finalization included; steps are those of the "
    "rank with the most, per second of the time from the first step to the last"
)


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of a figure of the whole job; null where a run does not have it."""

    name: Annotated[str, field_label("figure")]
    unit: str
    base_value: Annotated[float | None, field_label("from")] = msgspec.field(name="base")
    other_value: Annotated[float | None, field_label("to")] = msgspec.field(name="other")
    change_ratio: float | None
    """Change relative to the base; negative for a decrease."""


def compare_figures(base_run: Run, other_run: Run) -> list[FigureChange]:
    """Compare the figures of two jobs."""
    base_figures, other_figures = _measure_figures(base_run), _measure_figures(other_run)
    return [
        _make_change(name, unit, value, other_figures[name, unit])
        for (name, unit), value in base_figures.items()
        if value is not None or other_figures[name, unit] is not None
    ]


def _make_change(
    name: str, unit: str, base_value: float | None, other_value: float | None
) -> FigureChange:
    change_ratio = None
    if base_value and other_value is not None:
        change_ratio = (other_value - base_value) / base_value
    return FigureChange(
        name=name,
        unit=unit,
        base_value=base_value,
        other_value=other_value,
        change_ratio=change_ratio,
    )


def _measure_figures(run: Run) -> dict[tuple[str, str], float | None]:
    """Measure the figures of one run, by name and unit."""
    job = job_statistics(run)
    count = machine_count(run.reader)
    priced = price_job(
        run.reader.info, run.nodes.values(), instance_count=count, duration_ns=job.duration_ns
    )
    has_all_steps = job.training_ns is not None
    steps = max((len(rank.steps) for rank in run.ranks), default=0) if has_all_steps else 0
    return {
        ("wall time", "ns"): float(job.duration_ns),
        ("training", "ns"): None if job.training_ns is None else float(job.training_ns),
        ("steps", "count"): float(steps) if steps else None,
        ("steps per second", "per_s"): steps / job.training_ns * 1e9
        if steps and job.training_ns
        else None,
        ("GPU busy", "ratio"): run.mean_over_nodes("gpu_busy_ratio"),
        ("GPU memory", "bytes"): run.mean_over_nodes("gpu_memory_used_bytes"),
        ("CPU busy", "ratio"): run.mean_over_nodes("cpu_busy_ratio"),
        ("I/O wait", "ratio"): run.mean_over_nodes("cpu_iowait_ratio"),
        ("memory", "bytes"): run.mean_over_nodes("memory_used_bytes"),
        ("machines", "count"): float(count) if count else None,
        ("machine hours", "hours"): count * job.duration_ns / NS_PER_HOUR if count else None,
        ("cost", "usd"): None if isinstance(priced, str) else priced.job_usd,
    }
