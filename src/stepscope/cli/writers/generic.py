"""Text of any payload, by the shape of its structs and the labels of their fields.

identity (rank, trace, device …)              one bold line
other scalars                                 one line each
a list of structs of scalars                  a table
a struct, or a list of other structs          the same again, below its title
a list of numbers displayed as a curve        a curve
missing, notes, share_of, quality, range, …   sentences
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs
from rich.console import Console
from rich.markup import escape

from stepscope import quantities, schema, views
from stepscope.cli.text import duration, table

if TYPE_CHECKING:
    from stepscope.exporters import ViewTable

SENTENCES = (
    "missing", "notes", "share_of", "quality", "range", "damage", "recording_end", "rounding",
    "doubts",
)  # fmt: skip
MAX_LISTED = 8
"""Longer lists of scalars are not a cell of a table."""
MAX_CURVE_CELLS = 80
LEVELS = "·▁▂▃▄▅▆▇█"
MIN_TEXT_WIDTH = 24
"""Characters that a text column keeps if the line is too short."""
GAP = 2


class Field(NamedTuple):
    """One field of a struct."""

    name: str
    label: schema.FieldLabel
    value: Any


def write_generic(out: Console, payload: msgspec.Struct) -> None:
    """Write any payload."""
    _write_struct(out, payload, "none")


def write_damage(out: Console, damage: Sequence[str]) -> None:
    """Write which files behind a payload cannot be read."""
    for sentence in damage:
        out.print(f"[red]![/red] {escape(sentence)}")


def write_doubts(out: Console, doubts: Sequence[str]) -> None:
    """Write what may make the traces behind a payload say something else."""
    for sentence in doubts:
        out.print(f"[bold yellow]![/bold yellow] {escape(sentence)}")


def write_limitation(out: Console, sentence: str | None) -> None:
    """Write which data were not recorded to the end of the job, or are rounded."""
    if sentence:
        out.print(f"[yellow]![/yellow] {escape(sentence)}")


def write_range(out: Console, time_range: views.TimeRange) -> None:
    """Write the range of time that a payload is restricted to."""
    start, end = duration(time_range.from_after_ns), duration(time_range.to_after_ns)
    out.print(f"[dim]from {start} to {end}: {escape(time_range.range_of)}[/dim]")
    write_sentences(out, time_range.notes)


def write_quality(out: Console, notes: Iterable[views.QualityNote]) -> None:
    """Write the quality issues that affect the figures above."""
    for note in notes:
        out.print(f"[yellow]![/yellow] {escape(note.sentence)}")


def write_sentences(out: Console, sentences: str | Sequence[str] | None) -> None:
    """Write sentences, a line each."""
    for sentence in [sentences] if isinstance(sentences, str) else sentences or ():
        out.print(escape(sentence))


def write_entries(out: Console, entries: Collection[tuple[str, str]]) -> None:
    """Write titles and their texts in two columns."""
    width = max((len(title) for title, _ in entries), default=0)
    for title, text in entries:
        out.print(f"[dim]{title:<{width}}[/dim]  {escape(text)}")


def _write_struct(out: Console, part: msgspec.Struct, inherited: schema.Unit) -> None:
    fields = _fields(part, inherited)
    values = {field.name: field.value for field in fields}
    _write_title(out, fields)
    for name in ("sentence", "missing"):
        write_sentences(out, values.get(name) or None)
    if values.get("share_of"):
        out.print(f"[dim]shares of: {escape(values['share_of'])}[/dim]")
    written = ("sentence", *SENTENCES, *schema.IDENTITY_FIELDS)
    rest = [field for field in fields if field.name not in written]
    scalars = [field for field in rest if _is_scalar(field.value)]
    write_entries(out, [(label.title, text_of(label, value)) for _, label, value in scalars])
    for _, label, value in rest:
        if not _is_scalar(value):
            _write_part(out, label, value)
    write_sentences(out, values.get("notes"))
    write_quality(out, values.get("quality") or ())


def _write_title(out: Console, fields: Iterable[Field]) -> None:
    identity = [field for name in schema.IDENTITY_FIELDS for field in fields if field.name == name]
    words = [
        value if isinstance(value, str) else f"{label.title} {value}"
        for _, label, value in identity
        if value is not None
    ]
    if words:
        out.print()
        out.print(f"[bold]{escape('  '.join(words))}[/bold]")


def _write_part(out: Console, label: schema.FieldLabel, value: Any) -> None:
    """Write a field that is not a scalar."""
    title = f"[dim]{label.title}[/dim]"
    if isinstance(value, msgspec.Struct):
        out.print(title)
        if _is_flat(value):
            _write_table(out, [_fields(value, label.unit)])
        else:
            _write_struct(out, value, label.unit)
    elif isinstance(value, Mapping):
        out.print(title)
        _write_mapping(out, label, value)
    elif not value:
        return
    elif isinstance(value[0], msgspec.Struct):
        if all(_is_flat(part) for part in value):
            out.print(f"[dim]{label.title}[/dim]")
            _write_table(out, [_fields(part, label.unit) for part in value])
        else:
            for part in value:
                _write_struct(out, part, label.unit)
    elif label.display == "curve":
        end = f"  up to {text_of(label, max(filter(None, value), default=0))}"
        room = out.width - len(label.title) - GAP - len(end)
        out.print(f"{title}  {curve(value, min(room, MAX_CURVE_CELLS))}{end}")
    else:
        out.print(f"{title}  {escape(', '.join(text_of(label, item) for item in value))}")


def _write_mapping(out: Console, label: schema.FieldLabel, value: Mapping[str, Any]) -> None:
    if value and all(isinstance(item, msgspec.Struct) for item in value.values()):
        head = schema.FieldLabel(title="", unit="none")
        rows = [[Field("", head, key), *_fields(item, label.unit)] for key, item in value.items()]
        _write_table(out, rows)
        return
    width = max((len(str(key)) for key in value), default=0)
    for key, item in value.items():
        out.print(f"  {escape(str(key)):<{width}}  {_text(label, item)}")


# --- tables --------------------------------------------------------------------------------------


def write_rows(out: Console, rows: ViewTable) -> None:
    """Write a flat table."""
    cells = [
        [Field(name, label, row.get(name)) for name, label in rows.labels.items()]
        for row in rows.rows
    ]
    if cells:
        _write_table(out, cells)
    else:
        out.print(f"no rows: {escape(', '.join(rows.labels))}")


def _write_table(out: Console, rows: Sequence[Sequence[Field]]) -> None:
    """Write rows of scalars. Columns that do not fit continue below, after the first one again."""
    columns = {fields[0].name: fields for fields in zip(*rows, strict=True)}
    texts = [
        name
        for name, column in columns.items()
        if any(isinstance(field.value, str) for field in column)
    ]
    ordered = [*texts[:1], *(name for name in columns if name not in texts[:1])]
    titles = {name: columns[name][0].label.title for name in ordered}
    cells = {name: [_text(label, value) for _, label, value in columns[name]] for name in ordered}
    widths = {name: _width(titles[name], cells[name]) for name in ordered}
    widths |= _cut_widths(widths, texts, out.width)
    for names in _across(widths, out.width):
        grid = table(*(titles[name].replace(" ", "\n") for name in names))
        for name, column in zip(names, grid.columns, strict=True):
            column.justify = "left" if name in texts else "right"
        for i in range(len(rows)):
            grid.add_row(*(escape(cut(cells[name][i], widths[name])) for name in names))
        out.print(grid)


def _width(title: str, cells: Sequence[str]) -> int:
    return max(*(len(word) for word in title.split(" ")), *(len(cell) for cell in cells))


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


def curve(values: Sequence[float | None], room: int, top: float | None = None) -> str:
    """Draw numbers as a line of bars between 0 and the top; a blank for unknown ones.

    Args:
        values: the numbers; their means if they are more than fit.
        room: number of cells at most.
        top: number that fills a cell; None for their maximum.
    """
    cells = max(1, min(len(values), room))
    edges = [i * len(values) // cells for i in range(cells + 1)]
    means = [_average_present(values[a:b]) for a, b in itertools.pairwise(edges)]
    top = top or max(filter(None, means), default=1)
    return "".join(
        " " if mean is None else LEVELS[round(max(0, mean) / top * (len(LEVELS) - 1))]
        for mean in means
    )


def _average_present(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _fields(part: msgspec.Struct, inherited: schema.Unit = "none") -> list[Field]:
    """List the fields that text shows, with the unit of `part.unit`, else the inherited one."""
    unit = getattr(part, "unit", inherited)
    labels = {
        name: structs.replace(label, unit=unit) if label.unit == "inherited" else label
        for name, label in schema.labels_of(type(part)).items()
    }
    names = getattr(part, "text_fields", part.__struct_fields__)
    return [Field(name, labels[name], getattr(part, name)) for name in names]


def _is_scalar(value: object) -> bool:
    return not isinstance(value, msgspec.Struct | Mapping | list | tuple)


def _is_flat(part: msgspec.Struct) -> bool:
    """Return True if a struct fits in a row of a table: scalars, and short lists of them."""
    fields = _fields(part)
    return not any(value for name, _, value in fields if name in SENTENCES) and all(
        _is_scalar(value) or (label.display != "curve" and _is_short_list(value))
        for name, label, value in fields
        if name not in SENTENCES
    )


def _is_short_list(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) <= MAX_LISTED
        and all(_is_scalar(item) for item in value)
    )


def _text(label: schema.FieldLabel, value: Any) -> str:
    if isinstance(value, list | tuple):
        return " x ".join(text_of(label, item) for item in value)
    return text_of(label, value)


def text_of(label: schema.FieldLabel, value: object) -> str:
    """Format a scalar in the unit of its field and as its display hint says."""
    if value is None:
        return quantities.MISSING
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(label, value)
    return str(value)


def _number(label: schema.FieldLabel, value: float) -> str:
    match label.unit, label.display:
        case _, "identifier":
            return str(value)
        case "epoch_ns", _:
            return quantities.utc_time(int(value))
        case "epoch_ms", _:
            return quantities.utc_time(int(value) * 1_000_000)
        case "bytes", "file_size":
            return quantities.file_size(value)
        case "ratio", "change":
            return quantities.relative_change(value)
        case unit, "change":
            return quantities.change(value, unit)
        case unit, _:
            return quantities.in_unit(value, unit)
