"""Kinds of events in traces, one entry per kind.

An entry holds everything that is particular to a kind: the spellings of its category, the keys of
its arguments, its table, how it is linked and drawn, and the keys that an export writes. The
importer decodes, links, stores and summarises events by these entries, the timeline finds the
tables of events by them, and the exporter of Chrome files writes by them. They are declared here
because `schema` is the only package that importers and exporters both may import.

To add a kind, add its entry to `EVENT_KINDS`; if no table fits, declare one in a file of
`schema/tables` and name it in the entry. What is missing or contradictory raises an error when
`stepscope` is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stepscope.schema.table import Table
from stepscope.schema.tables.annotations import ANNOTATIONS
from stepscope.schema.tables.copies import COPIES
from stepscope.schema.tables.kernels import KERNELS
from stepscope.schema.tables.memory_events import MEMORY_EVENTS
from stepscope.schema.tables.operators import OPERATORS
from stepscope.schema.tables.other_events import OTHER_EVENTS
from stepscope.schema.tables.python_functions import PYTHON_FUNCTIONS
from stepscope.schema.tables.runtime_calls import RUNTIME_CALLS

ARGS = "args"
"""The column that keeps arguments without a column of their own, as one JSON object."""

ArgumentType = Literal["integer", "number", "string", "json", "sizes", "unused"]
"""Type of an argument's value. `json`: any value, kept as text. `sizes`: up to three integers,
stored in three columns that end in `_x`, `_y` and `_z`. `unused`: read, because an unknown key
makes decoding slower, and not stored, because other columns say the same or the value means
nothing outside the process."""
Linking = Literal["operator", "python", "call", "work", "shadow", "enclosing"]
"""How the importer links events of a kind.

operator   the tree of operators of each thread, by containment
python     the tree of Python functions, by their numbers, else by containment
call       calls of a device's runtime: operator by External id, else by containment
work       device work: launched by the call with the same correlation
shadow     ranges on a device's stream that mirror a host range with the same External id
enclosing  the innermost operator and Python function around the event, as far as its table has
           the columns `operator` and `python`
"""
Drawing = Literal["nested", "stream", "shadow", "hidden"]
"""How the timeline draws events of a kind: `nested` within others of their thread, in rows of a
device's `stream`, as `shadow` above a stream, or not at all."""
ExportForm = Literal[
    "number", "text", "json", "sizes", "id", "optional id", "natural", "whole", "unsigned",
    "stream", "bandwidth", "collective",
]  # fmt: skip
"""How an export writes a key. `number`, `text`, `json` and `sizes`: the column as it is. `id`: the
number of an event, counted from 1; `optional id`: likewise, null without one. `natural`: a number
that is not negative, else nothing. `whole`: a number without a decimal point where it is an
integer. `unsigned`: an address. `stream`: the stream of the track. `bandwidth`: the column, a
number of bytes, per nanosecond of the duration. `collective`: all keys of the event's row in
`collectives`."""
_FORM_OF_TYPE: Mapping[ArgumentType, ExportForm] = {
    "integer": "number", "number": "number", "string": "text", "json": "json", "sizes": "sizes",
}  # fmt: skip
RANGE_COLUMNS = frozenset({"trace", "id", "track", "name", "start_ns", "t_ns", "duration_ns", ARGS})
"""Columns that every event fills from its place, name, times and arguments."""
LINK_ARGUMENTS = frozenset({"external", "python_id", "python_parent", "stream"})
"""Columns of arguments that serve linking and are in no table."""
EVENTS_KEY = ("trace", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
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
    """The file may hold null instead of an integer."""
    zero_is_absent: bool = False
    """Zero stands for no value."""
    only_with: str = ""
    """Key that the events of a part of a file must have for this argument to be read there."""

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Names of the columns in the table."""
        if self.type == "sizes":
            return tuple(f"{self.column}_{axis}" for axis in "xyz")
        return (self.column,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedKey:
    """One key of the arguments that an export writes."""

    key: str
    form: ExportForm
    column: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventKind:
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
    constants: Mapping[str, int | str] = field(default_factory=dict)
    """Columns with one value for all events of the kind; they tell apart the kinds of a table."""
    has_collectives: bool = False
    """The arguments may describe a collective; see `collectives`."""
    export: tuple[str | ExportedKey, ...]
    """Keys in the order in which an export writes them. A plain key is one of `arguments`. The
    content of the column `args` follows by itself."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return event_kind, (self.name,)  # the same object in every process

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


def _integer(
    key: str,
    column: str,
    *,
    older_key: str = "",
    default: int = -1,
    nullable: bool = False,
    zero_is_absent: bool = False,
) -> Argument:
    return Argument(
        key=key,
        type="integer",
        column=column,
        older_key=older_key,
        default=default,
        nullable=nullable,
        zero_is_absent=zero_is_absent,
    )


def _number(key: str, column: str) -> Argument:
    return Argument(key=key, type="number", column=column)


def _json(key: str, column: str, only_with: str = "") -> Argument:
    return Argument(key=key, type="json", column=column, only_with=only_with)


def _unused(*keys: str) -> tuple[Argument, ...]:
    return tuple(Argument(key=key) for key in keys)


def _exported(key: str, form: ExportForm, column: str = "") -> ExportedKey:
    return ExportedKey(key=key, form=form, column=column)


_EXTERNAL = _integer("External id", "external")
_INDEX = _exported("Ev Idx", "number", "id")
_TRACE = _unused("Device", "Trace name", "Trace iteration")
_RANGE_ARGUMENTS = (
    _EXTERNAL,
    _integer("Record function id", ARGS, zero_is_absent=True),
    *_unused("Ev Idx"),
)
_CALL_ARGUMENTS = (
    _integer("External id", "external", older_key="external id"),
    _integer("cbid", ARGS),
    _integer("correlation", "correlation"),
    *_unused("external ts"),
    *(
        _json(key, ARGS, only_with="cid")
        for key in (
            "cid", "kernel", "grid", "block", "shared memory", "stream", "kind", "size", "bytes",
        )
    ),
    *_unused("src", "dst", "ptr", "Ev Idx"),
    *_TRACE,
)  # fmt: skip
_CALL_EXPORT = (_exported("External id", "id", "operator"), "correlation")
_WORK_START = (
    *_unused("External id"),
    _integer("context", ARGS, zero_is_absent=True),
    _integer("queued", ARGS, zero_is_absent=True),
    _integer("device", "device"),
    _integer("stream", "stream"),
    _integer("correlation", "correlation"),
)
_WORK_END = (
    *_unused("memory bandwidth (GB/s)"),
    _integer("graph id", "graph", zero_is_absent=True),
    _integer("graph node id", "graph_node"),
    Argument(key="kind", type="string", column=ARGS),
    *_unused("external id", "Ev Idx"),
)
_LAUNCH_KEYS = (
    "registers per thread", "shared memory", "blocks per SM", "warps per SM", "grid", "block",
    "est. achieved occupancy %",
)  # fmt: skip
_COPY_ARGUMENTS = (
    *_WORK_START,
    *_unused(*_LAUNCH_KEYS),
    _integer("bytes", "bytes"),
    *_WORK_END,
)
_WORK_EXPORT = (
    _exported("External id", "id", "operator"),
    _exported("device", "natural", "device"),
    _exported("stream", "stream"),
    "correlation",
    "graph id",
    "graph node id",
)
_COPY_EXPORT = (
    *_WORK_EXPORT,
    "bytes",
    _exported("memory bandwidth (GB/s)", "bandwidth", "bytes"),
)
_COLLECTIVE = _exported("Collective name", "collective")

EVENT_KINDS = (
    EventKind(
        name="annotation",
        categories=("user_annotation",),
        table=ANNOTATIONS,
        linking="enclosing",
        drawing="nested",
        arguments=_RANGE_ARGUMENTS,
        constants={"on_device": 0},
        export=(_exported("External id", "id", "id"), _INDEX),
    ),
    EventKind(
        name="python_function",
        categories=("python_function",),
        table=PYTHON_FUNCTIONS,
        linking="python",
        drawing="nested",
        arguments=(
            _integer("Python parent id", "python_parent", nullable=True),
            _integer("Python id", "python_id"),
            _integer("Python module id", "module_id"),
            *_unused("Ev Idx", "Python thread"),
        ),
        export=(
            _exported("Python parent id", "optional id", "parent"),
            _exported("Python id", "id", "id"),
            "Python module id",
            _INDEX,
        ),
    ),
    EventKind(
        name="operator",
        categories=("cpu_op", "operator"),
        table=OPERATORS,
        linking="operator",
        drawing="nested",
        arguments=(
            _EXTERNAL,
            _integer("Record function id", "record_function"),
            _json("Concrete Inputs", "concrete_inputs"),
            _json("Input type", "input_types"),
            _json("Input Strides", "input_strides"),
            _json("Input Dims", "input_dims"),
            *_unused("Ev Idx"),
            _integer("Fwd thread id", "forward_thread"),
            _integer("Sequence number", "sequence"),
            _json("Call stack", "call_stack"),
            *_unused("Profiler Event Index"),
            *_TRACE,
        ),
        has_collectives=True,
        export=(
            _exported("External id", "id", "id"),
            "Record function id",
            "Sequence number",
            "Fwd thread id",
            _COLLECTIVE,
            "Concrete Inputs",
            "Input type",
            "Input Strides",
            "Input Dims",
            _exported("Call stack", "text", "call_stack"),
            _INDEX,
        ),
    ),
    EventKind(
        name="runtime_call",
        categories=(
            "cuda_runtime", "runtime", "hip_runtime", "glow_runtime", "mtia_runtime",
            "xpu_runtime", "privateuse1_runtime",
        ),
        table=RUNTIME_CALLS,
        linking="call",
        drawing="nested",
        arguments=_CALL_ARGUMENTS,
        constants={"driver": 0},
        export=_CALL_EXPORT,
    ),
    EventKind(
        name="driver_call",
        categories=("cuda_driver", "xpu_driver", "privateuse1_driver"),
        table=RUNTIME_CALLS,
        linking="call",
        drawing="nested",
        arguments=_CALL_ARGUMENTS,
        constants={"driver": 1},
        export=_CALL_EXPORT,
    ),
    EventKind(
        name="kernel",
        categories=("kernel",),
        table=KERNELS,
        on_device=True,
        linking="work",
        drawing="stream",
        arguments=(
            *_WORK_START,
            _integer("registers per thread", "registers_per_thread"),
            _integer("shared memory", "shared_memory_bytes"),
            _number("blocks per SM", "blocks_per_multiprocessor"),
            _number("warps per SM", "warps_per_multiprocessor"),
            Argument(key="grid", type="sizes", column="grid"),
            Argument(key="block", type="sizes", column="block"),
            _number("est. achieved occupancy %", "occupancy_percent"),
            *_unused("bytes"),
            *_WORK_END,
        ),
        has_collectives=True,
        export=(
            *_WORK_EXPORT,
            "registers per thread",
            "shared memory",
            "blocks per SM",
            "warps per SM",
            "grid",
            "block",
            _exported("est. achieved occupancy %", "whole", "occupancy_percent"),
            _COLLECTIVE,
        ),
    ),
    EventKind(
        name="memcpy",
        categories=("gpu_memcpy", "memcpy"),
        table=COPIES,
        on_device=True,
        linking="work",
        drawing="stream",
        arguments=_COPY_ARGUMENTS,
        constants={"kind": "memcpy"},
        export=_COPY_EXPORT,
    ),
    EventKind(
        name="memset",
        categories=("gpu_memset", "memset"),
        table=COPIES,
        on_device=True,
        linking="work",
        drawing="stream",
        arguments=_COPY_ARGUMENTS,
        constants={"kind": "memset"},
        export=_COPY_EXPORT,
    ),
    EventKind(
        name="device_annotation",
        categories=("gpu_user_annotation",),
        table=ANNOTATIONS,
        on_device=True,
        linking="shadow",
        drawing="shadow",
        arguments=_RANGE_ARGUMENTS,
        constants={"on_device": 1},
        export=(_exported("External id", "id", "host"),),
    ),
    EventKind(
        name="memory_event",
        categories=("cpu_instant_event",),
        instant_name="[memory]",
        table=MEMORY_EVENTS,
        linking="enclosing",
        drawing="hidden",
        arguments=(
            _integer("Device Type", "device_type", default=0),
            _integer("Device Id", "device"),
            _integer("Addr", "address"),
            _integer("Bytes", "size_bytes", default=0),
            _integer("Total Allocated", "allocated_bytes"),
            _integer("Total Reserved", "reserved_bytes"),
            *_unused("Ev Idx"),
        ),
        export=(
            "Total Reserved",
            "Total Allocated",
            "Bytes",
            _exported("Addr", "unsigned", "address"),
            "Device Id",
            "Device Type",
            _INDEX,
        ),
    ),
)  # fmt: skip
"""All kinds. Of host ranges with the same extent, those of an earlier kind enclose the others."""

_BY_NAME = {kind.name: kind for kind in EVENT_KINDS}
EVENT_TABLES = tuple(dict.fromkeys(kind.table for kind in EVENT_KINDS))
"""Tables of the kinds."""
NESTED_TABLES = (
    *dict.fromkeys(kind.table.name for kind in EVENT_KINDS if kind.drawing == "nested"),
    OTHER_EVENTS.name,
)
"""Tables with ranges that nest on their track, outer ones of the same extent first."""
STREAM_TABLES = tuple(
    dict.fromkeys(kind.table.name for kind in EVENT_KINDS if kind.drawing == "stream")
)
"""Tables with the work of device streams."""


def event_kind(name: str) -> EventKind:
    """Return the kind of a name; KeyError when there is none."""
    return _BY_NAME[name]


def check_kinds(kinds: tuple[EventKind, ...]) -> None:
    """Check that entries are complete and do not contradict each other.

    Raises:
        ValueError: the sentence names the entry and what it lacks.
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
    file = f"schema/tables/{kind.table.name}.py"
    times = {"name", "start_ns", "duration_ns"} if kind.is_range else {"t_ns"}
    required = {"trace", "id", "track", ARGS} | times | set(kind.constants)
    for argument in kind.stored_arguments:
        if argument.column not in LINK_ARGUMENTS:
            required |= set(argument.table_columns)
    if not required <= declared or kind.table.key != EVENTS_KEY:
        lacking = ", ".join(sorted(required - declared)) or f"the key {EVENTS_KEY}"
        raise _invalid(kind, f"{file} lacks {lacking}")


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


check_kinds(EVENT_KINDS)
