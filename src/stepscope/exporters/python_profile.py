"""Python profiles as HTML: a sortable table of functions, and the tree of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from stepscope import analysis, quantities
from stepscope.quantities import percent

MIN_TREE_SHARE = 0.005
"""Calls with a smaller share of their tree are omitted, and counted."""
OPEN_SHARE = 0.1
"""Calls with at least this share of their tree are shown from the start."""
_COLUMNS = {
    "function": "function",
    "own_ns": "own time",
    "own_ratio": "own share",
    "total_ns": "total time",
    "total_ratio": "total share",
    "own_count": "own samples",
    "total_count": "total samples",
    "calls": "calls",
    "primitive_calls": "primitive calls",
    "file": "file",
}
_NUMBERS = frozenset(name for name in _COLUMNS if name not in {"function", "file"})
_STYLE = """
.stepscope-profile { font: 13px system-ui, sans-serif; }
.stepscope-profile table { border-collapse: collapse; }
.stepscope-profile th, .stepscope-profile td { padding: 2px 8px; text-align: right; }
.stepscope-profile th { border-bottom: 1px solid #888; cursor: pointer; }
.stepscope-profile .text { text-align: left; }
.stepscope-profile details, .stepscope-profile .leaf { margin-left: 16px; }
.stepscope-profile small { color: #767676; }
"""
_SCRIPT = """
for (const head of document.querySelectorAll(".stepscope-profile th")) {
  head.onclick = () => {
    const body = head.closest("table").tBodies[0];
    const index = head.cellIndex;
    const key = (row) => row.cells[index].dataset.value ?? row.cells[index].textContent;
    const byNumber = (a, b) => Number(key(b)) - Number(key(a));
    const byText = (a, b) => key(a).localeCompare(key(b));
    const compare = head.dataset.number === "1" ? byNumber : byText;
    for (const row of [...body.rows].sort(compare)) body.append(row);
  };
}
"""
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>Python profile</title>
</head>
<body>
{body}
</body>
</html>
"""


class FunctionTable(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of one process, or of all, by one profiler."""

    title: str
    profiler: str
    rows: Sequence[Mapping[str, Any]]
    """As of `OpenRun.python_profile`; None for what the profiler does not state."""
    trees: Sequence[analysis.StackNode] = msgspec.field(default_factory=list)
    """Trees of calls, one per process; the name of the root is that of the process."""


def render_python_profile(tables: Sequence[FunctionTable], *, page: bool) -> str:
    """Render tables and trees as a page, or as a fragment for a notebook."""
    parts = ["<h2>Python profile</h2>"]
    for table in tables:
        parts += _render_table(table)
        for tree in table.trees:
            parts += _render_tree(tree)
    if not tables:
        parts.append("<p>No Python function was recorded in this selection.</p>")
    body = (
        f'<div class="stepscope-profile"><style>{_STYLE}</style>{"".join(parts)}'
        f"<script>{_SCRIPT}</script></div>"
    )
    return _PAGE.format(body=body, policy=_POLICY) if page else body


def _render_table(table: FunctionTable) -> Iterator[str]:
    columns = [
        name for name in _COLUMNS if any(row[name] is not None for row in table.rows)
    ]  # none for figures that this profiler does not state
    yield f"<h3>{escape(table.title)} <small>{escape(table.profiler)}</small></h3>"
    yield "<table><thead><tr>"
    for name in columns:
        number = int(name in _NUMBERS)
        yield f'<th class="{"" if number else "text"}" data-number="{number}">{_COLUMNS[name]}</th>'
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield f"<tr>{''.join(_render_cell(name, row[name]) for name in columns)}</tr>"
    yield "</tbody></table>"


def _render_cell(column: str, value: Any) -> str:
    if column not in _NUMBERS:
        return f'<td class="text">{escape(str(value))}</td>'
    if value is None:
        return f'<td data-value="-1">{quantities.MISSING}</td>'
    match column.rpartition("_")[2]:
        case "ns":
            text = quantities.duration(value)
        case "ratio":
            text = percent(value, 1)
        case _:
            text = quantities.count(value)
    return f'<td data-value="{value}">{escape(text)}</td>'


def _render_tree(tree: analysis.StackNode) -> Iterator[str]:
    yield (
        f"<p><b>Calls of {escape(tree.function)}</b> "
        f"<small>{quantities.count_of(tree.sample_count, 'sample')}; calls with less than "
        f"{percent(MIN_TREE_SHARE, 1)} are omitted</small></p>"
    )
    yield from _render_callees(tree, max(1, tree.weight))


def _render_callees(node: analysis.StackNode, weight: int) -> Iterator[str]:
    for callee in sorted(node.callees.values(), key=lambda callee: -callee.weight):
        share = callee.weight / weight
        if share < MIN_TREE_SHARE:
            continue
        text = (
            f"{percent(share, 1)} {escape(callee.function)} <small>{escape(callee.file)}, "
            f"{quantities.count_of(callee.sample_count, 'sample')}</small>"
        )
        inner = "".join(_render_callees(callee, weight))
        if inner:
            is_open = " open" if share >= OPEN_SHARE else ""
            yield f"<details{is_open}><summary>{text}</summary>{inner}</details>"
        else:
            yield f'<div class="leaf">{text}</div>'
