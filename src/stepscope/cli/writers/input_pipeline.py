"""The text of `input-pipeline`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import bar, table
from stepscope.quantities import count, duration, percent
from stepscope.views import InputPipelineView, MakingView, RankPipeline


def write_input_pipeline(out: Console, payload: InputPipelineView) -> None:
    """Write how batches are made and what the training thread waits for."""
    if payload.missing:
        out.print(payload.missing)
    for rank in payload.ranks:
        _write_rank_pipeline(out, rank, payload.share_of)
    if payload.traces:
        _write_traces(out, payload)
    if payload.tf_data:
        _write_tf_data(out, payload)


def _write_traces(out: Console, payload: InputPipelineView) -> None:
    rows = table("trace", "batches made by", "fetching per step", "waiting for data", "copies")
    for trace in payload.traces:
        rows.add_row(
            escape(trace.rank),
            "workers" if trace.has_workers else "the training process",
            duration(trace.fetch_step_ns),
            percent(trace.exposed_ratio),
            percent(trace.copy_ratio),
        )
    out.print(rows)
    out.print(f"Shares are of {payload.share_of}.")


def _write_tf_data(out: Console, payload: InputPipelineView) -> None:
    rows = table("trace", "stage of tf.data", "in total", "calls", "per call")
    for stage in payload.tf_data:
        times = duration(stage.total_ns), count(stage.call_count), duration(stage.call_ns)
        rows.add_row(escape(stage.trace), escape(stage.name), *times)
    out.print(rows)
    out.print("[dim]without stages called in the same thread, with waits for other threads[/dim]")


def _write_rank_pipeline(out: Console, rank: RankPipeline, share_of: str) -> None:
    waiting = rank.waiting
    out.print(
        f"[bold]{rank.rank}[/bold]  waits for batches {percent(waiting.share_ratio)} of the "
        f"{share_of}"
    )
    rows = table("waiting for", "share of step", "")
    for name, ratio in (
        ("batches being made", waiting.making_ratio),
        ("batches being handed over", waiting.handing_over_ratio),
        ("loaders starting", waiting.starting_ratio),
    ):
        rows.add_row(name, bar(ratio), percent(ratio))
    out.print(rows)
    if waiting.starved_ratio is not None:
        out.print(
            f"The prefetch queue was empty for {percent(waiting.starved_ratio)} of batch requests."
        )
    if rank.loader is not None:
        settings = {k: v for k, v in rank.loader.items() if k not in {"fact", "name"}}
        out.print("[dim]" + escape(", ".join(f"{k}={v}" for k, v in settings.items())) + "[/dim]")
    if rank.making is None:
        out.print(rank.missing or "")
    else:
        _write_making(out, rank.making)
    out.print()


def _write_making(out: Console, making: MakingView) -> None:
    out.print(
        f"{making.batch_count} batches, mean creation time {duration(making.mean_ns)}"
        + (
            f", {percent(making.cpu_ratio)} of it on the CPU"
            if making.cpu_ratio is not None
            else ""
        )
        + (
            f"; workers busy {percent(making.worker_busy_ratio)} of the time"
            if making.worker_busy_ratio is not None
            else ""
        )
    )
    if making.detailed_every > 1:
        out.print(
            f"[dim]Batches were so quick that only one in {making.detailed_every} was recorded in "
            "detail; the shares are those of the recorded ones[/dim]"
        )
    if making.stages:
        rows = table("stage", "of making", "of step", "")
        for stage in making.stages:
            labels = ", ".join(f"{k} {percent(v)}" for k, v in list(stage.labels.items())[:4])
            shares = (percent(stage.of_making_ratio), percent(stage.of_step_ratio))
            rows.add_row(stage.name, *shares, escape(labels))
        out.print(rows)
        out.print(f"[dim]from {making.stack_sample_count} stack samples; collating measured[/dim]")
    if making.transforms:
        parts = ", ".join(f"{name} {percent(v)}" for name, v in making.transforms.items())
        out.print(escape(f"transforms, measured, of making: {parts}"))
