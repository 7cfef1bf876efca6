"""The text of `job-time`: one bar over the time of the job, then its classes with functions."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.markup import escape

from stepscope import views
from stepscope.cli.text import bar, table
from stepscope.cli.writers import generic
from stepscope.quantities import count_of, duration, percent

CELLS = 72
MAX_FUNCTIONS = 3
MIN_FUNCTION_RATIO = 0.05
"""Functions with a smaller share of their class are left out."""
SYMBOLS = {
    "launch": "l",
    "importing": "i",
    "rendezvous": "w",
    "preparing": "p",
    "warm_up": "u",
    "steps": "█",
    "evaluation": "v",
    "checkpoints": "c",
    "between_epochs": "e",
    "between_steps": "b",
    "recording": "s",
    "finishing": "f",
    "stuck": "!",
    "down": "x",
    "repeated": "r",
    "not_seen": "?",
}
"""Symbol by class in the bar."""


def write_job_time(out: Console, payload: views.JobTimeView) -> None:
    """Write what a job spent its time on."""
    if payload.missing is not None:
        out.print(escape(payload.missing), soft_wrap=True)
        return
    so_far = "" if payload.is_final else " so far"
    ranks = f", {count_of(payload.rank_count, 'rank')}" if payload.rank_count > 1 else ""
    out.print(f"[bold]{duration(payload.duration_ns)}{so_far}[/bold]{ranks}")
    figures = {
        "goodput": percent(payload.goodput_ratio),
        "device goodput": percent(payload.device_goodput_ratio),
        "time to first step": duration(payload.first_step_ns),
    }
    out.print(", ".join(f"{name} {value}" for name, value in figures.items()))
    if payload.ranks:
        out.print(
            f"{_draw(payload.ranks[0], payload.duration_ns)}  [dim]{payload.ranks[0].name}[/dim]"
        )
    rows = table("", "class", "time", "share", "", "functions")
    rows.columns[-1].no_wrap, rows.columns[-1].justify = False, "left"
    for one in payload.classes:
        rows.add_row(
            SYMBOLS[one.key],
            one.title,
            duration(one.time_ns),
            percent(one.share_ratio),
            bar(one.share_ratio or 0.0),
            escape(_list_functions(one)),
        )
    out.print(rows)
    for restart in payload.restarts:
        out.print(_describe_restart(restart))
    generic.write_sentences(out, payload.not_seen)


def _draw(rank: views.JobRank, duration_ns: int) -> str:
    """Draw the time of a rank as one line; a cell shows the class with most of its time."""
    cells = [Counter[str]() for _ in range(CELLS)]
    width_ns = duration_ns / CELLS
    for piece in rank.intervals:
        end_ns = piece.start_ns + piece.duration_ns
        first = int(piece.start_ns / width_ns)
        for cell in range(first, min(CELLS, int(end_ns / width_ns) + 1)):
            inside = min(end_ns, (cell + 1) * width_ns) - max(piece.start_ns, cell * width_ns)
            cells[cell][piece.key] += round(max(0.0, inside))
    return "".join(SYMBOLS[cell.most_common(1)[0][0]] if cell else " " for cell in cells)


def _list_functions(one: views.JobClass) -> str:
    shown = [f for f in one.functions if (f.share_ratio or 0.0) >= MIN_FUNCTION_RATIO]
    return "; ".join(f"{f.title} {duration(f.total_ns)}" for f in shown[:MAX_FUNCTIONS])


def _describe_restart(restart: views.JobRestart) -> str:
    lost = (
        "the steps that it lost are unknown"
        if restart.steps_lost is None
        else f"{count_of(restart.steps_lost, 'step')} lost"
    )
    back = (
        "no step since"
        if restart.return_ns is None
        else f"back after {duration(restart.return_ns)}"
    )
    return (
        f"Restart at {duration(restart.died_ns)}: new process after {duration(restart.notice_ns)}, "
        f"{back}; {lost}."
    )
