"""Declaration of a kind of events, and checks of its consistency.

The kinds themselves are in `event_kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from stepscope.schema.table import Table
from stepscope.schema.tables.trace_events import ANNOTATIONS

ARGS = "args"
"""The column that keeps arguments without a column of their own, as one JSON object."""

ArgumentType = Literal["integer", "number", "string", "json", "sizes", "unused"]
"""Type of an argument's value. `json`: any value, kept as text. `sizes`: up to three integers,
stored in three columns that end in `_x`, `_y` and `_z`. `unused`: read, because an unknown key
makes decoding slower, and not stored, because other columns say the same or the value means
nothing outside the process."""
Linking = Literal["operator", "python", "call", "work", "shadow", "enclosing", "none"]
"""Rule by which the importer links events of a kind.

operator   the tree of operators of each thread, by containment
python     the tree of Python functions, by their numbers, else by containment
call       calls of a device's runtime: operator by External id, else by containment
work       device work: launched by the call with the same correlation
shadow     ranges on a device's stream that mirror a host range with the same External id
enclosing  the innermost operator and Python function around the event, as far as its table has
           the columns `operator` and `python`
none       nothing; the events are on rows of streams, or on rows that are no threads
"""
Drawing = Literal["nested", "stream", "shadow", "hidden"]
"""Drawing of events on the timeline: `nested` within others of their thread, in rows of a device's
`stream`, as `shadow` above a stream, or `hidden`."""
ExportForm = Literal[
    "number", "text", "json", "sizes", "id", "optional id", "natural", "whole", "unsigned",
    "stream", "bandwidth", "collective", "called",
]  # fmt: skip
"""Form of an exported key. `number`, `text`, `json` and `sizes`: the column as it is. `id`: the
number of an event, counted from 1; `optional id`: likewise; null without one. `natural`: a number
that is not negative, else nothing. `whole`: a number without a decimal point where it is an
integer. `unsigned`: an address. `stream`: the stream of the track. `bandwidth`: the column, a
number of bytes, per nanosecond of the duration. `collective`: all keys of the event's row in
`collectives`. `called`: the operator of the call with the same correlation, as `id`."""
_FORM_OF_TYPE: Mapping[ArgumentType, ExportForm] = {
    "integer": "number", "number": "number", "string": "text", "json": "json", "sizes": "sizes",
}  # fmt: skip
LINK_ARGUMENTS = frozenset({"external", "python_id", "python_parent", "stream"})
"""Columns of arguments that serve linking and are in no table."""
EVENTS_KEY = ("trace", "id")


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the arguments of an event."""

    key: str
    type: ArgumentType = "unused"
    column: str = ""
    """Column that takes the value; `args` puts it, under its key, into that column's object."""
    older_key: str = ""
    """Key of older recorders, read in a file that lacks `key`."""
    default: int = -1
    """Value of a missing integer; -1 becomes null."""
    nullable: bool = False
    """The file may contain null instead of an integer."""
    zero_is_absent: bool = False
    """Zero means no value."""
    only_with: str = ""
    """Key that the events of a part of a file must have for this argument to be read there."""

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Names of the columns in the table."""
        if self.type == "sizes":
            return tuple(f"{self.column}_{axis}" for axis in "xyz")
        return (self.column,)


class ExportedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the arguments that an export writes."""

    key: str
    form: ExportForm
    column: str = ""


class EventKind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A kind of event."""

    name: str
    categories: tuple[str, ...]
    """Spellings of the category, in lower case; the first one is PyTorch's present one, which an
    export writes."""
    instant_name: str = ""
    """Name of an event without a duration, which tells the kind instead of the category; empty for
    kinds of ranges."""
    table: Table
    on_device: bool = False
    linking: Linking
    drawing: Drawing
    arguments: tuple[Argument, ...]
    """In the order in which Kineto writes them: each is then found at the first look."""
    constants: Mapping[str, int | str] = msgspec.field(default_factory=dict)
    """Columns with one value for all events of the kind; they tell apart the kinds of a table."""
    has_collectives: bool = False
    """The arguments may describe a collective; see `collectives`."""
    export: tuple[str | ExportedKey, ...]
    """Keys in the order in which an export writes them. A plain key is one of `arguments`. The
    content of the column `args` follows by itself."""

    def __repr__(self) -> str:
        return f"<kind {self.name}>"

    @property
    def is_range(self) -> bool:
        """True for events with a duration."""
        return not self.instant_name

    @property
    def stored_arguments(self) -> list[Argument]:
        """Arguments with a column of their own."""
        return [a for a in self.arguments if a.type != "unused" and a.column != ARGS]

    @property
    def exported_keys(self) -> list[ExportedKey]:
        """Keys that an export writes, plain ones looked up."""
        arguments = {argument.key: argument for argument in self.arguments}
        keys = []
        for exported in self.export:
            if isinstance(exported, str):
                argument = arguments[exported]
                exported = ExportedKey(  # noqa: PLW2901 - the same key, written out
                    key=exported, form=_FORM_OF_TYPE[argument.type], column=argument.column
                )
            keys.append(exported)
        return keys


def check_kinds(kinds: tuple[EventKind, ...]) -> None:
    """Check that entries are complete and do not contradict each other.

    Raises:
        ValueError: the message names the entry and the missing part.
    """
    owners: dict[str, str] = {}
    for kind in kinds:
        for label in (kind.name, *kind.categories):
            if owners.setdefault(label, kind.name) != kind.name:
                raise _invalid(kind, f"{label!r} is a category of {owners[label]}, too")
        if kind.drawing == "shadow" and kind.table is not ANNOTATIONS:
            raise _invalid(kind, "shadows are stored in the table annotations")
        if (kind.drawing == "stream") != (kind.linking == "work"):
            raise _invalid(kind, "the events of streams are device work, and only these")
        _check_columns(kind)
        _check_export(kind)
    for table in dict.fromkeys(kind.table for kind in kinds):
        sharers = [kind for kind in kinds if kind.table is table]
        constants = [tuple(kind.constants.items()) for kind in sharers]
        if len(set(constants)) < len(sharers):
            names = ", ".join(kind.name for kind in sharers)
            raise _invalid(sharers[0], f"no constant column distinguishes {names} in {table.name}")


def _check_columns(kind: EventKind) -> None:
    declared = set(kind.table.column_names)
    times = {"name", "start_ns", "duration_ns"} if kind.is_range else {"t_ns"}
    required = {"trace", "id", "track", ARGS} | times | set(kind.constants)
    for argument in kind.stored_arguments:
        if argument.column not in LINK_ARGUMENTS:
            required |= set(argument.table_columns)
    if not required <= declared or kind.table.key != EVENTS_KEY:
        lacking = ", ".join(sorted(required - declared)) or f"the key {EVENTS_KEY}"
        raise _invalid(kind, f"the table {kind.table.name} lacks {lacking}")


def _check_export(kind: EventKind) -> None:
    keys = {argument.key: argument for argument in kind.arguments}
    for exported in kind.export:
        if isinstance(exported, str) and (
            exported not in keys or keys[exported].type not in _FORM_OF_TYPE
        ):
            raise _invalid(kind, f"export: {exported!r} is no argument with a column")
    written = {exported.column for exported in kind.exported_keys}
    for argument in kind.stored_arguments:
        if argument.column not in written | LINK_ARGUMENTS:
            raise _invalid(kind, f"export lacks {argument.key!r}, which is stored")


def _invalid(kind: EventKind, problem: str) -> ValueError:
    return ValueError(f"schema/event_kinds.py, {kind.name}: {problem}")
