"""The verdict as people read it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stepscope.cli.output import print_json
from stepscope.cli.text import bar, console, duration, percent
from stepscope.diagnosis import SUSPECT_NAMES, Verdict, diagnose
from stepscope.run import Run
from stepscope.store import open_run


def print_verdict(location: str | Path, *, as_json: bool, to_stderr: bool = False) -> Verdict:
    """Diagnose a run and print the verdict.

    Raises:
        StepscopeError: the run cannot be read.
    """
    verdict = diagnose(Run(open_run(location)))
    if as_json:
        print_json(verdict)
    else:
        write_verdict(console(stderr=to_stderr), verdict)
        if to_stderr:
            _say_run(console(stderr=True), location)
    return verdict


def write_verdict(out: Console, verdict: Verdict) -> None:
    """Write a verdict in prose."""
    out.print()
    out.print(Text(verdict.headline, style="bold"))
    if verdict.suspect == "insufficient_evidence":
        _write_notes(out, verdict)
        return
    out.print(
        f"[dim]{verdict.step_count} steps measured, {duration(verdict.mean_step_ns)} each on "
        f"average; confidence {percent(verdict.confidence_ratio)}; the share is of the "
        f"{verdict.share_of}[/dim]"
    )
    out.print()
    shown = {_words(name): share for name, share in verdict.phases.items() if share >= 0.005}
    width = max([13, *map(len, shown)]) + 1
    for name, share in shown.items():
        out.print(f"  {name:<{width}}{bar(share)} {percent(share):>5}")
    if verdict.suspect != "healthy":
        _write_stages(out, verdict)
    _write_section(out, "Evidence", [entry.text for entry in verdict.evidence[1:]])
    if verdict.ruled_out:
        out.print()
        out.print(f"[bold]{'Checked' if verdict.suspect == 'healthy' else 'Not the cause'}[/bold]")
        for other in verdict.ruled_out:
            _item(out, Text(f"{SUSPECT_NAMES[other.suspect]}: {other.why}"))
    _write_section(out, "Beside it", [f"{_words(o.cause)}: {o.text}" for o in verdict.also])
    if verdict.fixes:
        out.print()
        out.print("[bold]What to do[/bold]")
        said = ""
        for number, fix in enumerate(verdict.fixes, 1):
            _item(out, Text.assemble((fix.title, "bold"), f": {fix.how}"), mark=f"{number}.")
            if fix.prediction is not None:
                _item(out, Text(f"predicted: {fix.prediction.text}"), mark="  ")
            if fix.why != said:
                _item(out, Text(f"because {fix.why}", style="dim"), mark="  ")
            said = fix.why
    _write_notes(out, verdict)


def _write_stages(out: Console, verdict: Verdict) -> None:
    if not verdict.stages:
        return
    out.print()
    out.print("[bold]What it consists of[/bold] [dim](shares of the step)[/dim]")
    for stage in verdict.stages:
        line = Text(f"  {percent(stage.share_ratio):>5}  {stage.name}")
        out.print(line.append(f"  {stage.detail}" if stage.detail else "", style="dim"))


def _words(cause: str) -> str:
    return cause.replace("_", " ")


def _write_notes(out: Console, verdict: Verdict) -> None:
    _write_section(out, "Notes", verdict.notes)


def _write_section(out: Console, title: str, lines: list[str]) -> None:
    if lines:
        out.print()
        out.print(f"[bold]{title}[/bold]")
        for line in lines:
            _item(out, Text(line))


def _item(out: Console, text: Text, *, mark: str = "-") -> None:
    out.print(Padding(Text.assemble(f"{mark} ", text), (0, 0, 0, 2), expand=False))


def _say_run(out: Console, location: str | Path) -> None:
    out.print()
    out.print(Text.assemble(("run", "dim"), f"  {location}"), soft_wrap=True)
    out.print("[dim]more[/dim] stepscope show RUN input-pipeline, steps or system")
