"""Labels of the fields of payloads, units, JSON schemas, and the base of payloads.

A title and a unit follow from a field's name (`exposed_comm_ns`: "exposed communication", ns), an
explanation is the string below the field. Where the name is not enough, the annotation says more:

    mean_depth: Annotated[float, field_label("mean queue depth", unit="count")]
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import msgspec

Unit = Literal[
    "ns",  # integer nanoseconds
    "s",
    "hours",
    "epoch_ns",  # integer nanoseconds since 1970, monotonic within one node
    "epoch_ms",
    "bytes",
    "bytes_per_s",
    "gb_per_s",
    "flop",
    "flop_per_s",
    "flop_per_byte",
    "per_s",
    "count",
    "ratio",  # 0 to 1
    "percent",  # 0 to 100, as reported by the operating system or driver
    "usd",
    "celsius",
    "watt",
    "megahertz",
    "bitmask",
    "none",
    # That of the field `unit` of the same struct; without one, of the field that has the struct.
    "inherited",
]


Display = Literal[
    "bar",  # a share as a bar
    "change",  # a signed difference; a ratio is relative to the value before
    "curve",  # a list of numbers as a line
    "file_size",  # bytes in decimal units
    "identifier",  # a number without separators
]
_UNITS: dict[Unit, tuple[str, ...]] = {
    "count": ("calls", "depth"),
    "inherited": (
        "mean", "standard_deviation", "min", "max", "p25", "p50", "p75", "p95", "p99",
        "minimum", "largest", "outlier_threshold", "full", "value", "base_value", "other_value",
    ),
}  # fmt: skip
"""Names of numbers with their units."""
_UNIT_BY_NAME = {name: unit for unit, names in _UNITS.items() for name in names}
_UNIT_SUFFIXES: tuple[Unit, ...] = (
    "epoch_ns",
    "epoch_ms",
    "ns",
    "ratio",
    "percent",
    "bytes_per_s",
    "flop_per_s",
    "gb_per_s",
    "per_s",
    "s",
    "bytes",
    "flop_per_byte",
    "flop",
    "count",
    "usd",
    "hours",
)
"""Units that names of fields end in, longer ones before their own endings."""
_DISPLAYS: dict[Display, tuple[str, ...]] = {
    "bar": ("share_ratio",),
    "change": ("change_ns", "change_ratio"),
    "identifier": (
        "rank", "device", "stream", "pid", "id", "window", "step", "number", "line", "row", "event",
    ),
}  # fmt: skip
"""Names of fields with their displays."""
IDENTITY_FIELDS = ("rank", "trace", "process", "node", "device", "device_name", "stream")
"""Fields that identify the subject of a part of a payload."""
_DISPLAY_BY_NAME = {name: display for display, names in _DISPLAYS.items() for name in names}
_WORDS = {
    "comm": "communication",
    "cpu": "CPU",
    "dtype": "data type",
    "est": "est.",
    "flop": "FLOP",
    "gpu": "GPU",
    "id": "ID",
    "io": "I/O",
    "mfu": "MFU",
    "nan": "NaN",
    "nccl": "NCCL",
    "pid": "PID",
    "sm": "SM",
    "url": "URL",
}
"""Words of names whose spelling in text differs."""
_TYPE_PARTS = ("type", "types", "item_type", "item_types", "key_type", "value_type")
"""Attributes of the types of `msgspec.inspect` that hold types."""


class FieldLabel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Label of one field of a payload."""

    title: str
    unit: Unit
    display: Display | None = None
    description: str | None = None


def field_label(
    title: str | None = None, *, unit: Unit | None = None, display: Display | None = None
) -> msgspec.Meta:
    """Label a field in its annotation, where its name does not give title, unit or display."""
    hints = {"x-unit": unit, "x-display": display}
    extra = {key: value for key, value in hints.items() if value is not None}
    return msgspec.Meta(title=title, extra_json_schema=extra or None)


def unit_of(name: str) -> Unit | None:
    """Return the unit at the end of a field's name, or None.

    >>> unit_of("busy_ns"), unit_of("count"), unit_of("read_bytes_per_s"), unit_of("mean")
    ('ns', 'count', 'bytes_per_s', None)
    """
    return next((unit for unit in _UNIT_SUFFIXES if f"_{name}".endswith(f"_{unit}")), None)


def title_of(name: str) -> str:
    """Turn a name into a title, without the unit that every value carries.

    >>> title_of("exposed_comm_ns"), title_of("gpu_event_count"), title_of("count")
    ('exposed communication', 'GPU events', 'count')
    """
    unit = unit_of(name)
    stem = name.removesuffix(unit or "").rstrip("_") or name
    words = stem.replace("tensor_core", "Tensor Core").split("_")
    text = " ".join(_WORDS.get(word, word) for word in words)
    return _plural(text) if unit == "count" and stem != name else text


@cache
def labels_of(payload: type[msgspec.Struct]) -> dict[str, FieldLabel]:
    """Return the labels of a payload's fields by their names."""
    descriptions = describe_fields(payload)
    labels = {
        name: _label(name, type_, descriptions.get(name))
        for name, type_ in _field_types(payload).items()
    }
    titles = [label.title for label in labels.values()]
    return {
        name: msgspec.structs.replace(label, title=f"{label.title} share")
        if label.unit == "ratio" and titles.count(label.title) > 1
        else label
        for name, label in labels.items()
    }


def structs_in(payloads: Iterable[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    """List payloads and all structs inside them, each once."""
    structs: dict[type[msgspec.Struct], None] = {}
    pending = list(payloads)
    while pending:
        struct = pending.pop(0)
        if struct not in structs:
            structs[struct] = None
            for type_ in _field_types(struct).values():
                pending += _structs(type_)
    return list(structs)


def _label(name: str, type_: Any, description: str | None) -> FieldLabel:
    hints = getattr(type_, "extra_json_schema", None) or {}
    return FieldLabel(
        title=hints.get("title") or title_of(name),
        unit=hints.get("x-unit") or unit_of(name) or _unit_of_number(name, type_) or "none",
        display=hints.get("x-display")
        or ("curve" if "curve" in name.split("_") else _DISPLAY_BY_NAME.get(name)),
        description=description,
    )


def _unit_of_number(name: str, type_: Any) -> Unit | None:
    numbers = (msgspec.inspect.IntType, msgspec.inspect.FloatType)
    is_number = any(isinstance(leaf, numbers) for leaf in _leaves(type_))
    return _UNIT_BY_NAME.get(name) if is_number else None


def _field_types(payload: type[msgspec.Struct]) -> dict[str, Any]:
    """Inspect the types of a struct's fields, as `msgspec.inspect` describes them."""
    fields = msgspec.structs.fields(payload)
    types = msgspec.inspect.multi_type_info([field.type for field in fields])
    return {field.name: type_ for field, type_ in zip(fields, types, strict=True)}


def _structs(type_: Any) -> list[type[msgspec.Struct]]:
    """List the structs in the type of a field, but not those inside them."""
    classes = [getattr(leaf, "cls", None) for leaf in _leaves(type_)]
    return [cls for cls in classes if isinstance(cls, type) and issubclass(cls, msgspec.Struct)]


def _leaves(type_: Any) -> Iterator[Any]:
    """Find the types inside a type of `msgspec.inspect` that have no parts."""
    parts = [getattr(type_, name, ()) for name in _TYPE_PARTS]
    inner = [item for part in parts for item in (part if isinstance(part, tuple) else (part,))]
    for item in inner:
        yield from _leaves(item)
    if not inner:
        yield type_


def _plural(noun: str) -> str:
    if re.search(r"(ed|[^s]s)$", noun):
        return noun
    if re.search(r"([nt]ch|sh|ss|x)$", noun):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"


def describe_fields(declaring: type) -> dict[str, str]:
    """Collect the strings below the fields of a class and of its bases.

    Python does not keep them, so they are read from the source.
    """
    descriptions: dict[str, str] = {}
    for base in reversed(declaring.__mro__):
        descriptions |= _describe_own_fields(base)
    return descriptions


@cache
def _describe_own_fields(declaring: type) -> dict[str, str]:
    import ast

    try:
        definition = _parse_class(declaring)
    except (OSError, TypeError):  # no source, as in an interactive session
        return {}
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    described = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                described[name] = " ".join(words.split())
    return described


def _parse_class(declaring: type) -> Any:
    """Parse a class alone. `inspect.getsource` parses its whole module first: 20 ms each.

    Raises:
        OSError, TypeError: it has no source.
    """
    import ast
    import inspect
    import linecache
    import textwrap

    lines = linecache.getlines(inspect.getsourcefile(declaring) or "")
    start = re.compile(rf"class {declaring.__qualname__}\b")
    starts = [number for number, line in enumerate(lines) if start.match(line)]
    if len(starts) == 1:
        rest = lines[starts[0] + 1 :]
        body = itertools.takewhile(lambda line: line[:1].isspace() or line[:1] == "#", rest)
        try:
            return ast.parse("".join([lines[starts[0]], *body])).body[0]
        except SyntaxError:  # its head or a string in it goes on at the margin
            pass
    return ast.parse(textwrap.dedent(inspect.getsource(declaring))).body[0]


def make_schemas(
    payloads: Sequence[type[msgspec.Struct]], ref_template: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Make the schemas of payloads, and of all types inside them by name.

    Properties have `title`, `description`, `x-unit` and `x-display` as far as their labels do.

    Args:
        payloads: the types.
        ref_template: reference to another type, with `{name}` for its name.
    """
    schemas, components = msgspec.json.schema_components(payloads, ref_template=ref_template)
    for struct in structs_in(payloads):
        full_name = f"{struct.__module__}.{struct.__qualname__}"
        component = components.get(struct.__name__) or components[full_name]
        for field in msgspec.structs.fields(struct):
            label = labels_of(struct)[field.name]
            entries = {
                "title": label.title,
                "description": label.description,
                "x-unit": label.unit,
                "x-display": label.display,
            }
            component["properties"][field.encode_name] |= {
                key: value for key, value in entries.items() if value is not None
            }
    return list(schemas), components


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a view."""

    damage: list[str] = msgspec.field(default_factory=list)
    """Consequences of files that cannot be read, and these files; empty if the payload depends on
    none of them."""
    recording_end: str | None = None
    """Which data of the payload were not recorded to the end of the job, or still have to be
    recovered from the spool; null if the payload has all of them."""
    doubts: list[str] = msgspec.field(default_factory=list)
    """Doubts about traces behind the payload that change its figures, a sentence each, the worst
    first."""
    rounding: str | None = None
    """Which records behind the payload were rounded to limit the size of the run; null for none."""
