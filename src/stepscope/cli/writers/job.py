"""The text of `overview`, `configuration`, `usage` and `system`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.markup import escape

from stepscope import quantities, store, views
from stepscope.cli.text import clock_time, table
from stepscope.cli.writers import generic
from stepscope.cli.writers.generic import MIN_TEXT_WIDTH, cut
from stepscope.cli.writers.verdict import write_verdict
from stepscope.quantities import count, count_of, duration, number, percent


def write_overview(out: Console, payload: views.Overview) -> None:
    """Write the job, its status, and the verdict."""
    location = getattr(out, "run", None)
    name = payload.run_id if location is None else store.run_name(location, payload.run_id)
    out.print(f"[bold]{escape(name)}[/bold]  {escape(' '.join(payload.command))}")
    versions = ", ".join(f"{name} {version}" for name, version in payload.versions.items())
    revision = payload.git_revision or "none"
    out.print(f"[dim]{versions}; git {revision}; run id {escape(payload.run_id)}[/dim]")
    for node in payload.nodes:
        parts = [node.node, str(node.state), duration(node.duration_ns)]
        if node.gpu_busy_ratio is not None:
            parts.append(f"GPU busy {percent(node.gpu_busy_ratio)}")
        if node.cpu_busy_ratio is not None:
            parts.append(f"CPU busy {percent(node.cpu_busy_ratio)}")
        if node.monitor_lost:
            parts.append("monitor lost")
        out.print("  ".join(parts) + (f"  [dim]{escape(node.reason)}[/dim]" if node.reason else ""))
    if payload.job is not None:
        out.print(escape(f"Job: {payload.job}"))
    for incarnation in payload.incarnations:
        ranks, steps = (
            quantities.count_of(number, noun)
            for number, noun in ((incarnation.rank_count, "rank"), (incarnation.step_count, "step"))
        )
        nodes = ", ".join(incarnation.nodes)
        out.print(escape(f"Incarnation {incarnation.number}: {steps}, {ranks} on {nodes}"))
    write_changes(out, payload.configuration_changes)
    if payload.recordings:
        _write_recordings(out, payload.recordings)
    if payload.devices:
        busy = payload.gpu_busy_ratio
        share = f"; busy {percent(busy)} of step time" if not payload.nodes and busy else ""
        out.print(escape(f"GPU: {', '.join(payload.devices)}{share}"))
    generic.write_quality(out, payload.quality)
    write_verdict(out, msgspec.structs.replace(payload.verdict, doubts=[]))  # they are above


def _write_recordings(out: Console, recordings: Sequence[views.Recording]) -> None:
    windows = any(recording.window is not None for recording in recordings)
    about_windows = ("opened", "steps", "holds") if windows else ()
    rows = table("recording", "rank", "duration", "events", "clock base", *about_windows)
    if windows:
        rows.columns[-1].no_wrap, rows.columns[-1].justify = False, "left"
    for recording in recordings:
        rows.add_row(
            escape(recording.name),
            "" if recording.rank is None else str(recording.rank),
            duration(recording.duration_ns),
            count(recording.event_count),
            "assumed" if recording.clock_base_ns is None else "stated",
            *(_about(recording.window) if recording.window is not None else ()),
        )
    out.print(rows)


def _about(window: views.RecordedWindow) -> tuple[str, str, str]:
    """Return the reason, steps and contents of a window."""
    last = window.first_step + window.step_count - 1
    steps = f"{window.first_step} to {last}" if window.step_count else "none"
    return window.reason, steps, ", ".join([window.depth, *window.options])


def write_configuration(out: Console, payload: views.ConfigurationView) -> None:
    """Write the configuration of a job, and its changes."""
    if payload.missing is not None:
        out.print(payload.missing)
        return
    other_rules = f" (not: {', '.join(payload.other_rules)})" if payload.other_rules else ""
    rows = {
        "sampling interval": duration(payload.interval_ns),
        "automatic windows": "on" if payload.automatic_windows else "off",
        "scheduled windows": "; ".join(payload.schedules) or "none",
        "rules": f"{', '.join(payload.rules)}{other_rules}" if payload.rules else "none",
        "parameters of rules": ", ".join(payload.parameters) or "defaults",
    }
    generic.write_entries(out, rows.items())
    write_changes(out, payload.changes)


def write_changes(out: Console, changes: Sequence[views.ChangedSetting]) -> None:
    """Write the changes of a configuration, one line each."""
    for change in changes:
        state = "" if change.state == "applied" else f"; {change.state}"
        reason = f": {change.reason}" if change.reason else ""
        text = f"{change.setting}: {change.before} → {change.after}"
        origin = f"by {change.by}{state}{reason}"
        out.print(f"{clock_time(change.changed_ns)}  {escape(text)}  [dim]{escape(origin)}[/dim]")


FIGURES = ("max", "p99", "p95", "p50", "min")


def write_usage(out: Console, payload: views.UsageView) -> None:
    """Write the job, the use of its nodes, and shares of its time."""
    generic.write_entries(out, payload.job.items())
    generic.write_sentences(out, payload.job_notes)
    out.print()
    generic.write_sentences(out, payload.node_notes)
    if payload.nodes:
        rows = table("node", "metric", *FIGURES)
        for row in payload.nodes:
            figures = (quantities.in_unit(getattr(row, figure), row.unit) for figure in FIGURES)
            rows.add_row(escape(row.node), row.metric, *figures)
        out.print(rows)
        out.print(f"[dim]of {escape(payload.nodes_of)}[/dim]")
    out.print()
    for shares in payload.framework:
        texts = (
            f"{cut(part.name, 2 * MIN_TEXT_WIDTH)} {percent(part.share_ratio)}"
            for part in shares.parts
        )
        parts = ", ".join(texts)
        out.print(f"{shares.title}: {escape(parts)} [dim]of {escape(shares.share_of)}[/dim]")
    generic.write_sentences(out, payload.framework_notes)
    generic.write_sentences(out, payload.missing_notes)


SHOWN_DEVICES = 8
"""Devices of one metric that are listed."""


def write_system(out: Console, payload: views.SystemView) -> None:
    """Write what every node was doing."""
    if payload.missing:
        out.print(payload.missing)
    for node in payload.nodes:
        _write_node(out, node)


def _write_node(out: Console, node: views.NodeView) -> None:
    gpus = f"{count_of(len(node.gpus), 'GPU')} ({node.gpus[0]})" if node.gpus else "no GPU found"
    parts = [node.cpu_model]
    if node.cores_total:  # files of other tools do not state it
        parts.append(f"{number(node.cores_available)} of {node.cores_total} cores")
    parts += [f"{quantities.memory(node.memory_bytes)} memory", gpus]
    out.print(f"[bold]{node.node}[/bold]  {', '.join(parts)}")
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
        rows.add_row(view.metric, view.device, *(quantities.in_unit(v, view.unit) for v in values))
    out.print(rows)
    for metric, device_count in shown.items():
        if device_count > SHOWN_DEVICES:
            out.print(
                f"[dim]{metric}: {device_count - SHOWN_DEVICES} of {device_count} devices omitted; "
                "`--json` lists all[/dim]"
            )
    for group, reason in node.metrics_missing.items():
        out.print(f"[dim]{group}: {escape(reason)}[/dim]")
    out.print()
