"""Text of any payload, by the shape of its structs and the units of their fields.

identity (rank, trace, device …)              one bold line
other scalars                                 one line each
a list of structs of scalars                  a table
a struct, or a list of other structs          the same again, below its title
a list of numbers named as a curve            a curve
missing, notes, share_of, quality, range      sentences
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import duration, table
from stepscope.cli.writers.units import label, text_of, unit_of
from stepscope.views import QualityNote, TimeRange

IDENTITY = ("rank", "trace", "process", "node", "device", "device_name", "stream")
"""Fields that identify the subject of a part of a payload."""
SENTENCES = ("missing", "notes", "share_of", "quality", "range")
CURVE = "curve"
"""Part of the name of a list of numbers that is drawn as a curve."""
MAX_LISTED = 8
"""Longer lists of scalars are not a cell of a table."""
MAX_CURVE_CELLS = 80
LEVELS = "·▁▂▃▄▅▆▇█"
MIN_TEXT_WIDTH = 24
"""Characters that a text column keeps if the line is too short."""
GAP = 2


def write_generic(out: Console, payload: msgspec.Struct) -> None:
    """Write any payload."""
    _write_struct(out, payload, None)


def write_range(out: Console, time_range: TimeRange) -> None:
    """Write the range of time that a payload is restricted to."""
    start, end = duration(time_range.from_after_ns), duration(time_range.to_after_ns)
    out.print(f"[dim]from {start} to {end}: {escape(time_range.range_of)}[/dim]")
    _write_sentences(out, time_range.notes)


def write_quality(out: Console, notes: Iterable[QualityNote]) -> None:
    """Write the quality issues that affect the figures above."""
    for note in notes:
        out.print(f"[yellow]![/yellow] {escape(note.sentence)}")


def _write_struct(out: Console, part: msgspec.Struct, inherited: str | None) -> None:
    fields = dict(_fields(part))
    _write_title(out, fields)
    _write_sentences(out, fields.get("missing"))
    if fields.get("share_of"):
        out.print(f"[dim]shares of: {escape(fields['share_of'])}[/dim]")
    rest = {n: v for n, v in fields.items() if n not in SENTENCES and n not in IDENTITY}
    scalars = {name: value for name, value in rest.items() if _is_scalar(value)}
    if scalars:
        width = max(len(label(name)) for name in scalars)
        for name, value in scalars.items():
            out.print(f"[dim]{label(name):<{width}}[/dim]  {_text(name, value, inherited)}")
    for name, value in rest.items():
        if name not in scalars:
            _write_part(out, name, value)
    _write_sentences(out, fields.get("notes"))
    write_quality(out, fields.get("quality") or ())


def _write_title(out: Console, fields: Mapping[str, Any]) -> None:
    identity = [(name, fields[name]) for name in IDENTITY if fields.get(name) is not None]
    if identity:
        words = [
            value if isinstance(value, str) else f"{label(name)} {value}"
            for name, value in identity
        ]
        out.print()
        out.print(f"[bold]{escape('  '.join(words))}[/bold]")


def _write_sentences(out: Console, sentences: str | Sequence[str] | None) -> None:
    for sentence in [sentences] if isinstance(sentences, str) else sentences or ():
        out.print(escape(sentence))


def _write_part(out: Console, name: str, value: Any) -> None:
    """Write a field that is not a scalar."""
    unit = unit_of(name)
    if isinstance(value, msgspec.Struct):
        out.print(f"[dim]{label(name)}[/dim]")
        if _is_flat(value):
            _write_table(out, [dict(_fields(value))], unit)
        else:
            _write_struct(out, value, unit)
    elif isinstance(value, Mapping):
        _write_mapping(out, name, value)
    elif not value:
        return
    elif isinstance(value[0], msgspec.Struct):
        _write_structs(out, name, value)
    elif CURVE in name:
        end = f"  up to {text_of(name, max(value, default=0))}"
        room = out.width - len(label(name)) - GAP - len(end)
        out.print(f"[dim]{label(name)}[/dim]  {curve(value, min(room, MAX_CURVE_CELLS))}{end}")
    else:
        text = ", ".join(text_of(name, item) for item in value)
        out.print(f"[dim]{label(name)}[/dim]  {escape(text)}")


def _write_structs(out: Console, name: str, parts: Sequence[msgspec.Struct]) -> None:
    if all(_is_flat(part) for part in parts):
        out.print(f"[dim]{label(name)}[/dim]")
        _write_table(out, [dict(_fields(part)) for part in parts], unit_of(name))
    else:
        for part in parts:
            _write_struct(out, part, unit_of(name))


def _write_mapping(out: Console, name: str, value: Mapping[str, Any]) -> None:
    out.print(f"[dim]{label(name)}[/dim]")
    if value and all(isinstance(item, msgspec.Struct) for item in value.values()):
        rows = [{"": key} | dict(_fields(item)) for key, item in value.items()]
        _write_table(out, rows, unit_of(name))
        return
    width = max((len(str(key)) for key in value), default=0)
    for key, item in value.items():
        out.print(f"  {escape(str(key)):<{width}}  {_text(name, item, unit_of(name))}")


# --- tables --------------------------------------------------------------------------------------


def _write_table(out: Console, rows: Sequence[Mapping[str, Any]], inherited: str | None) -> None:
    """Write rows of scalars. Columns that do not fit continue below, after the first one again."""
    cells = {name: [_text(name, row[name], inherited) for row in rows] for name in rows[0]}
    texts = [name for name in cells if any(isinstance(row[name], str) for row in rows)]
    ordered = [*texts[:1], *(name for name in cells if name not in texts[:1])]
    headings = _headings(ordered)
    widths = {name: _width(headings[name], cells[name]) for name in ordered}
    widths |= _cut_widths(widths, texts, out.width)
    for names in _across(widths, out.width):
        grid = table(*(headings[name].replace(" ", "\n") for name in names))
        for name, column in zip(names, grid.columns, strict=True):
            column.justify = "left" if name in texts else "right"
        for i in range(len(rows)):
            grid.add_row(*(escape(cut(cells[name][i], widths[name])) for name in names))
        out.print(grid)


def _headings(names: Sequence[str]) -> dict[str, str]:
    """Make headings; the heading of a share differs from that of its quantity."""
    plain = [label(name) for name in names]
    return {
        name: f"{text} share" if plain.count(text) > 1 and unit_of(name) == "ratio" else text
        for name, text in zip(names, plain, strict=True)
    }


def _width(heading: str, cells: Sequence[str]) -> int:
    return max(*(len(word) for word in heading.split(" ")), *(len(cell) for cell in cells))


def _cut_widths(widths: Mapping[str, int], texts: Sequence[str], room: int) -> dict[str, int]:
    """Cut text columns just enough to fit everything in a line, but not below a readable width."""
    numbers = sum(width + GAP for name, width in widths.items() if name not in texts)
    limit = max((widths[name] for name in texts), default=0)
    while limit > MIN_TEXT_WIDTH and room < numbers + sum(
        min(widths[n], limit) + GAP for n in texts
    ):
        limit -= 1
    return {name: min(widths[name], limit) for name in texts}


def _across(widths: Mapping[str, int], room: int) -> Iterator[list[str]]:
    """Split columns into lines that fit; every line starts with the first column."""
    first, *columns = widths
    line = [first]
    for name in columns:
        if len(line) > 1 and sum(widths[n] + GAP for n in [*line, name]) > room:
            yield line
            line = [first]
        line.append(name)
    yield line


def cut(text: str, width: int) -> str:
    """Cut text to a width by omitting its middle.

    >>> cut("void cutlass::Kernel2<sm80>", 11)
    'void …sm80>'
    """
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


# --- values --------------------------------------------------------------------------------------


def curve(values: Sequence[float], room: int) -> str:
    """Draw numbers as a line of bars between 0 and their maximum."""
    cells = max(1, min(len(values), room))
    edges = [i * len(values) // cells for i in range(cells + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    top = max(means) or 1
    return "".join(LEVELS[round(max(0, mean) / top * (len(LEVELS) - 1))] for mean in means)


def _fields(part: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for name in getattr(part, "text_fields", part.__struct_fields__):
        yield name, getattr(part, name)


def _is_scalar(value: object) -> bool:
    return not isinstance(value, msgspec.Struct | Mapping | list | tuple)


def _is_flat(part: msgspec.Struct) -> bool:
    """Tell whether a struct fits in a row of a table: scalars, and short lists of them."""
    fields = dict(_fields(part))
    return not any(fields.get(name) for name in SENTENCES) and all(
        _is_scalar(value) or (CURVE not in name and _is_short_list(value))
        for name, value in fields.items()
        if name not in SENTENCES
    )


def _is_short_list(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) <= MAX_LISTED
        and all(_is_scalar(item) for item in value)
    )


def _text(name: str, value: Any, inherited: str | None) -> str:
    if isinstance(value, list | tuple):
        return " x ".join(text_of(name, item, inherited) for item in value)
    return text_of(name, value, inherited)
