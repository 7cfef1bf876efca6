"""The text of `stepscope compare`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import duration, percent, table
from stepscope.cli.writers.cost import write_before_after
from stepscope.cli.writers.generic import READABLE, cut
from stepscope.cli.writers.units import MISSING, text_of
from stepscope.comparison import (
    ComparedRun,
    Comparison,
    ContractDifference,
    ContractTerms,
    Contribution,
    Contributions,
    FigureChange,
    Gate,
    NameChanges,
    PartContributions,
    SettingChange,
    StepChange,
    StepChanges,
)

MOST_NAMES = 10
MOST_ROWS = 5
"""Of a part of the step."""
NAME_WIDTH = 60
FAR_SCALE = 1.25
"""Recorded times that are scaled by more than this, or its inverse, are said to be."""


def write_comparison(out: Console, payload: Comparison) -> None:
    """Write what changed."""
    out.print(f"[bold]{escape(payload.headline)}[/bold]")
    for title, run in (("base", payload.base_run), ("run", payload.other_run)):
        out.print(f"[dim]{title:<5}[/dim] {escape(run_name(run))}: {escape(run.headline)}")
    for note in payload.notes:
        out.print(escape(note))
    if payload.steps is not None:
        _write_steps(out, payload.steps)
    elif payload.steps_missing is not None:
        out.print(escape(payload.steps_missing))
    if payload.contributions is not None:
        _write_contributions(out, payload.contributions)
    _write_figures(out, payload.figures, payload.figures_of)
    write_before_after(out, payload.before_after)
    _write_settings(out, payload.settings, payload.same_setting_count)
    _write_contract(out, payload.contract)
    for names in (payload.kernels, payload.operators):
        if names is not None:
            _write_names(out, names)
    if payload.names_missing is not None:
        out.print(escape(payload.names_missing))
    if payload.gate is not None:
        _write_gate(out, payload.gate)


def run_name(run: ComparedRun) -> str:
    """The run, and for how many it stands."""
    return run.run_id if run.of_runs == 1 else f"{run.run_id} (stands for {run.of_runs} runs)"


def _write_steps(out: Console, steps: StepChanges) -> None:
    out.print()
    held = f"{steps.interval_percent} % interval"
    several = ("all runs",) if steps.noise_of != "steps" else ()
    rows = table("step", "base", "run", "change", "", *several, held, "noise floor", "beyond it")
    for change in (*steps.figures, *steps.parts):
        rows.add_row(
            word(change.name),
            duration(change.base_ns),
            duration(change.other_ns),
            signed(change.change_ns),
            share(change.change_ratio),
            *(signed(change.estimate_ns) for _ in several),
            interval(change),
            duration(change.noise_ns),
            beyond_noise(change, yes="yes"),
        )
    out.print(rows)
    out.print(f"[dim]of {escape(steps.share_of)}; {escape(steps.noise)}[/dim]")


def _write_contributions(out: Console, found: Contributions) -> None:
    shown = [part for part in found.parts if part.rows and part.change_ns]
    for part in shown:
        _write_part(out, part)
    for remark in dict.fromkeys(part.split_of for part in shown if part.split_of):
        out.print(f"[dim]{escape(remark)}[/dim]")
    if found.missing is not None:
        out.print(f"[dim]{escape(found.missing)}[/dim]")


def _write_part(out: Console, part: PartContributions) -> None:
    out.print()
    rows = table(f"{word(part.part)} {signed(part.change_ns)}", "", "base", "run", "change")
    shown = [row for row in part.rows[:MOST_ROWS] if row.change_ns]
    for row in shown:
        rows.add_row(
            escape(cut(contribution_name(row), NAME_WIDTH)),
            status_of(row),
            duration(row.base_ns),
            duration(row.other_ns),
            signed(row.change_ns),
        )
    rest_ns = part.change_ns - sum(row.change_ns for row in shown)
    rest = len(part.rows) - len(shown) + part.rest_count
    if rest and rest_ns:
        rows.add_row(f"{rest} others", "", "", "", signed(rest_ns))
    out.print(rows)
    scaled = scaling(part)
    if scaled is not None:
        out.print(f"[dim]{scaled}[/dim]")


def scaling(part: PartContributions) -> str | None:
    """What recorded times were multiplied by, where that is much; None where it is little."""
    scales = [scale for scale in (part.base_scale, part.other_scale) if scale is not None]
    if all(1 / FAR_SCALE < scale < FAR_SCALE for scale in scales):
        return None
    said = " and ".join(f"{scale:.2f}" for scale in scales)
    return f"recorded times are multiplied by {said}, to be those of measured steps"


def _write_contract(out: Console, contract: Sequence[ContractTerms]) -> None:
    out.print()
    unlike = unlike_terms(contract)
    same = ", ".join(each.group for each in contract if each.standing == "same")
    unknown = ", ".join(each.group for each in contract if each.standing == "unknown")
    if not unlike:
        said = f"the same work as far as is known: {same or 'nothing is'}"
        out.print(said + (f"; not known: {unknown}" if unknown else ""))
        return
    rows = table("not the same work", "", "base", "run")
    for column in rows.columns:
        column.justify, column.no_wrap = "left", False
    for each, item in unlike:
        cells = (each.group, item.name, item.base_value or MISSING, item.other_value or MISSING)
        rows.add_row(*map(escape, cells))
    out.print(rows)


def unlike_terms(
    contract: Sequence[ContractTerms],
) -> list[tuple[ContractTerms, ContractDifference]]:
    """What both runs say of their work, and say differently, with the group that it is of."""
    return [
        (each, item)
        for each in contract
        for item in each.differences
        if item.standing == "different"
    ]


def _write_gate(out: Console, gate: Gate) -> None:
    out.print()
    for result in gate.conditions:
        out.print(f"{result.outcome:<8}{escape(result.condition)}: {escape(result.explanation)}")
    out.print(f"[bold]{escape(gate.explanation)}[/bold]")


def status_of(row: Contribution) -> str:
    """What to call a row's change; a remainder is only a sum."""
    return "" if row.kind == "remainder" else word(row.status)


def contribution_name(row: Contribution) -> str:
    """What a row is of, below whom."""
    return " > ".join([*row.path, row.name])


def word(name: str) -> str:
    """A name of ours in words."""
    return name.replace("_", " ")


def _write_figures(out: Console, figures: Sequence[FigureChange], figures_of: str) -> None:
    if not figures:
        return
    out.print()
    rows = table("job", "base", "run", "change")
    for figure in figures:
        rows.add_row(
            escape(figure.name),
            _figure(figure, figure.base_value),
            _figure(figure, figure.other_value),
            share(figure.change_ratio),
        )
    out.print(rows)
    out.print(f"[dim]of {escape(figures_of)}[/dim]")


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
        rows.add_row(
            escape(name), escape(each.base_value or MISSING), escape(each.other_value or MISSING)
        )
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
            signed(row.change_ns),
        )
    rest_ns = names.rest_ns + sum(row.change_ns for row in names.rows[MOST_NAMES:])
    rest = names.rest_count + len(names.rows[MOST_NAMES:])
    if rest:
        rows.add_row(f"{rest} others", "", "", "", signed(rest_ns))
    rows.add_row(
        "all", "", duration(names.base_ns), duration(names.other_ns), signed(names.change_ns)
    )
    out.print(rows)


def _figure(figure: FigureChange, value: float | None) -> str:
    if value is None:
        return MISSING
    if figure.unit in {"ns", "ratio", "bytes", "count"}:
        return text_of(figure.unit, value)
    return f"${value:,.2f}" if figure.unit == "usd" else f"{value:.3g}"


def signed(ns: float) -> str:
    return f"{'+' if ns > 0 else '-' if ns < 0 else ''}{duration(abs(ns))}"


def share(ratio: float | None) -> str:
    if ratio is None:
        return MISSING
    return f"{'-' if ratio < 0 else '+'}{percent(abs(ratio))}"


def beyond_noise(change: StepChange, *, yes: str) -> str:
    if change.noise_ns is None:
        return "too few steps"
    return yes if change.beyond_noise else "no"


def interval(change: StepChange) -> str:
    if change.low_ns is None or change.high_ns is None:
        return MISSING
    return f"{signed(change.low_ns)} to {signed(change.high_ns)}"
