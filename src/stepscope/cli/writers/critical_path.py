"""The text of `critical-path` and `what-if`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope import views
from stepscope.cli.text import bar, table
from stepscope.cli.writers import generic
from stepscope.quantities import count_of, duration, number, percent


def write_critical_path(out: Console, payload: views.CriticalPathView) -> None:
    """Write what the time of steps consists of along the critical path."""
    _write_missing(out, payload.missing)
    for index, one in enumerate(payload.paths):
        if index:
            out.print()
        _write_head(out, one)
        rows = table("on the critical path", "per step", "share", "")
        for share in one.shares:
            rows.add_row(
                share.category,
                duration(share.step_ns),
                percent(share.share_ratio),
                bar(share.share_ratio or 0.0),
            )
        out.print(rows)
        if one.ranks:
            ranks = ", ".join(f"rank {row.rank} {percent(row.share_ratio)}" for row in one.ranks)
            out.print(f"[bold]in[/bold] {ranks}")
        listed = table("work on it", "kind", "time of", "count per step", "per step", "share")
        for row in one.activities:
            rank = "" if row.rank is None or not one.ranks else f" of rank {row.rank}"
            listed.add_row(
                escape(row.name),
                f"{row.kind}{rank}",
                row.category,
                number(row.count_per_step),
                duration(row.step_ns),
                percent(row.share_ratio),
            )
        out.print(listed)
        _write_notes(out, one.notes)
    generic.write_quality(out, payload.quality)
    if payload.paths:
        out.print(f"[dim]Shares of {payload.share_of}.[/dim]")


def write_what_if(out: Console, payload: views.WhatIfView) -> None:
    """Write how long steps would take with fixes."""
    _write_missing(out, payload.missing)
    for index, one in enumerate(payload.recordings):
        if index:
            out.print()
        _write_head(out, one)
        saving = [row for row in one.fixes if row.reason is None]
        if saving:
            rows = table("fix", "saving", "step", "if", "then mostly")
            for column in rows.columns[-2:]:
                column.no_wrap, column.justify = False, "left"
            for row in saving:
                rows.add_row(
                    row.fix,
                    f"{percent(row.saving_ratio)} ± {percent(row.error_ratio)}",
                    duration(row.step_ns),
                    escape(row.condition),
                    f"{row.rest_category} {percent(row.rest_ratio)}" if row.rest_category else "",
                )
            out.print(rows)
        reasons: dict[str, list[str]] = {}
        for row in one.fixes:
            if row.reason is not None:
                reasons.setdefault(row.reason, []).append(row.fix)
        for reason, names in reasons.items():
            out.print(f"[dim]No saving by {', '.join(names)}: {escape(reason)}.[/dim]")
        _write_notes(out, one.notes)
    generic.write_quality(out, payload.quality)
    if payload.recordings:
        out.print(f"[dim]Savings are of {payload.share_of}.[/dim]")


def _write_head(out: Console, one: views.CriticalPathOf | views.WhatIfOf) -> None:
    steps, error = count_of(one.step_count, "step"), one.replay_error_ratio
    out.print(
        f"[bold]{escape(', '.join(one.traces))}[/bold]: {steps}, mean {duration(one.step_ns)}; "
        f"the replay differs by {percent(None if error is None else abs(error))}"
    )


def _write_missing(out: Console, missing: str | None) -> None:
    if missing is not None:
        out.print(escape(missing[:1].upper() + missing[1:]) + ".")


def _write_notes(out: Console, notes: list[str]) -> None:
    for note in notes:
        out.print(f"[dim]{escape(note[:1].upper() + note[1:])}.[/dim]")
