"""Sections of a report in a notebook: HTML, with charts by Matplotlib if it is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from stepscope.diagnosis import Fix, Verdict
from stepscope.quantities import percent
from stepscope.report.chart_tables import chart_table
from stepscope.report.drawing import draw
from stepscope.views.profiling_report import (
    Block,
    Cell,
    Chart,
    Check,
    Column,
    Listing,
    Missing,
    Report,
    Section,
    Table,
    Text,
)

MISSING = "n/a"


class Shown:
    """HTML fragment that a notebook displays."""

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        return self.html


def show(report: Report, section: str) -> Shown:
    """Render one section of a report.

    Args:
        section: the id of a section, `head` or `verdict`.

    Raises:
        KeyError: the report has no such section.
    """
    if section == "head":
        return Shown("".join(_head(report)))
    if section == "verdict":
        return Shown("".join(_verdict(report.verdict)))
    sections = {candidate.id: candidate for candidate in report.sections}
    return Shown("".join(_section(sections[section], level=2)))


def _head(report: Report) -> Iterator[str]:
    scope = "The job is still running; this" if report.in_progress else "This"
    yield f"<h1>Profiling report of {escape(report.run_id)}</h1>"
    yield f"<p><b>{scope} report covers the run until {escape(report.until)}.</b></p>"
    yield f"<p>{escape(report.about)}</p><p><small>{escape(report.notice)}</small></p>"
    yield _list(report.notes)


def _verdict(verdict: Verdict) -> Iterator[str]:
    yield f"<h2>{escape(verdict.headline)}</h2>"
    if verdict.suspect != "insufficient_evidence":
        yield (
            f"<p>{verdict.step_count:,} steps measured. Confidence "
            f"{percent(verdict.confidence_ratio)}. Shares are of {escape(verdict.share_of)}.</p>"
        )
    phases = Table(
        title="Step time by phase",
        columns=[Column(label="phase"), Column(label="share", unit="%", digits=1)],
        rows=[[name.replace("_", " "), 100 * share] for name, share in verdict.phases.items()],
    )
    yield _table(phases) if phases.rows else ""
    yield _titled("Evidence", [evidence.text for evidence in verdict.evidence[1:]])
    causes = [f"{cause.cause.replace('_', ' ')}: {cause.text}" for cause in verdict.also]
    yield _titled("Contributing causes", causes)
    yield _titled("What to do", [_fix_text(fix) for fix in verdict.fixes])
    yield _titled(
        "Checked" if verdict.suspect == "healthy" else "Not the cause",
        [f"{suspect.suspect.replace('_', ' ')}: {suspect.why}" for suspect in verdict.ruled_out],
    )
    yield _titled("Notes", verdict.notes)


def _fix_text(fix: Fix) -> str:
    prediction = f" Predicted {fix.prediction.text}." if fix.prediction is not None else ""
    return f"{fix.title}: {fix.instructions}.{prediction} Reason: {fix.why}"


def _section(section: Section, *, level: int) -> Iterator[str]:
    yield f"<h{level}>{escape(section.title)}</h{level}>"
    for block in section.blocks:
        yield _block(block)
    for inner in section.sections:
        yield from _section(inner, level=min(level + 1, 4))


def _block(block: Block) -> str:
    match block:
        case Text():
            sign = "▲ " if block.tone == "warning" else ""
            return f"<p>{sign}{escape(block.text)}</p>"
        case Listing():
            return _list(block.items)
        case Missing():
            return f"<p><b>Not available.</b> {escape(block.text)}</p>"
        case Check():
            return _check(block)
        case Table():
            return _table(block)
        case _:
            return _chart(block)


def _check(check: Check) -> str:
    facts = {
        "datapoints": f"{check.datapoints:,}",
        "violations": f"{check.violations:,}",
        "triggered": f"{check.triggered:,}",
        **({"last triggered": check.last_at} if check.last_at else {}),
        **{parameter.name: parameter.value for parameter in check.parameters},
    }
    sentences = (check.summary, check.skipped, check.recommendation)
    text = " ".join(sentence for sentence in sentences if sentence)
    details = ", ".join(f"{escape(name)}: {escape(value)}" for name, value in facts.items())
    head = f"<b>{escape(check.rule)}</b> ({escape(check.status)})"
    return f"<p>{head} {escape(text)}</p><p><small>{details}</small></p>"


def _chart(chart: Chart) -> str:
    picture = draw(chart)
    if picture is None:
        return _table(chart_table(chart))
    return f"<p><b>{escape(chart.title)}</b></p>{picture}{_notes(chart_table(chart))}"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(_heading(column))}</th>" for column in table.columns)
    body = "".join(
        f"<tr>{''.join(_cell(*pair) for pair in zip(row, table.columns, strict=True))}</tr>"
        for row in table.rows
    )
    rows = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p><b>{escape(table.title)}</b></p>{rows}{_notes(table)}"


def _heading(column: Column) -> str:
    return f"{column.label} [{column.unit}]" if column.unit else column.label


def _cell(cell: Cell, column: Column) -> str:
    if cell is None:
        text = MISSING
    elif isinstance(cell, str) or column.digits is None:
        text = str(cell)
    else:
        text = f"{cell:,.{column.digits}f}"
    return f"<td>{escape(text)}</td>"


def _notes(table: Table) -> str:
    shares = f"Shares of {table.share_of}." if table.share_of else ""
    more = f"… {table.more}." if table.more else ""
    return f"<p><small>{escape(f'{shares} {more}'.strip())}</small></p>" if shares or more else ""


def _titled(title: str, lines: Sequence[str]) -> str:
    return f"<h3>{escape(title)}</h3>{_list(lines)}" if lines else ""


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""
