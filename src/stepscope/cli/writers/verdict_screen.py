"""The verdict on one screen of a terminal: headline, bar, evidence and fixes, three of each.

`verdict` writes all of it. What changes the meaning of the rest comes first: doubts, the end of the
job, where it is stuck, memory that grows.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from stepscope import diagnosis, quantities
from stepscope.cli.output import locate, suggest
from stepscope.cli.text import console
from stepscope.cli.writers.generic import write_doubts
from stepscope.cli.writers.verdict import (
    MIN_PHASE_RATIO,
    choose_command,
    describe_base,
    describe_share_in_job,
    list_more_notes,
    write_death,
    write_item,
    write_memory_growth,
    write_stuck,
)

MIN_JOB_SAVING = 0.1
"""Fixes outside of the steps that save a smaller share of the job are not on the screen, unless the
job comes first."""
MAX_ITEMS = 3
"""Evidence, fixes and lines of output that are shown."""
_CELLS = "█▓▒░▚▖▞▝▙"
_WITHOUT_CELL = "·"
_COLOURS = {
    "data_wait": "bright_red", "h2d": "yellow", "forward": "bright_blue", "loss": "cyan",
    "backward": "blue", "optimizer": "magenta", "communication": "bright_yellow",
    "checkpoint": "green", "dispatch": "bright_cyan", "execution": "bright_blue",
}  # fmt: skip


def print_job_verdict(
    verdict: diagnosis.Verdict, location: str | Path, last_run: str | None = None
) -> None:
    """Print the verdict of a job that has ended on stderr, with the location of its run.

    Args:
        last_run: sentence that sets it beside the last run of the same command; None without one.
    """
    out = console(location, stderr=True)
    # The job has just printed its error output there.
    write_screen(out, verdict, str(location), max_output_lines=0)
    if last_run is not None:
        out.print(Text(last_run))
    out.print(Text.assemble(("run", "dim"), f"  {location}"), soft_wrap=True)


def write_screen(
    out: Console,
    verdict: diagnosis.Verdict,
    location: str = "RUN",
    *,
    max_output_lines: int = MAX_ITEMS,
) -> None:
    """Write the verdict of a run in about 20 lines of 80 columns.

    Args:
        max_output_lines: last lines of the error output of a job that failed.
    """
    write_doubts(out, [*verdict.doubts, *verdict.limitations])
    if verdict.death is not None:
        write_death(out, verdict.death, max_output_lines)
    if verdict.stuck is not None:
        write_stuck(out, verdict.stuck)
    if verdict.memory is not None and verdict.memory.is_growing:
        write_memory_growth(out, verdict.memory)
    out.print()
    out.print(Text(verdict.headline, style="bold"))
    if verdict.suspect == "insufficient_evidence":
        for note in list_more_notes(verdict)[:MAX_ITEMS]:  # they say what was not recorded
            write_item(out, Text(note))
        _write_job(out, verdict)
        _write_fixes(out, verdict)
        _write_learning(out, verdict)
        _write_rest(out, verdict, location)
        return
    _write_basis(out, verdict)
    if verdict.job is not None and verdict.job.is_first:
        _write_job(out, verdict)
    _write_bar(out, verdict)
    evidence = [entry.text for entry in verdict.evidence[1 : 1 + MAX_ITEMS]]
    if evidence:
        out.print()
    for text in evidence:
        write_item(out, Text(text))
    _write_fixes(out, verdict)
    if verdict.job is None or not verdict.job.is_first:
        _write_job(out, verdict)
    _write_learning(out, verdict)
    _write_rest(out, verdict, location)


def _write_learning(out: Console, verdict: diagnosis.Verdict) -> None:
    """Write the second verdict in a sentence, where it was asked for and finds an issue."""
    learning = verdict.learning
    if learning is not None and learning.state == "issue":
        out.print()
        out.print(Text.assemble((diagnosis.LEARNING_TITLE, "bold"), f" {learning.headline}"))


def _write_basis(out: Console, verdict: diagnosis.Verdict) -> None:
    steps = (
        ""
        if verdict.mean_step_ns is None
        else f"{quantities.count_of(verdict.step_count, 'step')}, mean "
        f"{quantities.duration(verdict.mean_step_ns)}{describe_base(verdict)}. "
    )
    confidence = quantities.percent(verdict.confidence_ratio)
    out.print(f"[dim]{steps}Confidence {confidence}. Shares are of {verdict.share_of}.[/dim]")


def _write_bar(out: Console, verdict: diagnosis.Verdict) -> None:
    """Write one bar of the phases, a line that names them, and one on waiting for cores."""
    phases = [
        entry
        for entry in verdict.bars
        if entry.with_core_ratio + entry.without_core_ratio >= MIN_PHASE_RATIO
    ]
    if not phases:
        return
    without_ratio = sum(entry.without_core_ratio for entry in phases)
    # Where shares are not of wall time, the time without a core is no part of any phase.
    is_apart = verdict.share_of in verdict.bases_ns
    pieces = [
        (
            entry.phase,
            entry.with_core_ratio + (0.0 if is_apart else entry.without_core_ratio),
            f"{entry.phase.replace('_', ' ')} {quantities.percent(entry.share_ratio)}",
        )
        for entry in phases
    ]
    has_waiting = without_ratio >= MIN_PHASE_RATIO
    if is_apart and has_waiting:
        pieces.append(("", without_ratio, ""))
    width = out.width - 4
    drawn, legend = Text("  "), Text("  ")
    sum_ratio, end = 0.0, 0
    for number, (phase, ratio, name) in enumerate(pieces):
        sum_ratio += ratio
        start, end = end, max(end, min(width, round(sum_ratio * width)))
        cell, colour = _CELLS[number % len(_CELLS)], _COLOURS.get(phase, "white")
        if not phase:
            cell, colour = _WITHOUT_CELL, "dim"
        drawn.append(cell * (end - start), style=colour)
        if name:
            legend.append(cell, style=colour).append(f" {name}   ")
    out.print()
    out.print(drawn)
    legend.rstrip()
    out.print(legend)
    if has_waiting:
        mark = f"{_WITHOUT_CELL} " if is_apart else ""
        relation = "which the shares leave out" if is_apart else "part of these phases"
        waiting = f"waiting for a core: {quantities.percent(without_ratio)} of step wall time"
        out.print(Text(f"  {mark}{waiting}, {relation}", style="dim"))


def _write_fixes(out: Console, verdict: diagnosis.Verdict) -> None:
    fixes = _list_fixes(verdict)[:MAX_ITEMS]
    if fixes:
        out.print()
        out.print("[bold]What to do[/bold]")
    for number, text in fixes:
        write_item(out, text, mark="- " if number is None else f"{number}.")


def _list_fixes(verdict: diagnosis.Verdict) -> list[tuple[int | None, Text]]:
    """List the fixes of the step with their numbers, and those of the job among them by what they
    save of it: all where the job comes first, otherwise the large ones."""
    job = verdict.job
    job_fixes = [] if job is None else job.fixes
    if job is not None and not job.is_first:
        job_fixes = [fix for fix in job_fixes if fix.saving_ratio >= MIN_JOB_SAVING]
    rest = [(fix.saving_ratio, _describe_job_fix(fix)) for fix in job_fixes]
    fixes: list[tuple[int | None, Text]] = []
    for number, fix in enumerate(verdict.fixes, 1):
        while rest and rest[0][0] >= (fix.job_saving_ratio or 0.0):
            fixes.append((None, rest.pop(0)[1]))
        fixes.append((number, _describe_fix(fix)))
    return [*fixes, *((None, text) for _, text in rest)]


def _describe_fix(fix: diagnosis.Fix) -> Text:
    text = Text(fix.title, style="bold")
    if fix.prediction is not None:
        at_most = "at most " if fix.prediction.is_bound else ""
        saving = quantities.percent(fix.prediction.saving_ratio)
        if saving == quantities.percent(0.0):
            text.append(": saves nothing by itself", style="not bold")
        else:
            text.append(f": saves {at_most}{saving} of the step", style="not bold")
            text.append(describe_share_in_job(fix), style="not bold")
    if fix.tried is not None:
        text.append(f"; tried: {fix.tried.text}", style="not bold")
    return text


def _describe_job_fix(fix: diagnosis.JobFix) -> Text:
    at_most = "at most " if fix.is_bound else ""
    saving = f": saves {at_most}{quantities.percent(fix.saving_ratio)} of the job"
    return Text(fix.title, style="bold").append(saving, style="not bold")


def _write_job(out: Console, verdict: diagnosis.Verdict) -> None:
    job = verdict.job
    if job is None:
        return
    parts = [part for part in job.parts if part.share_ratio >= MIN_PHASE_RATIO]
    shares = ", ".join(
        f"{part.title} {quantities.percent(part.share_ratio)}"
        + (_name_function(part) if not job.step_count else "")
        for part in parts
    )
    so_far = "" if job.is_final else " so far"
    out.print()
    title = f"Job, {quantities.duration(job.duration_ns)}{so_far}"
    out.print(Text.assemble((title, "bold"), f": {shares}." if shares else "."))


def _name_function(part: diagnosis.JobPart) -> str:
    """Name the longest function, which is all that is known of a job without steps."""
    if part.key != "preparing" or not part.functions or not part.functions[0].location:
        return ""
    return f" ({part.functions[0].name} {part.functions[0].location})"


def _write_rest(out: Console, verdict: diagnosis.Verdict, location: str) -> None:
    """Write the commands that lead on."""
    out.print()
    fixes = _list_fixes(verdict)
    for number in (number for number, _ in fixes[:MAX_ITEMS] if number is not None):
        fix = verdict.fixes[number - 1]
        if fix.changes and fix.tried is None:
            command = choose_command(fix, number, location)
            out.print(Text.assemble(("try", "dim"), f"  {command}"), soft_wrap=True)
            break
    command = suggest("diagnose", locate(location), "--all")
    counts = [
        quantities.count_of(len(items), *names)
        for items, *names in (
            (fixes[MAX_ITEMS:], "more fix", "more fixes"),
            (verdict.also, "contributing cause"),
            (list_more_notes(verdict), "note"),
        )
        if items
    ]
    rest = f"  ({', '.join(counts)})" if counts else ""
    out.print(Text.assemble(("all", "dim"), f"  {command}", (rest, "dim")), soft_wrap=True)
