"""Terminal text of a verdict."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepscope import diagnosis, quantities
from stepscope.capture.trial import CHANGES
from stepscope.cli.output import locate, suggest
from stepscope.cli.text import bar, console
from stepscope.cli.writers.generic import write_doubts

MIN_PHASE_RATIO = 0.005
"""Smaller phases are not shown."""
MIN_NAME_WIDTH = 13
MAX_OUTPUT_LINES = 10
MIN_FUNCTION_RATIO = 0.25
"""Functions with a smaller share of a part of the job are not shown with it."""


def write_verdict(
    out: Console,
    verdict: diagnosis.Verdict,
    location: str = "RUN",
    *,
    max_output_lines: int = MAX_OUTPUT_LINES,
) -> None:
    """Write the verdict of a run as text.

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
    _write_section(out, "Stages", diagnosis.list_stage_lines(verdict.job_stages))
    if verdict.job_stages:
        out.print()
    if verdict.suspect == "insufficient_evidence":
        _write_job(out, verdict.job)
        _write_notes(out, verdict)
        return
    is_job_first = verdict.job is not None and verdict.job.is_first
    if is_job_first:
        _write_job(out, verdict.job)
        out.print()
    steps = (
        ""
        if verdict.mean_step_ns is None
        else f"{quantities.count_of(verdict.step_count, 'step')} measured, mean "
        f"{quantities.duration(verdict.mean_step_ns)}{describe_base(verdict)}. "
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
    if not is_job_first:
        _write_job(out, verdict.job)
    targets = [f"{_capitalise(target.text)}." for target in verdict.targets]
    _write_section(out, "Expected after the fix", targets)
    _write_notes(out, verdict)


def describe_base(verdict: diagnosis.Verdict) -> str:
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


def write_death(out: Console, death: diagnosis.Death, max_output_lines: int) -> None:
    """Write what ended a job, the evidence, what to do, and the last lines that it printed."""
    out.print()
    out.print(Text(death.headline, style="bold red"))
    for line in death.lines:
        write_item(out, Text(line))
    lines = death.output[-max_output_lines:] if max_output_lines else []
    if lines:
        out.print("[dim]Last lines of the error output:[/dim]")
    for line in lines:
        out.print(Text(f"    {line}", style="dim"), overflow="ellipsis", no_wrap=True)


def write_stuck(out: Console, stuck: diagnosis.StuckAccount) -> None:
    """Write where a job is stuck or has failed, and where its ranks or processes are."""
    out.print()
    out.print(Text(stuck.headline, style="bold yellow" if stuck.is_harmless else "bold red"))
    for line in stuck.lines:
        write_item(out, Text(line))


def print_states(states: diagnosis.ProcessStates) -> None:
    """Print on stdout what the processes of a job do at one moment."""
    out = console()
    style = "bold" if states.has_moved else "bold red"
    out.print(Text(states.headline, style=style))
    for process in states.processes:
        write_item(out, Text(process.text))
    for note in states.notes:
        out.print(Text(f"Not known: {note}.", style="dim"))


def write_memory_growth(out: Console, memory: diagnosis.MemoryAccount) -> None:
    """Write how host memory grows, and when it is full."""
    out.print()
    out.print(Text(memory.headline, style="bold yellow"))
    for line in memory.lines:
        write_item(out, Text(line))


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
        write_item(
            out, Text.assemble((fix.title, "bold"), f": {fix.instructions}"), mark=f"{number}."
        )
        if fix.prediction is not None:
            write_item(
                out,
                Text(f"Predicted {fix.prediction.text}{describe_share_in_job(fix)}."),
                mark="  ",
            )
        if fix.tried is not None:
            write_item(out, Text(f"Tried: {fix.tried.text}."), mark="  ")
        elif fix.changes:
            out.print(Text(f"     Try it: {choose_command(fix, number, location)}"), soft_wrap=True)
        if fix.why != previous_reason:
            write_item(out, Text(f"Reason: {fix.why}", style="dim"), mark="  ")
        previous_reason = fix.why


def describe_share_in_job(fix: diagnosis.Fix) -> str:
    """Describe what a fix saves of the whole job; '' where that is not known."""
    if fix.prediction is None or fix.job_saving_ratio is None:
        return ""
    at_most = "at most " if fix.prediction.is_bound else ""
    return f"; {at_most}{quantities.percent(fix.job_saving_ratio)} of the job"


def _write_job(out: Console, job: diagnosis.JobAccount | None) -> None:
    """Write what the time of the job went to, and what would save some of it."""
    if job is None:
        return
    first = job.first_step_ns
    start = "" if first is None else f", first step after {quantities.duration(first)}"
    planned = "" if job.planned_ns is None else f"; planned {quantities.duration(job.planned_ns)}"
    so_far = "from launch to exit" if job.is_final else "so far"
    out.print()
    out.print(
        f"[bold]Job[/bold] [dim]({quantities.duration(job.duration_ns)} {so_far}{start}{planned})"
        "[/dim]"
    )
    shown = [part for part in job.parts if _ratio_in_job(job, part) >= MIN_PHASE_RATIO]
    width = max((len(part.title) for part in shown), default=0) + 1
    for part in shown:
        ratio = _ratio_in_job(job, part)
        function = part.functions[0] if part.functions and part.key != "steps" else None
        if function is not None and function.time_ns < MIN_FUNCTION_RATIO * part.time_ns:
            function = None
        time = f"{quantities.duration(part.time_ns):>9}"
        if part.planned_ns is not None:
            time += f" {quantities.duration(part.planned_ns):>9}"
        name = "" if function is None else f"{function.name} {function.location}".rstrip()
        line = Text(f"  {part.title:<{width}}{bar(ratio)} {quantities.percent(ratio):>4} {time}")
        out.print(line.append(f"  {name}", style="dim"), overflow="ellipsis", no_wrap=True)
    for note in job.notes:
        out.print(f"[dim]{note}[/dim]")
    if job.fixes:
        out.print()
        out.print("[bold]What would shorten the job[/bold]")
    for fix in job.fixes:
        at_most = "at most " if fix.is_bound else ""
        saving = f"{quantities.duration(fix.saving_ns)}, {quantities.percent(fix.saving_ratio)}"
        write_item(out, Text.assemble((fix.title, "bold"), f": {fix.instructions}"))
        write_item(out, Text(f"Saves {at_most}{saving} of the job."), mark=" ")
        write_item(out, Text(f"Reason: {fix.why}", style="dim"), mark=" ")


def _ratio_in_job(job: diagnosis.JobAccount, part: diagnosis.JobPart) -> float:
    """Return the share of a part, of the planned job where there is one."""
    if part.planned_ns is not None and job.planned_ns:
        return part.planned_ns / job.planned_ns
    return part.share_ratio


def choose_command(fix: diagnosis.Fix, number: int, location: str) -> str:
    """Return the command that tries a fix."""
    words = [locate(location), "--fix", str(number)]
    if any(CHANGES[change.name].results == "different" for change in fix.changes):
        words.append("--allow-different-results")
    return suggest("try", *words)


def _write_notes(out: Console, verdict: diagnosis.Verdict) -> None:
    if verdict.learning is not None:
        _write_section(out, diagnosis.LEARNING_TITLE, verdict.learning.lines)
    if verdict.memory is not None and not verdict.memory.is_growing:
        _write_section(out, "Memory", [verdict.memory.headline, *verdict.memory.lines])
    _write_section(out, "Notes", list_more_notes(verdict))


def list_more_notes(verdict: diagnosis.Verdict) -> list[str]:
    """List the notes that are not said first."""
    return [note for note in verdict.notes if note not in verdict.limitations]


def _write_section(out: Console, title: str, lines: list[str]) -> None:
    if lines:
        out.print()
        out.print(f"[bold]{title}[/bold]")
        for line in lines:
            write_item(out, Text(line))


def write_item(out: Console, text: Text, *, mark: str = "-") -> None:
    """Write an item of a list; further lines start below the first word, not below the mark."""
    item = Table.grid()
    item.add_column(no_wrap=True)
    item.add_column(overflow="fold")
    item.add_row(f"  {mark} ", text)
    out.print(item)


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
