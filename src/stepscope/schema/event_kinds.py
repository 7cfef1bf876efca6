"""Kinds of events in traces, one entry per kind, and the tables of a run.

An entry contains everything that is specific to a kind: the spellings of its category, the keys of
its arguments, its table, how it is linked and drawn, and the keys that an export writes. The
importer decodes, links, stores and summarises events by these entries, the timeline finds the
tables of events by them, and the exporter of Chrome files writes by them. They are declared here
because `schema` is the only package that importers and exporters both may import.

To add a kind, add its entry to `EVENT_KINDS`; if no table fits, declare one in a file of
`schema/tables` and name it in the entry. Missing or contradictory entries raise an error when
`stepscope` is imported.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable

from stepscope.schema import accelerators, event_declaration
from stepscope.schema.table import Table
from stepscope.schema.tables import compilations, job, memory_snapshots, trace_events, traces
from stepscope.schema.tables.metrics import METRICS


def _integer(
    key: str,
    column: str,
    *,
    older_key: str = "",
    default: int = -1,
    nullable: bool = False,
    zero_is_absent: bool = False,
) -> event_declaration.Argument:
    return event_declaration.Argument(
        key=key,
        type="integer",
        column=column,
        older_key=older_key,
        default=default,
        nullable=nullable,
        zero_is_absent=zero_is_absent,
    )


def _number(key: str, column: str) -> event_declaration.Argument:
    return event_declaration.Argument(key=key, type="number", column=column)


def _json(key: str, column: str, only_with: str = "") -> event_declaration.Argument:
    return event_declaration.Argument(key=key, type="json", column=column, only_with=only_with)


def _unused(*keys: str) -> tuple[event_declaration.Argument, ...]:
    return tuple(event_declaration.Argument(key=key) for key in keys)


def _exported(
    key: str, form: event_declaration.ExportForm, column: str = ""
) -> event_declaration.ExportedKey:
    return event_declaration.ExportedKey(key=key, form=form, column=column)


_CORRELATION = _integer("correlation", "correlation", older_key="correlation id")  # of Paddle
_EXTERNAL = _integer("External id", "external")
_INDEX = _exported("Ev Idx", "number", "id")
_TRACE = _unused("Device", "Trace name", "Trace iteration")
_RANGE_ARGUMENTS = (
    _EXTERNAL,
    _integer("Record function id", event_declaration.ARGS, zero_is_absent=True),
    *_unused("Ev Idx"),
)
_CALL_ARGUMENTS = (
    _integer("External id", "external", older_key="external id"),
    _integer("cbid", event_declaration.ARGS),
    _CORRELATION,
    *_unused("external ts"),
    *(
        _json(key, event_declaration.ARGS, only_with="cid")
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
    _integer("context", event_declaration.ARGS, zero_is_absent=True),
    _integer("queued", event_declaration.ARGS, zero_is_absent=True),
    _integer("device", "device"),
    _integer("stream", "stream"),
    _CORRELATION,
)
_WORK_END = (
    *_unused("memory bandwidth (GB/s)"),
    _integer("graph id", "graph", zero_is_absent=True),
    _integer("graph node id", "graph_node"),
    event_declaration.Argument(key="kind", type="string", column=event_declaration.ARGS),
    *_unused("external id", "Ev Idx"),
)
_LAUNCH_KEYS = (
    "registers per thread", "shared memory", "blocks per SM", "warps per SM", "grid", "block",
    "est. achieved occupancy %",
)  # fmt: skip
_COPY_ARGUMENTS = (*_WORK_START, *_unused(*_LAUNCH_KEYS), _integer("bytes", "bytes"), *_WORK_END)
_WORK_EXPORT = (
    _exported("External id", "id", "operator"),
    _exported("device", "natural", "device"),
    _exported("stream", "stream"),
    "correlation",
    "graph id",
    "graph node id",
)
_COPY_EXPORT = (*_WORK_EXPORT, "bytes", _exported("memory bandwidth (GB/s)", "bandwidth", "bytes"))
_COLLECTIVE = _exported("Collective name", "collective")

EVENT_KINDS = (
    event_declaration.EventKind(
        name="annotation",
        categories=("user_annotation",),
        table=trace_events.ANNOTATIONS,
        linking="enclosing",
        drawing="nested",
        arguments=_RANGE_ARGUMENTS,
        constants={"on_device": 0},
        export=(_exported("External id", "id", "id"), _INDEX),
    ),
    event_declaration.EventKind(
        name="python_function",
        categories=("python_function",),
        table=trace_events.PYTHON_FUNCTIONS,
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
    event_declaration.EventKind(
        name="operator",
        categories=("cpu_op", "operator"),
        table=trace_events.OPERATORS,
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
    event_declaration.EventKind(
        name="runtime_call",
        categories=accelerators.runtime_categories(),
        table=trace_events.RUNTIME_CALLS,
        linking="call",
        drawing="nested",
        arguments=_CALL_ARGUMENTS,
        constants={"driver": 0},
        export=_CALL_EXPORT,
    ),
    event_declaration.EventKind(
        name="driver_call",
        categories=accelerators.driver_categories(),
        table=trace_events.RUNTIME_CALLS,
        linking="call",
        drawing="nested",
        arguments=_CALL_ARGUMENTS,
        constants={"driver": 1},
        export=_CALL_EXPORT,
    ),
    event_declaration.EventKind(
        name="kernel",
        categories=("kernel",),
        table=trace_events.KERNELS,
        on_device=True,
        linking="work",
        drawing="stream",
        arguments=(
            *_WORK_START,
            _integer("registers per thread", "registers_per_thread"),
            _integer("shared memory", "shared_memory_bytes"),
            _number("blocks per SM", "blocks_per_multiprocessor"),
            _number("warps per SM", "warps_per_multiprocessor"),
            event_declaration.Argument(key="grid", type="sizes", column="grid"),
            event_declaration.Argument(key="block", type="sizes", column="block"),
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
    event_declaration.EventKind(
        name="memcpy",
        categories=("gpu_memcpy", "memcpy"),
        table=trace_events.COPIES,
        on_device=True,
        linking="work",
        drawing="stream",
        arguments=_COPY_ARGUMENTS,
        constants={"kind": "memcpy"},
        export=_COPY_EXPORT,
    ),
    event_declaration.EventKind(
        name="memset",
        categories=("gpu_memset", "memset"),
        table=trace_events.COPIES,
        on_device=True,
        linking="work",
        drawing="stream",
        arguments=_COPY_ARGUMENTS,
        constants={"kind": "memset"},
        export=_COPY_EXPORT,
    ),
    event_declaration.EventKind(
        name="device_annotation",
        categories=("gpu_user_annotation",),
        table=trace_events.ANNOTATIONS,
        on_device=True,
        linking="shadow",
        drawing="shadow",
        arguments=_RANGE_ARGUMENTS,
        constants={"on_device": 1},
        export=(_exported("External id", "id", "host"),),
    ),
    event_declaration.EventKind(
        name="synchronisation",
        categories=("cuda_sync",),
        table=trace_events.SYNCHRONISATIONS,
        linking="none",
        drawing="nested",
        arguments=(
            *_unused("External id", "cuda_sync_kind"),
            _integer("wait_on_stream", "waited_stream"),
            _integer("wait_on_cuda_event_record_corr_id", "record_correlation"),
            _integer("wait_on_cuda_event_id", "event"),
            _integer("stream", "stream"),
            _CORRELATION,
            _integer("device", "device"),
            _integer("context", event_declaration.ARGS),
        ),
        export=(
            _exported("External id", "called"),
            _exported("cuda_sync_kind", "text", "name"),
            "wait_on_stream",
            "wait_on_cuda_event_record_corr_id",
            "wait_on_cuda_event_id",
            "stream",
            "correlation",
            "device",
        ),
    ),
    event_declaration.EventKind(
        name="memory_event",
        categories=("cpu_instant_event",),
        instant_name="[memory]",
        table=trace_events.MEMORY_EVENTS,
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
    trace_events.OTHER_EVENTS.name,
)
"""Tables with ranges that nest on their track, outer ones of the same extent first."""
STREAM_TABLES = tuple(
    dict.fromkeys(kind.table.name for kind in EVENT_KINDS if kind.drawing == "stream")
)
"""Tables with the work of device streams."""
TRACE_TABLES = (
    traces.TRACES,
    traces.QUALITY,
    traces.TRACKS,
    traces.DEVICES,
    traces.PROCESS_GROUPS,
    *EVENT_TABLES,
    trace_events.OTHER_EVENTS,
    trace_events.COLLECTIVES,
    trace_events.FLOWS,
    trace_events.COUNTERS,
    traces.TIMELINE,
)
"""Tables of the traces of a framework's profiler."""
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *(
            job.SPANS,
            METRICS,
            job.STACKS,
            job.SCALARS,
            job.TENSOR_STATISTICS,
            job.TENSOR_HISTOGRAMS,
            job.TENSOR_VALUES,
        ),
        *(
            job.TENSOR_ELEMENTS,
            traces.MEMORY_CATEGORIES,
            job.PYTHON_PROFILES,
            job.COLLECTIVE_CALLS,
            job.STAGE_OPERATIONS,
        ),
        compilations.COMPILATIONS,
        compilations.COMPILATION_EVENTS,
        *memory_snapshots.SNAPSHOT_TABLES,
        *TRACE_TABLES,
    )
}
"""Tables of a run by name."""


def event_kind(name: str) -> event_declaration.EventKind:
    """Return the kind of a name; KeyError when there is none."""
    return _BY_NAME[name]


def _reduce(
    kind: event_declaration.EventKind,
) -> tuple[Callable[[str], event_declaration.EventKind], tuple[str]]:
    return event_kind, (kind.name,)


copyreg.pickle(event_declaration.EventKind, _reduce)  # a kind is the same object in every process
event_declaration.check_kinds(EVENT_KINDS)
