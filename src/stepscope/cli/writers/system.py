"""The text of `system`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import clock_time, table
from stepscope.quantities import duration, in_unit, memory, number
from stepscope.views import NodeView, SystemView

SHOWN_DEVICES = 8
"""Devices of one metric that are listed."""


def write_system(out: Console, payload: SystemView) -> None:
    """Write what every node was doing."""
    if payload.missing:
        out.print(payload.missing)
    for node in payload.nodes:
        _write_node(out, node)


def _write_node(out: Console, node: NodeView) -> None:
    gpus = f", {len(node.gpus)} GPUs ({node.gpus[0]})" if node.gpus else ", no GPU found"
    out.print(
        f"[bold]{node.node}[/bold]  {node.cpu_model}, {number(node.cores_available)} of "
        f"{node.cores_total} cores, {memory(node.memory_bytes)} memory{gpus}"
    )
    changes = "".join(
        f", from {clock_time(change.changed_ns)} on one per {duration(change.interval_ns)}"
        + ("" if change.reason is None else f" ({change.reason})")
        for change in node.interval_changes
    )
    out.print(
        f"{node.sample_count} samples, one per {duration(node.sample_interval_ns)}{changes}; "
        f"{node.missed_sample_count} missed"
    )
    rows = table("metric", "of", "mean", "p50", "p95", "max", "min")
    shown: dict[str, int] = {}
    for view in node.metrics:
        shown[view.metric] = shown.get(view.metric, 0) + 1
        statistics = view.statistics
        if statistics is None or shown[view.metric] > SHOWN_DEVICES:
            continue
        values = (
            statistics.mean,
            statistics.p50,
            statistics.p95,
            statistics.maximum,
            statistics.minimum,
        )
        rows.add_row(view.metric, view.device, *(in_unit(v, view.unit) for v in values))
    out.print(rows)
    for metric, count in shown.items():
        if count > SHOWN_DEVICES:
            out.print(
                f"[dim]{metric}: {count - SHOWN_DEVICES} of {count} devices omitted; "
                "`--json` lists all[/dim]"
            )
    for group, reason in node.metrics_missing.items():
        out.print(f"[dim]{group}: {escape(reason)}[/dim]")
    out.print()
