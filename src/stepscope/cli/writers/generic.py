"""Any payload as text, by the shape of its structs and the units in their names.

str fields that say what it is (rank, trace, device …)   one bold line
other scalars                                            one line each
a list of structs that hold scalars only                 a table
a struct, or a list of structs that hold more            the same again, below its name
a long list of numbers                                   a curve
missing, notes, share_of, quality                        sentences
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
"""Fields that name what a part of a payload is about."""
SENTENCES = ("missing", "notes", "share_of", "quality", "range")
CURVE = "curve"
"""What the name of a list of numbers has in it when it is to be drawn."""
MOST_LISTED = 8
"""Longer lists of scalars are no cell of a table."""
MOST_CURVE_CELLS = 80
LEVELS = "·▁▂▃▄▅▆▇█"
READABLE = 24
"""Characters that a text column keeps when room is short."""
GAP = 2


def write_generic(out: Console, payload: msgspec.Struct) -> None:
    """Write any payload."""
    _write_struct(out, payload, None)


def write_range(out: Console, found: TimeRange) -> None:
    """Write which part of the run a payload is about."""
    begin, end = duration(found.from_after_ns), duration(found.to_after_ns)
    out.print(f"[dim]from {begin} to {end}: {escape(found.range_of)}[/dim]")
    _write_sentences(out, found.notes)


def write_quality(out: Console, notes: Iterable[QualityNote]) -> None:
    """Write what is doubtful about the numbers above."""
    for note in notes:
        out.print(f"[yellow]![/yellow] {escape(note.sentence)}")


def _write_struct(out: Console, part: msgspec.Struct, inherited: str | None) -> None:
    fields = dict(_fields(part))
    _write_title(out, fields)
    _write_sentences(out, fields.get("missing"))
    if fields.get("share_of"):
        out.print(f"[dim]shares are of {escape(fields['share_of'])}[/dim]")
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
    named = [(name, fields[name]) for name in IDENTITY if fields.get(name) is not None]
    if named:
        words = [
            value if isinstance(value, str) else f"{label(name)} {value}" for name, value in named
        ]
        out.print()
        out.print(f"[bold]{escape('  '.join(words))}[/bold]")


def _write_sentences(out: Console, said: str | Sequence[str] | None) -> None:
    for sentence in [said] if isinstance(said, str) else said or ():
        out.print(escape(sentence))


def _write_part(out: Console, name: str, value: Any) -> None:
    """A field that is more than a scalar."""
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
        out.print(f"[dim]{label(name)}[/dim]  {curve(value, min(room, MOST_CURVE_CELLS))}{end}")
    else:
        shown = ", ".join(text_of(name, each) for each in value)
        out.print(f"[dim]{label(name)}[/dim]  {escape(shown)}")


def _write_structs(out: Console, name: str, parts: Sequence[msgspec.Struct]) -> None:
    if all(_is_flat(part) for part in parts):
        out.print(f"[dim]{label(name)}[/dim]")
        _write_table(out, [dict(_fields(part)) for part in parts], unit_of(name))
    else:
        for part in parts:
            _write_struct(out, part, unit_of(name))


def _write_mapping(out: Console, name: str, value: Mapping[str, Any]) -> None:
    out.print(f"[dim]{label(name)}[/dim]")
    if value and all(isinstance(each, msgspec.Struct) for each in value.values()):
        rows = [{"": key} | dict(_fields(each)) for key, each in value.items()]
        _write_table(out, rows, unit_of(name))
        return
    width = max((len(str(key)) for key in value), default=0)
    for key, each in value.items():
        out.print(f"  {escape(str(key)):<{width}}  {_text(name, each, unit_of(name))}")


# --- tables --------------------------------------------------------------------------------------


def _write_table(out: Console, rows: Sequence[Mapping[str, Any]], inherited: str | None) -> None:
    """Rows of scalars. Columns that do not fit continue below, the first one repeated."""
    cells = {name: [_text(name, row[name], inherited) for row in rows] for name in rows[0]}
    texts = [name for name in cells if any(isinstance(row[name], str) for row in rows)]
    ordered = [*texts[:1], *(name for name in cells if name not in texts[:1])]
    headings = _headings(ordered)
    widths = {name: _width(headings[name], cells[name]) for name in ordered}
    widths |= _cut_widths(widths, texts, out.width)
    for names in _across(widths, out.width):
        made = table(*(headings[name].replace(" ", "\n") for name in names))
        for name, column in zip(names, made.columns, strict=True):
            column.justify = "left" if name in texts else "right"
        for i in range(len(rows)):
            made.add_row(*(escape(cut(cells[name][i], widths[name])) for name in names))
        out.print(made)


def _headings(names: Sequence[str]) -> dict[str, str]:
    """Labels; of a quantity and its share, the share says that it is one."""
    plain = [label(name) for name in names]
    return {
        name: f"{own} share" if plain.count(own) > 1 and unit_of(name) == "ratio" else own
        for name, own in zip(names, plain, strict=True)
    }


def _width(heading: str, cells: Sequence[str]) -> int:
    return max(*(len(word) for word in heading.split(" ")), *(len(cell) for cell in cells))


def _cut_widths(widths: Mapping[str, int], texts: Sequence[str], room: int) -> dict[str, int]:
    """Widths of text columns: as little less than they want as lets everything fit in a line,
    but readable."""
    numbers = sum(width + GAP for name, width in widths.items() if name not in texts)
    most = max((widths[name] for name in texts), default=0)
    while most > READABLE and room < numbers + sum(min(widths[n], most) + GAP for n in texts):
        most -= 1
    return {name: min(widths[name], most) for name in texts}


def _across(widths: Mapping[str, int], room: int) -> Iterator[list[str]]:
    """Columns that stand side by side; every line begins with the first one."""
    first, *others = widths
    line = [first]
    for name in others:
        if len(line) > 1 and sum(widths[n] + GAP for n in [*line, name]) > room:
            yield line
            line = [first]
        line.append(name)
    yield line


def cut(text: str, width: int) -> str:
    """Text of at most a width: the middle of a long one is left out.

    >>> cut("void cutlass::Kernel2<sm80>", 11)
    'void …sm80>'
    """
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


# --- values --------------------------------------------------------------------------------------


def curve(values: Sequence[float], room: int) -> str:
    """Numbers as a line of bars between 0 and the largest of them."""
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
    """True when a row of a table can hold it: scalars, and short lists of them."""
    fields = dict(_fields(part))
    return not any(fields.get(name) for name in SENTENCES) and all(
        _is_scalar(value) or (CURVE not in name and _is_short_list(value))
        for name, value in fields.items()
        if name not in SENTENCES
    )


def _is_short_list(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) <= MOST_LISTED
        and all(_is_scalar(each) for each in value)
    )


def _text(name: str, value: Any, inherited: str | None) -> str:
    if isinstance(value, list | tuple):
        return " x ".join(text_of(name, each, inherited) for each in value)
    return text_of(name, value, inherited)
