"""The text of `stepscope compare`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import duration, percent, table
from stepscope.cli.writers.cost import write_before_after
from stepscope.cli.writers.generic import READABLE, cut
from stepscope.cli.writers.units import MISSING, text_of
from stepscope.views.compare import (
    Comparison,
    FigureChange,
    NameChanges,
    SettingChange,
    StepChange,
    StepChanges,
)

MOST_NAMES = 10


def write_comparison(out: Console, payload: Comparison) -> None:
    """Write what changed."""
    out.print(f"[bold]{escape(payload.headline)}[/bold]")
    for title, run in (("base", payload.base), ("run", payload.other)):
        out.print(f"[dim]{title:<5}[/dim] {escape(run.run_id)}: {escape(run.headline)}")
    if payload.steps is not None:
        _write_steps(out, payload.steps)
    elif payload.steps_missing is not None:
        out.print(escape(payload.steps_missing))
    _write_figures(out, payload.figures)
    write_before_after(out, payload.before_after)
    _write_settings(out, payload.settings, payload.same_setting_count)
    for names in (payload.kernels, payload.operators):
        if names is not None:
            _write_names(out, names)
    if payload.names_missing is not None:
        out.print(escape(payload.names_missing))


def _write_steps(out: Console, steps: StepChanges) -> None:
    out.print()
    rows = table("step", "base", "run", "change", "share", "95 % interval", "beyond noise")
    for change in (*steps.figures, *steps.parts):
        rows.add_row(
            change.name.replace("_", " "),
            duration(change.base_ns),
            duration(change.other_ns),
            _signed(change.change_ns),
            _share(change.change_ratio),
            _interval(change),
            "yes" if change.beyond_noise else "no",
        )
    out.print(rows)
    out.print(f"[dim]of {escape(steps.share_of)}; {escape(steps.noise)}[/dim]")


def _write_figures(out: Console, figures: Sequence[FigureChange]) -> None:
    if not figures:
        return
    out.print()
    rows = table("job", "base", "run", "change")
    for figure in figures:
        rows.add_row(
            escape(figure.name),
            _figure(figure, figure.base),
            _figure(figure, figure.other),
            _share(figure.change_ratio),
        )
    out.print(rows)


def _write_settings(out: Console, settings: Sequence[SettingChange], same_count: int) -> None:
    out.print()
    if not settings:
        out.print(f"All {same_count} things that are known of the two set-ups are the same.")
        return
    rows = table("set up differently", "base", "run")
    for column in rows.columns:
        column.justify, column.no_wrap = "left", False
    for each in settings:
        name = f"{each.group}: {each.name}"
        rows.add_row(escape(name), escape(each.base or MISSING), escape(each.other or MISSING))
    out.print(rows)
    out.print(f"[dim]{same_count} others are the same[/dim]")


def _write_names(out: Console, names: NameChanges) -> None:
    out.print()
    rows = table(names.time_of, "", "base", "run", "change")
    for row in names.rows[:MOST_NAMES]:
        rows.add_row(
            escape(cut(row.name, 2 * READABLE)),
            row.status,
            duration(row.base_ns),
            duration(row.other_ns),
            _signed(row.change_ns),
        )
    rest_ns = names.rest_ns + sum(row.change_ns for row in names.rows[MOST_NAMES:])
    rest = names.rest_count + len(names.rows[MOST_NAMES:])
    if rest:
        rows.add_row(f"{rest} others", "", "", "", _signed(rest_ns))
    rows.add_row(
        "all", "", duration(names.base_ns), duration(names.other_ns), _signed(names.change_ns)
    )
    out.print(rows)


def _figure(figure: FigureChange, value: float | None) -> str:
    if value is None:
        return MISSING
    if figure.unit in {"ns", "ratio", "bytes", "count"}:
        return text_of(figure.unit, value)
    return f"${value:,.2f}" if figure.unit == "usd" else f"{value:.3g}"


def _signed(ns: float) -> str:
    return f"{'+' if ns > 0 else '-' if ns < 0 else ''}{duration(abs(ns))}"


def _share(ratio: float | None) -> str:
    if ratio is None:
        return MISSING
    return f"{'-' if ratio < 0 else '+'}{percent(abs(ratio))}"


def _interval(change: StepChange) -> str:
    return f"{_signed(change.low_ns)} to {_signed(change.high_ns)}"
