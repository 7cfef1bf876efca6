"""Sections of a report in a notebook: HTML, with charts by Matplotlib or as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from stepscope import diagnosis, quantities, schema
from stepscope.quantities import figure
from stepscope.report.drawing import draw_chart
from stepscope.views import profiling_report

_CODE = re.compile(r"`([^`]+)`")
_SIGNS = {"warning": "▲ ", "missing": "<b>Not available.</b> "}


class Shown:
    """HTML fragment that a notebook displays."""

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        return self.html


def show(report: profiling_report.Report, section: str) -> Shown:
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


def _build_head(report: profiling_report.Report) -> profiling_report.Section:
    scope = "The job is still running; this" if report.in_progress else "This"
    texts = (f"{scope} report covers the run until {report.until}.", report.about, report.notice)
    return profiling_report.Section(
        id="head",
        title=f"Profiling report of {report.name}",
        blocks=[
            *(profiling_report.Text(text=text) for text in texts),
            profiling_report.Listing(items=report.notes),
        ],
    )


def _build_verdict(verdict: diagnosis.Verdict) -> profiling_report.Section:
    blocks: list[profiling_report.Block] = []
    if verdict.doubts:
        blocks.append(profiling_report.Listing(items=verdict.doubts))
    if verdict.death is not None:
        blocks.append(profiling_report.Text(text=verdict.death.headline))
        blocks.append(profiling_report.Listing(items=verdict.death.lines))
    if verdict.stuck is not None:
        blocks.append(profiling_report.Text(text=verdict.stuck.headline))
        blocks.append(profiling_report.Listing(items=verdict.stuck.lines))
    if verdict.memory is not None and verdict.memory.is_growing:
        blocks.append(profiling_report.Text(text=verdict.memory.headline))
        blocks.append(profiling_report.Listing(items=verdict.memory.lines))
    if verdict.suspect != "insufficient_evidence":
        text = (
            f"{quantities.count_of(verdict.step_count, 'step')} measured. Confidence "
            f"{quantities.percent(verdict.confidence_ratio)}. Shares are of {verdict.share_of}."
        )
        blocks.append(profiling_report.Text(text=text))
    if verdict.bars:
        columns = [
            profiling_report.Column(label="phase"),
            profiling_report.Column(label="share", unit="%", digits=1),
        ]
        shares: list[list[profiling_report.Cell]] = [
            [_name(bar.phase), 100 * bar.share_ratio] for bar in verdict.bars if bar.share_ratio
        ]
        blocks.append(
            profiling_report.Table(title="Step time by phase", columns=columns, rows=shares)
        )
    blocks += [
        profiling_report.Text(text=text)
        for text in (verdict.bars_basis, verdict.share_basis)
        if text
    ]
    lists = {
        "Evidence": [evidence.text for evidence in verdict.evidence[1:]],
        "Contributing causes": [f"{_name(also.cause)}: {also.text}" for also in verdict.also],
        "What to do": _list_fixes(verdict),
        "Expected after the fix": [target.text for target in verdict.targets],
        "Checked" if verdict.suspect == "healthy" else "Other suspects": [
            f"{_name(suspect.suspect)}: {suspect.why}" for suspect in verdict.ruled_out
        ],
        diagnosis.LEARNING_TITLE: [] if verdict.learning is None else verdict.learning.lines,
        "Notes": verdict.notes,
    }
    sections = [
        profiling_report.Section(
            id=title, title=title, blocks=[profiling_report.Listing(items=items)]
        )
        for title, items in lists.items()
        if items
    ]
    return profiling_report.Section(
        id="verdict", title=verdict.headline, blocks=blocks, sections=sections
    )


def _list_fixes(verdict: diagnosis.Verdict) -> list[str]:
    """List the fixes of the step, then those of the job around it; where the job comes first, all
    by what they save of it."""
    job = verdict.job
    fixes = [(fix.job_saving_ratio or 0.0, _describe_fix(fix)) for fix in verdict.fixes]
    fixes += [(fix.saving_ratio, _describe_job_fix(fix)) for fix in (job.fixes if job else [])]
    if job is not None and job.is_first:
        fixes.sort(key=lambda fix: -fix[0])
    return [text for _, text in fixes]


def _describe_fix(fix: diagnosis.Fix) -> str:
    prediction = f" Predicted {fix.prediction.text}." if fix.prediction is not None else ""
    return f"{fix.title}: {fix.instructions}.{prediction} Reason: {fix.why}"


def _describe_job_fix(fix: diagnosis.JobFix) -> str:
    saving = f"{quantities.duration(fix.saving_ns)}, {quantities.percent(fix.saving_ratio)}"
    bound = "at most " if fix.is_bound else ""
    return f"{fix.title}: {fix.instructions}. Saves {bound}{saving} of the job. Reason: {fix.why}"


def _name(identifier: str) -> str:
    return identifier.replace("_", " ")


def _render_section(section: profiling_report.Section, *, level: int) -> Iterator[str]:
    yield f"<h{level}>{escape(section.title)}</h{level}>"
    for block in section.blocks:
        yield _render_block(block)
    for inner in section.sections:
        yield from _render_section(inner, level=min(level + 1, 4))


def _render_block(block: profiling_report.Block) -> str:
    match block:
        case profiling_report.Text():
            return f"<p>{_SIGNS.get(block.tone, '')}{_render_prose(block.text)}</p>"
        case profiling_report.Listing():
            items = "".join(f"<li>{_render_prose(item)}</li>" for item in block.items)
            return f"<ul>{items}</ul>" if items else ""
        case profiling_report.Check():
            return _render_check(block)
        case profiling_report.Table():
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


def _render_check(check: profiling_report.Check) -> str:
    facts = {
        "datapoints": quantities.count(check.datapoints),
        "violations": quantities.count(check.violations),
        "triggered": quantities.count_of(check.triggered, "time"),
        **({"last triggered": check.last_at} if check.last_at else {}),
        **check.parameters,
    }
    text = f"{check.summary} {check.recommendation or ''}".strip()
    details = ", ".join(f"{escape(name)}: {escape(value)}" for name, value in facts.items())
    head = f"<b>{escape(check.rule)}</b> ({escape(check.status)})"
    return f"<p>{head} {_render_prose(text)}</p><p><small>{details}</small></p>"


def _render_table(table: profiling_report.Table) -> str:
    units = (f" [{column.unit}]" if column.unit else "" for column in table.columns)
    labels = [column.label + unit for column, unit in zip(table.columns, units, strict=True)]
    body = [
        [_format_cell(*pair) for pair in zip(row, table.columns, strict=True)] for row in table.rows
    ]
    rows = "".join(_render_row(row, "td") for row in body)
    return f"<table><thead>{_render_row(labels, 'th')}</thead><tbody>{rows}</tbody></table>"


def _render_row(cells: Iterable[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _format_cell(cell: profiling_report.Cell, column: profiling_report.Column) -> str:
    if cell is None or (not isinstance(cell, str) and column.digits is not None):
        return figure(cell, column.digits or 0)
    return str(cell)


_BOX = ("min", "p25", "p50", "p75", "p95", "max")
_EXTREMES = ("min", "mean", "max")


def make_chart_table(chart: profiling_report.Chart) -> profiling_report.Table:
    """Convert a chart to a table; of a heat map, the extremes and means of its rows."""
    match chart:
        case profiling_report.Pie():
            columns = [
                profiling_report.Column(label="name"),
                profiling_report.Column(label="share", unit="%", digits=2),
            ]
            rows: list[list[profiling_report.Cell]] = [
                [s.name, 100 * s.share_ratio] for s in chart.slices
            ]
            return profiling_report.Table(
                title=chart.title, columns=columns, rows=rows, share_of=chart.share_of
            )
        case profiling_report.Histogram():
            columns, rows = _tabulate_histogram(chart)
        case profiling_report.Boxes():
            columns = [
                profiling_report.Column(label="name"),
                profiling_report.Column(label="samples", digits=0),
            ]
            columns += [profiling_report.Column(label=name, unit="%", digits=2) for name in _BOX]
            rows = [
                [name, box.count, *(getattr(box, figure) for figure in _BOX)]
                for name, box in chart.boxes.items()
            ]
        case profiling_report.Heatmap():
            columns = [profiling_report.Column(label=name) for name in ("row", *_EXTREMES)]
            rows = [
                [row.name, *_format_extremes(row.shade_ratio, row.full, row.unit)]
                for row in chart.rows
            ]
        case profiling_report.Curves():
            columns = [
                profiling_report.Column(label="name"),
                _number_column(chart.x_axis, chart.x_unit),
                _number_column(chart.y_axis, chart.y_unit),
            ]
            rows = [
                [curve.name, _scale(x, chart.x_unit), _scale(y, chart.y_unit)]
                for curve in chart.curves
                for x, y in zip(curve.x, curve.y, strict=True)
            ]
        case profiling_report.BarChart():
            columns = [
                profiling_report.Column(label=chart.item),
                _number_column(chart.axis, chart.unit),
            ]
            rows = [
                [name, _scale(value, chart.unit)]
                for name, value in zip(chart.names, chart.values, strict=True)
            ]
        case profiling_report.Matrix():
            columns = [
                profiling_report.Column(label=chart.row),
                *(_number_column(name, chart.unit) for name in chart.columns),
            ]
            rows = [
                [name, *(_scale(value, chart.unit) for value in values)]
                for name, values in zip(chart.rows, chart.values, strict=True)
            ]
        case profiling_report.Lines():
            columns = [
                profiling_report.Column(label="name"),
                profiling_report.Column(label="time", unit="s", digits=2),
                profiling_report.Column(label=chart.y_axis, unit=chart.unit, digits=chart.digits),
            ]
            rows = [
                [line.name, *point]
                for line in chart.lines
                for point in zip(line.x, line.y, strict=True)
            ]
    return profiling_report.Table(title=chart.title, columns=columns, rows=rows, more=chart.more)


def _number_column(label: str, unit: schema.Unit) -> profiling_report.Column:
    """Make a column of numbers in a unit; of counts without decimals."""
    if unit == "ratio":
        return profiling_report.Column(label=label, unit="%", digits=1)
    return profiling_report.Column(label=label, digits=0 if unit == "count" else 4)


def _scale(value: float | None, unit: schema.Unit) -> float | None:
    return 100 * value if value is not None and unit == "ratio" else value


def _tabulate_histogram(
    chart: profiling_report.Histogram,
) -> tuple[list[profiling_report.Column], list[list[profiling_report.Cell]]]:
    edges = [
        profiling_report.Column(label=side, unit=chart.unit, digits=chart.digits)
        for side in ("from", "to")
    ]
    columns = [
        *edges,
        *(profiling_report.Column(label=bars.name, digits=0) for bars in chart.series),
    ]
    rows: list[list[profiling_report.Cell]] = [
        [low, high, *(bars.counts[index] for bars in chart.series)]
        for index, (low, high) in enumerate(zip(chart.edges[:-1], chart.edges[1:], strict=True))
        if any(bars.counts[index] for bars in chart.series)
    ]
    return columns, rows


def _format_extremes(shades: list[float | None], full: float, unit: str) -> list[str]:
    values = [full * shade for shade in shades if shade is not None]
    extremes = (min(values), sum(values) / len(values), max(values)) if values else (None,) * 3
    return [quantities.in_unit(value, unit) for value in extremes]
