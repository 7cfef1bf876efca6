"""A comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stepscope.cli.text import printable
from stepscope.cli.writers.compare import (
    contribution_name,
    describe_outcome,
    run_name,
    scaling,
    signed,
    status_of,
    tabulate_steps,
    times_of,
    unlike_terms,
    word,
)
from stepscope.cli.writers.generic import cut
from stepscope.comparison import Comparison, ContractTerms, Contributions, Gate, StepChanges
from stepscope.quantities import MISSING

MAX_ROWS = 10
MAX_CELL_LENGTH = 80
_MARKS = {"passed": "✅", "failed": "❌", "unknown": "❔", "not comparable": "❔"}


def markdown_of(payload: Comparison) -> str:
    """Write the comparison as Markdown."""
    lines = [f"### {_text(payload.headline, 400)}", ""]
    names = (_text(run_name(run)) for run in (payload.base_run, payload.other_run))
    lines += [" → ".join(f"`{name}`" for name in names), ""]
    for note in payload.notes:
        lines += [_text(note, 400), ""]
    if payload.gate is not None:
        lines += _gate(payload.gate)
    lines += _contract(payload.contract)
    if payload.steps is not None:
        lines += _steps(payload.steps)
    elif payload.steps_missing is not None:
        lines += [_text(payload.steps_missing, 400), ""]
    if payload.contributions is not None:
        lines += _contributions(payload.contributions)
    if payload.targets:
        lines += ["**Expected after the fix**", ""]
        outcomes = [
            (t.text, t.base_value, t.other_value, describe_outcome(t)) for t in payload.targets
        ]
        lines += _table(("target", "base", "run", "reached"), outcomes)
    if payload.settings:
        lines += ["**Different settings**", ""]
        rows = [(f"{s.group}: {s.name}", s.base_value, s.other_value) for s in payload.settings]
        lines += _table(("setting", "base", "run"), rows)
    return "\n".join(lines).rstrip() + "\n"


def _gate(gate: Gate) -> list[str]:
    rows = [
        (f"`{r.condition}`", _MARKS[r.outcome], r.outcome, r.explanation) for r in gate.conditions
    ]
    return [
        f"{_MARKS[gate.outcome]} **{gate.outcome}**: {_text(gate.explanation, 400)}",
        "",
        *_table(("condition", "", "", "numbers"), rows, max_length=300),
    ]


def _contract(terms: Sequence[ContractTerms]) -> list[str]:
    rows = [
        (group.group, item.name, item.base_value, item.other_value)
        for group, item in unlike_terms(terms)
    ]
    if not rows:
        return []
    return [
        "**The runs did different work**",
        "",
        *_table(("", "", "base", "run"), rows),
    ]


def _steps(steps: StepChanges) -> list[str]:
    head, *rows = tabulate_steps(steps)
    marked = [(*row[:-1], row[-1].replace("yes", "**yes**")) for row in rows]
    return [*_table(head, marked), f"<sub>of {steps.share_of}</sub>", ""]


def _contributions(contributions: Contributions) -> list[str]:
    pairs = [(part.part, row) for part in contributions.parts for row in part.rows if row.change_ns]
    pairs.sort(key=lambda pair: -abs(pair[1].change_ns))
    shown = pairs[:MAX_ROWS]
    rows = [
        (
            word(part),
            contribution_name(row),
            status_of(row),
            *times_of(row),
        )
        for part, row in shown
    ]
    if not rows:
        return []
    rest = contributions.change_ns - sum(row.change_ns for _, row in shown)
    rows.append(("", "everything else", "", "", "", signed(rest)))
    head = ("part", "what", "", "base", "run", "change of the mean step")
    lines = ["**Contributions**", "", *_table(head, rows)]
    parts = {part for part, _ in shown}
    for part in contributions.parts:
        scaled = scaling(part) if part.part in parts else None
        if scaled is not None:
            lines += [f"<sub>{word(part.part)}: {scaled}</sub>", ""]
    return lines


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str | None]], *, max_length: int = MAX_CELL_LENGTH
) -> list[str]:
    return [*_table_lines(head, rows, max_length), ""]


def _table_lines(
    head: Sequence[str], rows: Iterable[Sequence[str | None]], max_length: int
) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        cells = [MISSING if cell is None else _text(cell, max_length) for cell in row]
        yield f"| {' | '.join(cells)} |"


def _text(text: str, max_length: int = MAX_CELL_LENGTH) -> str:
    """Text that ends no cell and opens no tag: names come from recordings."""
    shown = cut(printable(text), max_length)
    return shown.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
