"""The text of `steps`."""

from __future__ import annotations

from rich.console import Console

from stepscope.cli.text import bar, table
from stepscope.cli.writers.generic import write_generic, write_quality
from stepscope.quantities import count_of, duration, number, percent
from stepscope.views import RankStepsView, StepsView


def write_steps(out: Console, payload: StepsView) -> None:
    """Write how long steps take and what they are spent on."""
    if payload.missing:
        out.print(payload.missing)
    for rank in payload.ranks:
        _write_rank_steps(out, rank)
    for trace in payload.traces:
        write_generic(out, trace)
    write_quality(out, payload.quality)


def _write_rank_steps(out: Console, rank: RankStepsView) -> None:
    out.print(
        f"[bold]{rank.rank}[/bold]  {count_of(rank.step_count, 'step')} ({rank.source}), "
        f"{rank.measured_count} measured, batches per step: {number(rank.fetches_per_step)}"
    )
    if rank.step_ns is None:
        return
    statistics = rank.step_ns
    rows = table("step time", "mean", "p50", "p95", "p99", "max", "min", "outliers")
    values = (
        statistics.mean,
        statistics.p50,
        statistics.p95,
        statistics.p99,
        statistics.maximum,
        statistics.minimum,
    )
    rows.add_row("", *(duration(value) for value in values), str(statistics.outlier_count))
    out.print(rows)
    phases = table("phase", "share of step", "", "mean", "p50", "p95")
    for phase in rank.phases:
        if phase.share_ratio != 0:
            phases.add_row(
                phase.name,
                bar(phase.share_ratio),
                percent(phase.share_ratio),
                duration(phase.mean_ns),
                duration(phase.p50_ns),
                duration(phase.p95_ns),
            )
    out.print(phases)
    if rank.evaluation_ns:
        out.print(f"evaluation between steps: {duration(rank.evaluation_ns)}")
    if rank.outlier_steps:
        out.print(f"slowest outliers: steps {', '.join(map(str, rank.outlier_steps))}")
    out.print()
