"""The text of `stepscope fleet`, in a terminal and as Markdown.

Both are made of the same sections. Columns of GPU-hours or core-hours that no run has are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from stepscope import fleet, quantities
from stepscope.cli.text import table
from stepscope.cli.writers.markdown import markdown_table, markdown_text
from stepscope.quantities import count, dollars, number, percent

MAX_ROWS = 20
"""Rows of a table in the terminal; JSON, CSV and Markdown have all of them."""


MAX_TEXT_LENGTH = 400


class _Section(NamedTuple):
    title: str
    columns: Sequence[str]
    """The first one is of names, the others of numbers."""
    rows: Sequence[Sequence[str]]
    note: str = ""


def write_fleet(out: Console, payload: fleet.Fleet) -> None:
    """Write what the runs of a fleet cost and waste."""
    out.print(f"[bold]{escape(payload.headline)}[/bold]")
    for note in payload.notes:
        out.print(f"[dim]{escape(note)}[/dim]")
    for section in _list_sections(payload):
        out.print()
        rows = table(*section.columns)
        rows.columns[0].header = section.title
        for row in section.rows[:MAX_ROWS]:
            rows.add_row(*map(escape, row))
        out.print(rows)
        rest = len(section.rows) - MAX_ROWS
        if rest > 0:
            out.print(f"[dim]{quantities.count_of(rest, 'more row')} with --json[/dim]")
        if section.note:
            out.print(f"[dim]{section.note}[/dim]")
    if payload.jobs:
        out.print("\n[dim]runs that waste most[/dim]")
    for job in payload.jobs:
        out.print(f"[bold]{escape(_name_job(job))}[/bold]  {escape(_describe_waste(job))}")
        out.print(f"    {escape(job.sentence)}")


def make_markdown(payload: fleet.Fleet) -> str:
    """Make the report as Markdown."""
    return "\n".join(_list_lines(payload)) + "\n"


def _list_lines(payload: fleet.Fleet) -> Iterator[str]:
    yield f"# Fleet: {_text(payload.root)}"
    yield ""
    if selected := _selection(payload):
        yield f"Runs {selected}."
        yield ""
    yield _text(payload.headline)
    yield ""
    for note in payload.notes:
        yield f"- {_text(note)}"
    for section in _list_sections(payload):
        yield ""
        yield f"## {section.title[0].upper()}{section.title[1:]}"
        yield ""
        yield from markdown_table(section.columns, section.rows)
        if section.note:
            yield section.note
    if payload.jobs:
        yield ""
        yield "## Runs that waste most"
        yield ""
    for position, job in enumerate(payload.jobs, 1):
        waste, sentence = _text(_describe_waste(job)), _text(job.sentence)
        yield f"{position}. **{_text(_name_job(job))}**: {waste}. {sentence}"


def _text(text: str) -> str:
    return markdown_text(text, MAX_TEXT_LENGTH)


def _selection(payload: fleet.Fleet) -> str:
    period = [
        f"{word} {datetime.fromtimestamp(moment / 1e3, UTC):%Y-%m-%d %H:%M} UTC"
        for word, moment in (("since", payload.since_ms), ("before", payload.until_ms))
        if moment is not None
    ]
    created = ["created", *period] if period else []
    tag = [] if payload.tag is None else [f"with the tag {_text(payload.tag)}"]
    return " ".join([*created, *tag])


def _list_sections(payload: fleet.Fleet) -> Iterator[_Section]:
    units = _Units(payload.total)
    if payload.classes:
        yield _Section(
            "class of time",
            ["class of time", *units.heads("of "), "runs", *units.heads(), "cost"],
            [
                [
                    row.title,
                    *units.choose(percent(row.gpu_ratio), percent(row.core_ratio)),
                    count(row.run_count),
                    *units.hours(row.amount),
                    dollars(row.amount.usd),
                ]
                for row in payload.classes
            ],
        )
        yield _Section(
            "bottleneck",
            ["bottleneck", "runs", *units.heads(), "cost", *units.heads("own ")],
            [
                [
                    row.title,
                    count(row.run_count),
                    *units.hours(row.amount),
                    dollars(row.amount.usd),
                    *units.hours(row.owned),
                ]
                for row in payload.causes
            ],
            "Hours and cost are of the whole runs; own hours are those of the bottleneck itself.",
        )
    if payload.fixes:
        yield _Section(
            "fix",
            ["fix", "runs", *units.heads("saves "), "saves", *units.heads("at most ")],
            [
                [
                    row.title,
                    count(row.run_count),
                    *units.hours(row.saved),
                    dollars(row.saved.usd),
                    *units.hours(row.bound),
                ]
                for row in payload.fixes
            ],
            "One fix per run, that with the largest predicted saving; bounds are not predictions.",
        )
    if payload.groups:
        yield _Section(
            payload.by,
            [payload.by, "runs", *units.heads(), "cost", *units.heads("wasted "), "wasted"],
            [
                [
                    row.name,
                    count(row.run_count),
                    *units.hours(row.amount),
                    dollars(row.amount.usd),
                    *units.hours(row.wasted),
                    dollars(row.wasted.usd),
                ]
                for row in payload.groups
            ],
        )


class _Units:
    """Units of hours that a fleet has."""

    def __init__(self, total: fleet.Amount) -> None:
        self._has_gpus, self._has_cores = total.gpu_hours > 0, total.core_hours > 0

    def choose(self, of_gpus: str, of_cores: str) -> Iterable[str]:
        """Choose the cells of the units that the fleet has."""
        return [
            text
            for text, is_present in ((of_gpus, self._has_gpus), (of_cores, self._has_cores))
            if is_present
        ]

    def heads(self, prefix: str = "") -> Iterable[str]:
        """Return the headings of hours."""
        return self.choose(f"{prefix}GPU-h", f"{prefix}core-h")

    def hours(self, amount: fleet.Amount) -> Iterable[str]:
        """Return the cells of hours."""
        return self.choose(number(amount.gpu_hours), number(amount.core_hours))


def _name_job(job: fleet.FleetJob) -> str:
    """Name a run by its title and its path, which commands take."""
    is_titled = job.name != job.id.rpartition("/")[2] and job.id != "."
    return f"{job.name} ({job.id})" if is_titled else job.id


def _describe_waste(job: fleet.FleetJob) -> str:
    """Describe the waste of a run: hours, share, money, and the fix."""
    is_gpu = job.amount.gpu_hours > 0
    wasted = job.wasted.gpu_hours if is_gpu else job.wasted.core_hours
    total = job.amount.gpu_hours if is_gpu else job.amount.core_hours
    parts = [
        f"{number(wasted)} of {number(total)} {'GPU' if is_gpu else 'core'}-hours "
        f"({percent(job.wasted_ratio)})"
    ]
    if job.wasted.usd is not None:
        parts.append(dollars(job.wasted.usd))
    parts.append(job.user)
    if job.fix is not None:
        parts.append(job.fix)
    return ", ".join(parts)
