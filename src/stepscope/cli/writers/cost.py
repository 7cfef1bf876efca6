"""The text of `stepscope cost`, and of the table before and after in `stepscope compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape

from stepscope import comparison, cost, diagnosis, quantities
from stepscope.cli.text import table
from stepscope.quantities import dollars, percent


def write_cost(out: Console, payload: cost.Cost) -> None:
    """Write the cost of a run."""
    for note in payload.damage:
        out.print(f"damaged: {escape(note)}")
    if payload.rounding is not None:
        out.print(f"[dim]{escape(payload.rounding)}[/dim]")
    if payload.price is None:
        out.print(f"No price: {escape(payload.price_missing or '')}.")
    else:
        hour = dollars(payload.price.usd_per_hour)
        out.print(
            f"[bold]{dollars(payload.job_usd)}[/bold] for {payload.instance_count} x {hour} an "
            f"hour x {quantities.duration(payload.duration_ns)} "
            f"({quantities.number(payload.machine_hours)} instance-hours)"
        )
        out.print(f"[dim]{escape(payload.price.origin)}[/dim]")
        if payload.price.source is not None:
            out.print(f"[dim]{escape(payload.price.source)}[/dim]", soft_wrap=True)
    _write_classes(out, payload)
    _write_units(out, payload)
    _write_suspect(out, payload)
    if payload.right_sizing is not None:
        _write_sizes(out, payload.right_sizing)


def write_before_after(out: Console, payload: comparison.BeforeAfter) -> None:
    """Write the gain of a change."""
    if not payload.rows and not payload.notes:
        return
    out.print()
    if payload.rows:
        rows = table("before and after", "", "change")
        for row in payload.rows:
            rows.add_row(escape(row.name), row.text, row.change_text or quantities.MISSING)
        out.print(rows)
    gains = list(_gains(payload))
    if gains:
        out.print("; ".join(gains))
    prices = {p.origin for p in (payload.before_price, payload.after_price) if p is not None}
    for note in (*sorted(prices), *payload.notes):
        out.print(f"[dim]{escape(note)}[/dim]")


def _gains(payload: comparison.BeforeAfter) -> Iterator[str]:
    """Yield the gains of a change, each with the whole it refers to."""
    if payload.speed_up is not None:
        yield f"{quantities.multiple(payload.speed_up)} speedup by the {payload.speed_up_by}"
    scope = (
        "the run"
        if payload.epoch_count is None
        else f"{quantities.count(payload.epoch_count)} epochs"
    )
    if payload.saved_hours is not None:
        yield f"{quantities.number(payload.saved_hours)} instance-hours of {scope} saved"
    if payload.saved_usd is not None:
        share = "" if payload.saving_ratio is None else f" ({percent(payload.saving_ratio, 1)})"
        yield f"{dollars(payload.saved_usd)} of {scope} saved{share}"


def _write_classes(out: Console, payload: cost.Cost) -> None:
    if not payload.classes:
        return
    rows = table("the job's time", "takes", "share", "costs")
    for part in payload.classes:
        rows.add_row(
            part.title,
            quantities.duration(part.time_ns),
            percent(part.share_ratio),
            dollars(part.usd),
        )
    out.print(rows)


def _write_units(out: Console, payload: cost.Cost) -> None:
    rows = table("cost of", "takes", "costs")
    rows.add_row("an hour", "1 h", dollars(payload.hour_usd))
    rows.add_row("a step", quantities.duration(payload.step_ns), dollars(payload.step_usd))
    if payload.evaluated_step_ns is not None:
        rows.add_row(
            "a step with its evaluation",
            quantities.duration(payload.evaluated_step_ns),
            dollars(payload.evaluated_step_usd),
        )
    if payload.epoch is not None:
        rows.add_row(
            "an epoch", quantities.duration(payload.epoch.mean_ns), dollars(payload.epoch.usd)
        )
    if payload.samples_per_step is not None:
        rows.add_row("a million samples", "", dollars(payload.million_samples_usd))
    for projection in payload.projections:
        rows.add_row(
            escape(projection.name),
            quantities.duration(projection.duration_ns),
            dollars(projection.usd),
        )
    out.print()
    out.print(rows)
    for subject, reason in (("epoch", payload.epoch_missing), ("samples", payload.samples_missing)):
        if reason is not None:
            out.print(f"[dim]{subject}: {escape(reason)}[/dim]")


def _write_suspect(out: Console, payload: cost.Cost) -> None:
    out.print()
    if payload.suspect is None:
        if payload.suspect_missing is not None:
            out.print(escape(payload.suspect_missing))
        return
    suspect = payload.suspect
    rows = table("worth", "share", "of", "a step", "an hour", "this run's training")
    rows.add_row(
        escape(suspect.name),
        percent(suspect.share_ratio),
        _whole(suspect.share_of),
        *(dollars(usd) for usd in (suspect.step_usd, suspect.hour_usd, suspect.training_usd)),
    )
    for fix in payload.fixes:
        rows.add_row(
            escape(fix.title),
            f"{'at most ' if fix.is_bound else ''}{percent(fix.saving_ratio)}",
            _whole(fix.share_of),
            *(dollars(usd) for usd in (fix.step_usd, fix.hour_usd, fix.training_usd)),
        )
    rows.columns[0].no_wrap = False
    out.print(rows)
    if not payload.fixes:
        return
    out.print("[dim]Savings are predictions for each fix alone and do not add up.[/dim]")
    for condition, titles in _by_condition(payload.fixes).items():
        out.print(f"[dim]- {escape(', '.join(titles))}: if {escape(condition)}[/dim]")


def _by_condition(fixes: Sequence[cost.FixSaving]) -> dict[str, list[str]]:
    """Group titles of fixes by the condition of their prediction."""
    titles: dict[str, list[str]] = {}
    for fix in fixes:
        titles.setdefault(fix.condition, []).append(fix.title)
    return titles


def _whole(share_of: str) -> str:
    """Return the whole of a share, in the words of the rows above."""
    return "step with its evaluation" if share_of == diagnosis.LOOP_SHARE else "step"


def _write_sizes(out: Console, advice: cost.RightSizing) -> None:
    out.print()
    out.print(f"[bold]{escape(advice.headline)}[/bold]")
    if advice.choices:
        rows = table("instead", "this run", "saves", "GPU p95", "CPU mean", "memory", "GPU memory")
        for choice in advice.choices:
            rows.add_row(
                f"{choice.instance_count} x {escape(choice.instance_type)}",
                dollars(choice.job_usd),
                f"{dollars(choice.saving_usd)} ({percent(choice.saving_ratio, 1)})",
                percent(choice.gpu_p95_ratio),
                percent(choice.cpu_mean_ratio),
                percent(choice.memory_ratio),
                percent(choice.gpu_memory_ratio),
            )
        out.print(rows)
    origins = [choice.price_origin for choice in advice.choices[:1]]
    cautions = [
        f"{choice.instance_count} x {choice.instance_type}: {choice.caution}"
        for choice in advice.choices
        if choice.caution is not None
    ]
    for line in (
        *cautions,
        *advice.evidence,
        *(f"if {choice}" for choice in advice.assumptions),
        *origins,
    ):
        out.print(f"[dim]- {escape(line)}[/dim]")
