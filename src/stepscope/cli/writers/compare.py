"""The text of `stepscope compare`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from stepscope import comparison, quantities
from stepscope.cli.text import table, text_table
from stepscope.cli.writers.cost import write_before_after
from stepscope.cli.writers.generic import MIN_TEXT_WIDTH, cut, write_sentences
from stepscope.quantities import change

MAX_NAMES = 10
MAX_ROWS = 5
"""Limit of rows per part of the step."""
NAME_WIDTH = 60
SCALE_NOTE_THRESHOLD = 1.25
"""Scale factor above which, or below whose inverse, a note is shown."""


def write_comparison(out: Console, payload: comparison.Comparison) -> None:
    """Write what changed."""
    out.print(f"[bold]{escape(payload.headline)}[/bold]")
    for title, run in (("base", payload.base_run), ("run", payload.other_run)):
        out.print(f"[dim]{title:<5}[/dim] {escape(run_name(run))}: {escape(run.headline)}")
    write_sentences(out, payload.notes)
    if payload.steps is not None:
        _write_steps(out, payload.steps)
    if payload.contributions is not None:
        _write_contributions(out, payload.contributions)
    _write_figures(out, payload.figures, payload.figures_of)
    write_before_after(out, payload.before_after)
    _write_targets(out, payload.targets)
    _write_settings(out, payload.settings, payload.same_setting_count)
    _write_contract(out, payload.contract)
    for names in (payload.kernels, payload.operators):
        if names is not None:
            _write_names(out, names)
    if payload.names_missing is not None:
        out.print(escape(payload.names_missing))
    if payload.gate is not None:
        _write_gate(out, payload.gate)


def run_name(run: comparison.ComparedRun) -> str:
    """Return the name of a run, and the number of runs that it represents."""
    return run.name if run.of_runs == 1 else f"{run.name} (represents {run.of_runs} runs)"


def _write_steps(out: Console, steps: comparison.StepChanges) -> None:
    out.print()
    head, *cells = tabulate_steps(steps)
    rows = table(*head)
    for row in cells:
        rows.add_row(*row)
    out.print(rows)
    out.print(f"[dim]of {escape(steps.share_of)}; {escape(steps.noise)}[/dim]")


def tabulate_steps(steps: comparison.StepChanges) -> list[tuple[str, ...]]:
    """Return the rows of the table of steps and their parts, after its heading."""
    has_estimate = steps.noise_of != "steps"
    interval_heading = f"{steps.interval_percent}% interval"
    return [
        ("step", "base", "run", "change", "")
        + (("all runs",) if has_estimate else ())
        + (interval_heading, "noise floor", "beyond noise"),
        *(
            (word(row.name), *times_of(row), _share(row.change_ratio))
            + ((signed(row.estimate_ns),) if has_estimate else ())
            + (_interval(row), quantities.duration(row.noise_ns), _beyond_noise(row))
            for row in (*steps.figures, *steps.parts)
        ),
    ]


def _write_contributions(out: Console, contributions: comparison.Contributions) -> None:
    shown = [part for part in contributions.parts if part.rows and part.change_ns]
    for part in shown:
        _write_part(out, part)
    for remark in dict.fromkeys(part.split_of for part in shown if part.split_of):
        out.print(f"[dim]{escape(remark)}[/dim]")
    if contributions.missing is not None:
        out.print(f"[dim]{escape(contributions.missing)}[/dim]")


def _write_part(out: Console, part: comparison.PartContributions) -> None:
    out.print()
    rows = table(f"{word(part.part)} {signed(part.change_ns)}", "", "base", "run", "change")
    shown = [row for row in part.rows[:MAX_ROWS] if row.change_ns]
    for row in shown:
        rows.add_row(
            escape(cut(contribution_name(row), NAME_WIDTH)), status_of(row), *times_of(row)
        )
    rest_ns = part.change_ns - sum(row.change_ns for row in shown)
    rest = len(part.rows) - len(shown) + part.rest_count
    if rest and rest_ns:
        rows.add_row(f"{rest} others", "", "", "", signed(rest_ns))
    out.print(rows)
    scaled = scaling(part)
    if scaled is not None:
        out.print(f"[dim]{scaled}[/dim]")


def scaling(part: comparison.PartContributions) -> str | None:
    """Explain by how much traced times were scaled, None if the factors are close to 1."""
    scales = [scale for scale in (part.base_scale, part.other_scale) if scale is not None]
    if all(1 / SCALE_NOTE_THRESHOLD < scale < SCALE_NOTE_THRESHOLD for scale in scales):
        return None
    factors = " and ".join(f"{quantities.number(scale)}" for scale in scales)
    return f"Traced times are scaled by {factors} to match measured steps."


def _write_contract(out: Console, contract: Sequence[comparison.ContractTerms]) -> None:
    out.print()
    unlike = unlike_terms(contract)
    same = ", ".join(terms.group for terms in contract if terms.standing == "same")
    unknown = ", ".join(terms.group for terms in contract if terms.standing == "unknown")
    if not unlike:
        sentence = f"Work: no known difference; same: {same or 'n/a'}"
        out.print(sentence + (f"; unknown: {unknown}" if unknown else ""))
        return
    rows = text_table("different work", "", "base", "run")
    for terms, item in unlike:
        cells = (
            terms.group,
            item.name,
            item.base_value or quantities.MISSING,
            item.other_value or quantities.MISSING,
        )
        rows.add_row(*map(escape, cells))
    out.print(rows)


def unlike_terms(
    contract: Sequence[comparison.ContractTerms],
) -> list[tuple[comparison.ContractTerms, comparison.ContractDifference]]:
    """List the terms that differ between the runs, each with its group."""
    return [
        (terms, item)
        for terms in contract
        for item in terms.differences
        if item.standing == "different"
    ]


def _write_gate(out: Console, gate: comparison.Gate) -> None:
    out.print()
    for result in gate.conditions:
        out.print(f"{result.outcome:<8}{escape(result.condition)}: {escape(result.explanation)}")
    out.print(f"[bold]{escape(gate.explanation)}[/bold]")


def status_of(row: comparison.Contribution) -> str:
    """Return the status of a row; a remainder has none."""
    return "" if row.kind == "remainder" else word(row.status)


def contribution_name(row: comparison.Contribution) -> str:
    """Return the full name of a row, with its parents."""
    return " > ".join([*row.path, row.name])


def word(name: str) -> str:
    """Turn a field name into words."""
    return name.replace("_", " ")


def _write_figures(
    out: Console, figures: Sequence[comparison.FigureChange], figures_of: str
) -> None:
    if not figures:
        return
    out.print()
    rows = table("job", "base", "run", "change")
    for figure in figures:
        rows.add_row(
            escape(figure.name),
            _figure(figure, figure.base_value),
            _figure(figure, figure.other_value),
            _share(figure.change_ratio),
        )
    out.print(rows)
    out.print(f"[dim]of {escape(figures_of)}[/dim]")


def _write_targets(out: Console, targets: Sequence[comparison.TargetOutcome]) -> None:
    if not targets:
        return
    out.print()
    rows = text_table("expected after the fix", "base", "run", "reached")
    for target in targets:
        cells = (target.text, target.base_value, target.other_value)
        rows.add_row(*map(escape, cells), describe_outcome(target))
    out.print(rows)


def describe_outcome(target: comparison.TargetOutcome) -> str:
    """Say whether a target was reached."""
    return {True: "yes", False: "no", None: "unknown"}[target.is_reached]


def _write_settings(
    out: Console, settings: Sequence[comparison.SettingChange], same_count: int
) -> None:
    if not settings and not same_count:
        return
    out.print()
    if not settings:
        out.print(f"Settings: all {same_count} known settings are the same.")
        return
    rows = text_table("different setting", "base", "run")
    for setting in settings:
        name = f"{setting.group}: {setting.name}"
        rows.add_row(
            escape(name),
            escape(setting.base_value or quantities.MISSING),
            escape(setting.other_value or quantities.MISSING),
        )
    out.print(rows)
    out.print(f"[dim]{same_count} other settings are the same[/dim]")


def _write_names(out: Console, names: comparison.NameChanges) -> None:
    out.print()
    rows = table(names.time_of, "", "base", "run", "change")
    for row in names.rows[:MAX_NAMES]:
        rows.add_row(escape(cut(row.name, 2 * MIN_TEXT_WIDTH)), row.status, *times_of(row))
    rest_ns = names.rest_ns + sum(row.change_ns for row in names.rows[MAX_NAMES:])
    rest = names.rest_count + len(names.rows[MAX_NAMES:])
    if rest:
        rows.add_row(f"{rest} others", "", "", "", signed(rest_ns))
    rows.add_row("all", "", *times_of(names))
    out.print(rows)


def _figure(figure: comparison.FigureChange, value: float | None) -> str:
    return quantities.in_unit(value, figure.unit)


def times_of(
    row: comparison.StepChange
    | comparison.Contribution
    | comparison.NameChange
    | comparison.NameChanges,
) -> tuple[str, str, str]:
    """Return the time in both runs, and its change."""
    return (
        quantities.duration(row.base_ns),
        quantities.duration(row.other_ns),
        signed(row.change_ns),
    )


def signed(ns: float) -> str:
    return change(ns, "ns")


def _share(ratio: float | None) -> str:
    return quantities.relative_change(ratio, 0)


def _beyond_noise(change: comparison.StepChange) -> str:
    if change.noise_ns is None:
        return "too few steps"
    return "yes" if change.beyond_noise else "no"


def _interval(change: comparison.StepChange) -> str:
    if change.low_ns is None or change.high_ns is None:
        return quantities.MISSING
    return f"{signed(change.low_ns)} to {signed(change.high_ns)}"
