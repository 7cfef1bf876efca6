"""The text of `overview`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import table
from stepscope.cli.verdict_text import write_verdict
from stepscope.cli.writers.configuration import write_changes
from stepscope.cli.writers.generic import write_quality
from stepscope.quantities import count, count_of, duration, percent
from stepscope.views import Overview, RecordedWindow, Recording


def write_overview(out: Console, payload: Overview) -> None:
    """Write the job, its status, and the verdict."""
    out.print(f"[bold]{payload.run_id}[/bold]  {escape(' '.join(payload.command))}")
    versions = ", ".join(f"{name} {version}" for name, version in payload.versions.items())
    out.print(f"[dim]{versions}; git {payload.git_revision or 'none'}[/dim]")
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
            count_of(number, noun)
            for number, noun in (
                (incarnation.rank_count, "rank"),
                (incarnation.step_count, "step"),
            )
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
    write_quality(out, payload.quality)
    write_verdict(out, payload.verdict)


def _write_recordings(out: Console, recordings: Sequence[Recording]) -> None:
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


def _about(window: RecordedWindow) -> tuple[str, str, str]:
    """Return the reason, steps and contents of a window."""
    last = window.first_step + window.step_count - 1
    steps = f"{window.first_step} to {last}" if window.step_count else "none"
    return window.reason, steps, ", ".join([window.depth, *window.options])
