"""The text of `usage`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import table
from stepscope.cli.writers.generic import MIN_TEXT_WIDTH, cut, write_entries, write_sentences
from stepscope.quantities import in_unit, percent
from stepscope.views import UsageView

FIGURES = ("max", "p99", "p95", "p50", "min")


def write_usage(out: Console, payload: UsageView) -> None:
    """Write the job, the use of its nodes, and shares of its time."""
    write_entries(out, payload.job.items())
    write_sentences(out, payload.job_notes)
    out.print()
    write_sentences(out, payload.node_notes)
    if payload.nodes:
        rows = table("node", "metric", *FIGURES)
        for row in payload.nodes:
            figures = (in_unit(getattr(row, figure), row.unit) for figure in FIGURES)
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
    write_sentences(out, payload.framework_notes)
    write_sentences(out, payload.missing_notes)
