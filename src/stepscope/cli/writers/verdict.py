"""Terminal text of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepscope import diagnosis, quantities
from stepscope.capture.trial import CHANGES
from stepscope.cli.output import locate, print_json, suggest
from stepscope.cli.text import bar, console
from stepscope.cli.writers.generic import write_doubts

MIN_PHASE_RATIO = 0.005
"""Smaller phases are not shown."""
MIN_NAME_WIDTH = 13
STEP_VIEWS = ("input-pipeline", "steps", "system")
"""Views that are suggested after a job."""
OTHER_VIEWS = ("overview", "system")
"""Views that are suggested after a job of which no step was recorded."""


def print_verdict(verdict: diagnosis.Verdict, location: str, *, as_json: bool) -> None:
    """Print the verdict of a run on stdout, as JSON or as text."""
    if as_json:
        print_json(verdict)
    else:
        write_verdict(console(location), verdict, location)


def print_job_verdict(verdict: diagnosis.Verdict, location: str | Path) -> None:
    """Print the verdict of a job that has ended on stderr, with the location of its run."""
    out = console(location, stderr=True)
    write_verdict(out, verdict, str(location))
    _write_location(out, location, STEP_VIEWS if verdict.step_count else OTHER_VIEWS)


def write_verdict(out: Console, verdict: diagnosis.Verdict, location: str = "RUN") -> None:
    """Write the verdict of a run as text."""
    if verdict.stuck is not None:
        write_stuck(out, verdict.stuck)
    write_doubts(out, verdict.doubts)
    out.print()
    out.print(Text(verdict.headline, style="bold"))
    _write_section(out, "Stages", diagnosis.list_stage_lines(verdict.job_stages))
    if verdict.job_stages:
        out.print()
    if verdict.suspect == "insufficient_evidence":
        _write_notes(out, verdict)
        return
    steps = (
        ""
        if verdict.mean_step_ns is None
        else f"{quantities.count_of(verdict.step_count, 'step')} measured, mean "
        f"{quantities.duration(verdict.mean_step_ns)}{_describe_base(verdict)}. "
    )
    out.print(
        f"[dim]{steps}Confidence {quantities.percent(verdict.confidence_ratio)}. "
        f"Shares are of {verdict.share_of}.[/dim]"
    )
    out.print()
    _write_phases(out, verdict)
    if verdict.suspect != "healthy":
        _write_stages(out, verdict)
    _write_section(out, "Evidence", [entry.text for entry in verdict.evidence[1:]])
    _write_section(
        out,
        "Checked" if verdict.suspect == "healthy" else "Other suspects",
        [f"{_capitalise(diagnosis.SUSPECT_NAMES[r.suspect])}: {r.why}" for r in verdict.ruled_out],
    )
    _write_section(
        out,
        "Contributing causes",
        [
            f"{_capitalise(diagnosis.name_cause(cause.cause))}"
            f"{_locate(cause) if cause.suspect != verdict.suspect else ''}: {cause.text}"
            for cause in verdict.also
        ],
    )
    _write_fixes(out, verdict, location)
    targets = [f"{_capitalise(target.text)}." for target in verdict.targets]
    _write_section(out, "Expected after the fix", targets)
    _write_notes(out, verdict)


def _describe_base(verdict: diagnosis.Verdict) -> str:
    """Describe the time that shares are of; '' where that is the mean step."""
    base_ns = verdict.bases_ns.get(verdict.share_of)
    if base_ns is None:
        return ""
    is_loop = verdict.share_of == diagnosis.LOOP_SHARE
    name = "with evaluation" if is_loop else "without waiting for cores"
    return f", {quantities.duration(base_ns)} {name}"


def _locate(cause: diagnosis.ContributingCause) -> str:
    """Name the suspect of a cause that is not that of the verdict, and its share."""
    share = quantities.percent(cause.share_ratio)
    return f" ({diagnosis.SUSPECT_NAMES[cause.suspect]}, {share} of {cause.share_of})"


def write_stuck(out: Console, stuck: diagnosis.StuckAccount) -> None:
    """Write at which collective a job is stuck or has failed, and where its ranks are."""
    out.print()
    out.print(Text(stuck.headline, style="bold yellow" if stuck.is_harmless else "bold red"))
    for line in stuck.lines:
        _write_item(out, Text(line))


def _write_phases(out: Console, verdict: diagnosis.Verdict) -> None:
    phases = [
        (entry.phase.replace("_", " "), entry)
        for entry in verdict.bars
        if entry.with_core_ratio + entry.without_core_ratio >= MIN_PHASE_RATIO
    ]
    width = max([MIN_NAME_WIDTH, *(len(name) for name, _ in phases)]) + 1
    for name, entry in phases:
        drawn = bar(entry.with_core_ratio, entry.without_core_ratio)
        out.print(f"  {name:<{width}}{drawn} {quantities.percent(entry.share_ratio):>4}")
    for sentence in (verdict.bars_basis, verdict.share_basis):
        if sentence:
            out.print(f"[dim]{sentence}[/dim]")


def _write_stages(out: Console, verdict: diagnosis.Verdict) -> None:
    if not verdict.stages:
        return
    out.print()
    out.print("[bold]Breakdown[/bold] [dim](shares of step time)[/dim]")
    for stage in verdict.stages:
        line = Text(f"  {quantities.percent(stage.share_ratio):>4}  {stage.name}")
        out.print(line.append(f"  {stage.detail}" if stage.detail else "", style="dim"))


def _write_fixes(out: Console, verdict: diagnosis.Verdict, location: str) -> None:
    """Write the fixes; consecutive fixes with the same evidence show it once."""
    if not verdict.fixes:
        return
    out.print()
    out.print("[bold]What to do[/bold]")
    previous_reason = ""
    for number, fix in enumerate(verdict.fixes, 1):
        _write_item(
            out, Text.assemble((fix.title, "bold"), f": {fix.instructions}"), mark=f"{number}."
        )
        if fix.prediction is not None:
            _write_item(out, Text(f"Predicted {fix.prediction.text}."), mark="  ")
        if fix.tried is not None:
            _write_item(out, Text(f"Tried: {fix.tried.text}."), mark="  ")
        elif fix.changes:
            out.print(Text(f"     Try it: {_write_command(fix, number, location)}"), soft_wrap=True)
        if fix.why != previous_reason:
            _write_item(out, Text(f"Reason: {fix.why}", style="dim"), mark="  ")
        previous_reason = fix.why


def _write_command(fix: diagnosis.Fix, number: int, location: str) -> str:
    """Return the command that tries a fix."""
    words = [locate(location), "--fix", str(number)]
    if any(CHANGES[change.name].results == "different" for change in fix.changes):
        words.append("--allow-different-results")
    return suggest("try", *words)


def _write_notes(out: Console, verdict: diagnosis.Verdict) -> None:
    if verdict.learning is not None:
        _write_section(out, diagnosis.LEARNING_TITLE, verdict.learning.lines)
    _write_section(out, "Notes", verdict.notes)


def _write_section(out: Console, title: str, lines: list[str]) -> None:
    if lines:
        out.print()
        out.print(f"[bold]{title}[/bold]")
        for line in lines:
            _write_item(out, Text(line))


def _write_item(out: Console, text: Text, *, mark: str = "-") -> None:
    """Write an item of a list; further lines start below the first word, not below the mark."""
    item = Table.grid()
    item.add_column(no_wrap=True)
    item.add_column(overflow="fold")
    item.add_row(f"  {mark} ", text)
    out.print(item)


def _write_location(out: Console, location: str | Path, views: Sequence[str]) -> None:
    out.print()
    out.print(Text.assemble(("run", "dim"), f"   {location}"), soft_wrap=True)
    for number, view in enumerate(views):
        title, command = "" if number else "more", suggest("show", locate(location), view)
        out.print(Text.assemble((f"{title:<4}", "dim"), f"  {command}"), soft_wrap=True)


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
