"""Sections of a report in a notebook: HTML, with charts by Matplotlib if it is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from stepscope.diagnosis import LEARNING_TITLE, Fix, Verdict
from stepscope.quantities import count, count_of, figure, percent
from stepscope.report.chart_tables import make_chart_table
from stepscope.report.drawing import draw_chart
from stepscope.views.profiling_report import (
    Block,
    Cell,
    Check,
    Column,
    Listing,
    Report,
    Section,
    Table,
    Text,
)

_CODE = re.compile(r"`([^`]+)`")
_SIGNS = {"warning": "▲ ", "missing": "<b>Not available.</b> "}


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
        return Shown("".join(_render_section(_build_head(report), level=1)))
    sections = {"verdict": _build_verdict(report.verdict)}
    sections |= {candidate.id: candidate for candidate in report.sections}
    return Shown("".join(_render_section(sections[section], level=2)))


def _build_head(report: Report) -> Section:
    scope = "The job is still running; this" if report.in_progress else "This"
    texts = (f"{scope} report covers the run until {report.until}.", report.about, report.notice)
    return Section(
        id="head",
        title=f"Profiling report of {report.run_id}",
        blocks=[*(Text(text=text) for text in texts), Listing(items=report.notes)],
    )


def _build_verdict(verdict: Verdict) -> Section:
    blocks: list[Block] = []
    if verdict.suspect != "insufficient_evidence":
        text = (
            f"{count_of(verdict.step_count, 'step')} measured. Confidence "
            f"{percent(verdict.confidence_ratio)}. Shares are of {verdict.share_of}. "
            f"{verdict.confidence_basis}"
        )
        blocks.append(Text(text=text))
    if verdict.phases:
        columns = [Column(label="phase"), Column(label="share", unit="%", digits=1)]
        shares: list[list[Cell]] = [
            [_name(phase), 100 * share] for phase, share in verdict.phases.items() if share
        ]
        blocks.append(Table(title="Step time by phase", columns=columns, rows=shares))
    if verdict.share_basis:
        blocks.append(Text(text=verdict.share_basis))
    lists = {
        "Evidence": [evidence.text for evidence in verdict.evidence[1:]],
        "Contributing causes": [f"{_name(also.cause)}: {also.text}" for also in verdict.also],
        "What to do": [_describe_fix(fix) for fix in verdict.fixes],
        "Expected after the fix": [target.text for target in verdict.targets],
        "Checked" if verdict.suspect == "healthy" else "Not the cause": [
            f"{_name(suspect.suspect)}: {suspect.why}" for suspect in verdict.ruled_out
        ],
        LEARNING_TITLE: [] if verdict.learning is None else verdict.learning.lines,
        "Notes": verdict.notes,
    }
    sections = [
        Section(id=title, title=title, blocks=[Listing(items=items)])
        for title, items in lists.items()
        if items
    ]
    return Section(id="verdict", title=verdict.headline, blocks=blocks, sections=sections)


def _describe_fix(fix: Fix) -> str:
    prediction = f" Predicted {fix.prediction.text}." if fix.prediction is not None else ""
    return f"{fix.title}: {fix.instructions}.{prediction} Reason: {fix.why}"


def _name(identifier: str) -> str:
    return identifier.replace("_", " ")


def _render_section(section: Section, *, level: int) -> Iterator[str]:
    yield f"<h{level}>{escape(section.title)}</h{level}>"
    for block in section.blocks:
        yield _render_block(block)
    for inner in section.sections:
        yield from _render_section(inner, level=min(level + 1, 4))


def _render_block(block: Block) -> str:
    match block:
        case Text():
            return f"<p>{_SIGNS.get(block.tone, '')}{_render_prose(block.text)}</p>"
        case Listing():
            items = "".join(f"<li>{_render_prose(item)}</li>" for item in block.items)
            return f"<ul>{items}</ul>" if items else ""
        case Check():
            return _render_check(block)
        case Table():
            body = _render_table(block)
        case _:
            body = draw_chart(block) or _render_table(make_chart_table(block))
    share_of, more = getattr(block, "share_of", None), getattr(block, "more", None)
    notes = [f"Shares of {share_of}." if share_of else "", f"… {more}." if more else ""]
    note = f"<p><small>{escape(' '.join(filter(None, notes)))}</small></p>" if any(notes) else ""
    return f"<p><b>{escape(block.title)}</b></p>{body}{note}"


def _render_prose(text: str) -> str:
    """Render text with code between backticks."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _render_check(check: Check) -> str:
    facts = {
        "datapoints": count(check.datapoints),
        "violations": count(check.violations),
        "triggered": count_of(check.triggered, "time"),
        **({"last triggered": check.last_at} if check.last_at else {}),
        **check.parameters,
    }
    text = f"{check.summary} {check.recommendation or ''}".strip()
    details = ", ".join(f"{escape(name)}: {escape(value)}" for name, value in facts.items())
    head = f"<b>{escape(check.rule)}</b> ({escape(check.status)})"
    return f"<p>{head} {_render_prose(text)}</p><p><small>{details}</small></p>"


def _render_table(table: Table) -> str:
    units = (f" [{column.unit}]" if column.unit else "" for column in table.columns)
    labels = [column.label + unit for column, unit in zip(table.columns, units, strict=True)]
    body = [
        [_format_cell(*pair) for pair in zip(row, table.columns, strict=True)] for row in table.rows
    ]
    rows = "".join(_render_row(row, "td") for row in body)
    return f"<table><thead>{_render_row(labels, 'th')}</thead><tbody>{rows}</tbody></table>"


def _render_row(cells: Iterable[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _format_cell(cell: Cell, column: Column) -> str:
    if cell is None or (not isinstance(cell, str) and column.digits is not None):
        return figure(cell, column.digits or 0)
    return str(cell)
