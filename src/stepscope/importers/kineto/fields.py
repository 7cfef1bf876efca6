"""What the arguments of an event may say, by kind.

Each struct lists the keys of one kind of event, in the order in which Kineto writes them: so each
is found where it is looked for first. Keys that are not listed make the arguments of that event
take the slow way, and are kept as they are in the column `args`. Some listed keys are read and not
stored, because what they say is in other columns already:

- External id, Python id, Python parent id, Ev Idx and their older spellings: the links `operator`,
  `host` and `parent`, and the `id`.
- src, dst, ptr: addresses, which mean nothing outside the process.
- memory bandwidth: `bytes` over `duration_ns`. Device, device, stream: the track.
- Trace name, Trace iteration: the same for all events of a file.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, field

ABSENT = -1
"""What a missing integer is in memory."""
EMPTY = Raw()


class OperatorArgs(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of an operator."""

    external_id: int = field(name="External id", default=ABSENT)
    record_function: int = field(name="Record function id", default=ABSENT)
    concrete_inputs: Raw = field(name="Concrete Inputs", default=EMPTY)
    input_types: Raw = field(name="Input type", default=EMPTY)
    input_strides: Raw = field(name="Input Strides", default=EMPTY)
    input_dims: Raw = field(name="Input Dims", default=EMPTY)
    event_index: Raw = field(name="Ev Idx", default=EMPTY)
    forward_thread: int = field(name="Fwd thread id", default=ABSENT)
    sequence: int = field(name="Sequence number", default=ABSENT)
    call_stack: Raw = field(name="Call stack", default=EMPTY)
    old_event_index: Raw = field(name="Profiler Event Index", default=EMPTY)
    device: Raw = field(name="Device", default=EMPTY)
    trace_name: Raw = field(name="Trace name", default=EMPTY)
    trace_iteration: Raw = field(name="Trace iteration", default=EMPTY)


class AnnotationArgs(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of a named range, on the host or on a device."""

    external_id: int = field(name="External id", default=ABSENT)
    record_function: int = field(name="Record function id", default=ABSENT)
    event_index: Raw = field(name="Ev Idx", default=EMPTY)


class RuntimeArgs(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of a call of the runtime or driver."""

    external_id: int = field(name="External id", default=ABSENT)
    callback: int = field(name="cbid", default=ABSENT)
    correlation: int = field(name="correlation", default=ABSENT)
    old_external_id: int = field(name="external id", default=ABSENT)
    external_ts: Raw = field(name="external ts", default=EMPTY)
    hip_call: Raw = field(name="cid", default=EMPTY)
    kernel: Raw = EMPTY
    grid: Raw = EMPTY
    block: Raw = EMPTY
    shared_memory: Raw = field(name="shared memory", default=EMPTY)
    stream: Raw = EMPTY
    kind: Raw = EMPTY
    size: Raw = EMPTY
    bytes: Raw = EMPTY
    source: Raw = field(name="src", default=EMPTY)
    target: Raw = field(name="dst", default=EMPTY)
    pointer: Raw = field(name="ptr", default=EMPTY)
    event_index: Raw = field(name="Ev Idx", default=EMPTY)
    device: Raw = field(name="Device", default=EMPTY)
    trace_name: Raw = field(name="Trace name", default=EMPTY)
    trace_iteration: Raw = field(name="Trace iteration", default=EMPTY)


class DeviceArgs(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of a kernel, a copy or a fill."""

    external_id: Raw = field(name="External id", default=EMPTY)
    queued: int = field(name="queued", default=ABSENT)
    device: int = field(name="device", default=ABSENT)
    context: int = field(name="context", default=ABSENT)
    stream: int = field(name="stream", default=ABSENT)
    correlation: int = field(name="correlation", default=ABSENT)
    registers: int = field(name="registers per thread", default=ABSENT)
    shared_memory: int = field(name="shared memory", default=ABSENT)
    blocks: float = field(name="blocks per SM", default=float("nan"))
    warps: float = field(name="warps per SM", default=float("nan"))
    grid: list[int] = []
    block: list[int] = []
    occupancy: float = field(name="est. achieved occupancy %", default=float("nan"))
    size: int = field(name="bytes", default=ABSENT)
    bandwidth: Raw = field(name="memory bandwidth (GB/s)", default=EMPTY)
    graph: int = field(name="graph id", default=ABSENT)
    graph_node: int = field(name="graph node id", default=ABSENT)
    kind: str = ""
    old_external_id: Raw = field(name="external id", default=EMPTY)
    event_index: Raw = field(name="Ev Idx", default=EMPTY)


class PythonArgs(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of a Python function."""

    python_parent: int | None = field(name="Python parent id", default=ABSENT)
    python_id: int = field(name="Python id", default=ABSENT)
    module_id: int = field(name="Python module id", default=ABSENT)
    event_index: Raw = field(name="Ev Idx", default=EMPTY)
    thread: Raw = field(name="Python thread", default=EMPTY)


class MemoryArgs(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of an allocation or release."""

    device_type: int = field(name="Device Type", default=0)
    device: int = field(name="Device Id", default=ABSENT)
    address: int = field(name="Addr", default=ABSENT)
    size: int = field(name="Bytes", default=0)
    allocated: int = field(name="Total Allocated", default=ABSENT)
    reserved: int = field(name="Total Reserved", default=ABSENT)
    event_index: Raw = field(name="Ev Idx", default=EMPTY)


class CollectiveArgs(msgspec.Struct, gc=False):
    """What an operator or kernel says of the collective that it is part of."""

    name: str = field(name="Collective name", default="")
    dtype: str | None = None
    in_elements: int = field(name="In msg nelems", default=ABSENT)
    out_elements: int = field(name="Out msg nelems", default=ABSENT)
    group: str | int | None = field(name="Process Group Name", default=None)
    group_id: str | int | None = field(name="Process Group ID", default=None)
    group_description: str | None = field(name="Process Group Description", default=None)
    group_size: int = field(name="Group size", default=ABSENT)
    group_ranks: Any = field(name="Process Group Ranks", default=None)
    sequence: int = field(name="Seq", default=ABSENT)
    communicator: Any = field(name="Comms Id", default=None)
    peer_source: int = field(name="Src Rank", default=ABSENT)
    peer_destination: int = field(name="Dst Rank", default=ABSENT)
    in_split: Any = field(name="In split size", default=None)
    out_split: Any = field(name="Out split size", default=None)
    rank: Any = field(name="Rank", default=None)
    rank_start: Any = field(name="Global rank start", default=None)
    rank_stride: Any = field(name="Global rank stride", default=None)


COLLECTIVE_KEYS = frozenset(each.encode_name for each in msgspec.structs.fields(CollectiveArgs))
"""Keys of an operator's or kernel's arguments that belong to its collective."""
