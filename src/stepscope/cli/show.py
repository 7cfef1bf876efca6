"""`stepscope show RUN VIEW`: one view, as text or as its JSON payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from stepscope.cli.options import json_option, run_argument
from stepscope.cli.text import bar, console, duration, in_unit, percent, size, table
from stepscope.cli.verdict_text import write_verdict
from stepscope.diagnosis import Signals
from stepscope.store import open_run
from stepscope.views import VIEWS
from stepscope.views.input_pipeline import InputPipelineView, MakingView, RankPipeline
from stepscope.views.overview import Overview
from stepscope.views.steps import RankSteps, StepsView
from stepscope.views.system import NodeView, SystemView

SHOWN_DEVICES = 8
"""Devices of one metric listed singly; `--json` has all."""


@click.command("show", help="Show one VIEW of RUN: " + ", ".join(VIEWS) + ".")
@run_argument
@click.argument("view", type=click.Choice(list(VIEWS)))
@json_option
def command(run: str, view: str, as_json: bool) -> None:
    payload = VIEWS[view](Signals(open_run(run)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(payload)).decode())
    else:
        _WRITERS[type(payload)](console(), payload)


def _write_overview(out: Console, payload: Overview) -> None:
    out.print(f"[bold]{payload.run_id}[/bold]  {escape(' '.join(payload.command))}")
    versions = ", ".join(f"{name} {version}" for name, version in payload.versions.items())
    out.print(f"[dim]{versions}; git {payload.git_revision or 'none'}[/dim]")
    for node in payload.nodes:
        ended = node.ended_ns or node.heartbeat_ns
        parts = [node.node, str(node.state), duration(ended - node.started_ns)]
        if node.gpu_busy_ratio is not None:
            parts.append(f"GPU busy {percent(node.gpu_busy_ratio)}")
        if node.cpu_busy_ratio is not None:
            parts.append(f"CPU busy {percent(node.cpu_busy_ratio)}")
        if node.monitor_lost:
            parts.append("not heard of since: bring in the rest with stepscope recover")
        out.print("  ".join(parts) + (f"  [dim]{escape(node.reason)}[/dim]" if node.reason else ""))
    write_verdict(out, payload.verdict)


def _write_steps(out: Console, payload: StepsView) -> None:
    if payload.missing:
        out.print(payload.missing)
    for rank in payload.ranks:
        _write_rank_steps(out, rank)


def _write_rank_steps(out: Console, rank: RankSteps) -> None:
    out.print(
        f"[bold]{rank.rank}[/bold]  {rank.step_count} steps ({rank.source}), "
        f"{rank.measured_count} measured, {rank.fetches_per_step:.3g} batches each"
    )
    if rank.step_ns is None:
        return
    found = rank.step_ns
    rows = table("step time", "mean", "p50", "p95", "p99", "max", "min", "outliers")
    values = (found.mean, found.p50, found.p95, found.p99, found.max, found.min)
    rows.add_row("", *(duration(value) for value in values), str(found.outlier_count))
    out.print(rows)
    phases = table("phase", "share of step", "", "mean", "p50", "p95")
    for phase in rank.phases:
        if phase.share_ratio:
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


def _write_system(out: Console, payload: SystemView) -> None:
    if payload.missing:
        out.print(payload.missing)
    for node in payload.nodes:
        _write_node(out, node)


def _write_node(out: Console, node: NodeView) -> None:
    gpus = f", {len(node.gpus)} GPUs ({node.gpus[0]})" if node.gpus else ", no GPU seen"
    out.print(
        f"[bold]{node.node}[/bold]  {node.cpu_model}, {node.cores_available:g} of "
        f"{node.cores_total} cores, {size(node.memory_bytes)} memory{gpus}"
    )
    out.print(
        f"{node.sample_count} samples, one per {duration(node.sample_interval_ns)}; "
        f"{node.missed_sample_count} missed"
    )
    rows = table("metric", "of", "mean", "p50", "p95", "max", "min")
    shown: dict[str, int] = {}
    for view in node.metrics:
        shown[view.metric] = shown.get(view.metric, 0) + 1
        found = view.statistics
        if found is None or shown[view.metric] > SHOWN_DEVICES:
            continue
        values = (found.mean, found.p50, found.p95, found.max, found.min)
        rows.add_row(view.metric, view.device, *(in_unit(v, view.unit) for v in values))
    out.print(rows)
    for group, reason in node.metrics_missing.items():
        out.print(f"[dim]{group}: {escape(reason)}[/dim]")
    out.print()


def _write_input_pipeline(out: Console, payload: InputPipelineView) -> None:
    if payload.missing:
        out.print(payload.missing)
    for rank in payload.ranks:
        _write_rank_pipeline(out, rank, payload.share_of)


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
        out.print(f"{percent(waiting.starved_ratio)} of the requests found no batch ready")
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
        f"{making.batch_count} batches, {duration(making.mean_ns)} each to make, "
        f"{percent(making.cpu_ratio)} of it on the CPU"
        + (
            f"; workers busy {percent(making.worker_busy_ratio)} of the time"
            if making.worker_busy_ratio is not None
            else ""
        )
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


_WRITERS: dict[type, Callable[[Console, Any], None]] = {
    Overview: _write_overview,
    StepsView: _write_steps,
    SystemView: _write_system,
    InputPipelineView: _write_input_pipeline,
}
