"""Importer of JSON files of rocprofv3 (https://rocm.docs.amd.com/projects/rocprofiler-sdk).

    kernel_dispatch           kernels; the stream is the hardware queue
    memory_copy               copies
    hip_api, hsa_api          calls of HIP and HSA, which launch what has their correlation
    marker_api                annotations: ranges of roctx
    rccl_api                  annotations of the thread that calls RCCL
    everything else           left out: allocations, scratch memory, counters

Names are numbers in a record: a kind and an operation of the tables in `strings`, or a kernel of
`kernel_symbols`. Times are nanoseconds since the machine was booted, and the file does not state
when that was.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from stepscope import errors, schema, store
from stepscope.importers import kineto
from stepscope.importers.content import (
    INVALID,
    ProgressCallback,
    Refused,
    Result,
    TraceImporter,
    read_content,
)
from stepscope.importers.kineto import Chunk

_START = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:')
_GPU_AGENT = 2
"""`rocprofiler_agent_type_t` of GPUs."""
_COPY_NAMES = {
    "MEMORY_COPY_HOST_TO_HOST": "Memcpy HtoH",
    "MEMORY_COPY_HOST_TO_DEVICE": "Memcpy HtoD",
    "MEMORY_COPY_DEVICE_TO_HOST": "Memcpy DtoH",
    "MEMORY_COPY_DEVICE_TO_DEVICE": "Memcpy DtoD",
}
_MARKS = ("roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA", "roctxRangePushA")
"""Calls of roctx whose range has a name; the others name threads, or end ranges."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Small = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Handle(msgspec.Struct, frozen=True):
    handle: _Int64 = 0


class _Correlation(msgspec.Struct, frozen=True):
    internal: _Int64 = 0


class _Size(msgspec.Struct, frozen=True):
    x: _Small = 0
    y: _Small = 0
    z: _Small = 0


class _Call(msgspec.Struct, frozen=True):
    """Call of an API, or a copy."""

    kind: int
    operation: int
    start_timestamp: _Count
    end_timestamp: _Count
    thread_id: int = 0
    correlation_id: _Correlation = _Correlation()
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    bytes: _Count | None = None


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Handle
    queue_id: _Handle
    kernel_id: int
    group_segment_size: _Small = 0
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class _KernelDispatch(msgspec.Struct, frozen=True):
    start_timestamp: _Count
    end_timestamp: _Count
    dispatch_info: _Dispatch
    correlation_id: _Correlation = _Correlation()


class _Records(msgspec.Struct, frozen=True):
    kernel_dispatch: list[_KernelDispatch] = []
    memory_copy: list[_Call] = []
    hip_api: list[_Call] = []
    hsa_api: list[_Call] = []
    marker_api: list[_Call] = []
    rccl_api: list[_Call] = []


class _Operations(msgspec.Struct, frozen=True):
    operations: list[str] = []


class _Message(msgspec.Struct, frozen=True):
    key: int
    value: str


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Operations] = []
    marker_api: list[_Message] = []


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: _Small = 0


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle
    type: int
    product_name: str = ""
    logical_node_type_id: _Small = 0
    cu_count: _Small = 0
    wave_front_size: _Small = 0


class _Node(msgspec.Struct, frozen=True):
    hostname: str | None = None


class _Metadata(msgspec.Struct, frozen=True):
    pid: int = 0
    node: _Node = _Node()


class _Process(msgspec.Struct, frozen=True):
    """Recording of one process."""

    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    strings: _Strings = _Strings()
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Records = _Records()


class _File(msgspec.Struct, frozen=True):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


class RocprofImporter(TraceImporter):
    """Importer of JSON files of rocprofv3; see `registry.Importer`."""

    formats = (kineto.TRACE,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins like a recording."""
        return bool(_START.match(head))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result | list[Result]]:
        """Import files into an existing run; see `registry.Importer.import_files`."""
        results: list[Result | list[Result]] = []
        identities = kineto.identify_files(files, self.step_range)
        with store.RunWriter(run, node) as writer:
            for index, (path, identity) in enumerate(zip(files, identities, strict=True)):
                try:
                    processes = _read(path)
                    results.append(
                        [
                            _store(
                                process,
                                writer,
                                identity if len(processes) == 1 else _of_process(identity, process),
                                run,
                            )
                            for process in processes
                        ]
                    )
                except errors.UnreadableTraceError as error:
                    results.append(Refused(path, str(error)))
                progress(index, 1.0)
        return results


def _of_process(identity: kineto.Identity, process: _Process) -> kineto.Identity:
    """Return the origin of the trace of one of several processes; a rank in the name of the file
    is that of none."""
    parts = [
        f"process {process.metadata.pid}",
        *[identity.name] * (schema.rank_in_name(identity.name) is None),
    ]
    return replace(identity, name=" of ".join(parts), directories=())


def _read(path: Path) -> list[_Process]:
    """Read the processes of a file that have events.

    Raises:
        UnreadableTraceError: the file cannot be read, is damaged, or has no event.
    """
    try:
        file = msgspec.json.decode(read_content(path), type=_File)
    except (OSError, EOFError, zlib.error) as error:
        raise errors.UnreadableTraceError(f"{path} cannot be read: {error}.") from None
    except (*schema.MALFORMED_JSON, ValueError) as error:
        raise errors.UnreadableTraceError(
            f"{path} is a damaged file of rocprofv3: {error}. Copy it again."
        ) from None

    processes = [item for item in file.processes if any(asdict(item.buffer_records).values())]
    if not processes:
        raise errors.UnreadableTraceError(
            f"{path}, a JSON file of rocprofv3, has nothing to import: it has no kernels, copies, "
            "calls or ranges. Record with `rocprofv3 --sys-trace --output-format json -- CMD`."
        )
    return processes


def _store(
    process: _Process, writer: store.RunWriter, identity: kineto.Identity, scratch: Path
) -> Result:
    """Store the trace of a process."""
    gathered = kineto.Gathered(scratch)
    try:
        reader = _ProcessReader(process)
        for chunk in reader.read():
            gathered.add(chunk)
        header = kineto.Header({"deviceProperties": reader.describe_devices()})
        reading = kineto.Reading(gathered=gathered, header=header, truncated=False)
        host = process.metadata.node.hostname
        return kineto.store_reading(reading, writer, replace(identity, node=host))
    finally:
        gathered.close()


class _ProcessReader:
    """Reader of the recording of one process."""

    def __init__(self, process: _Process) -> None:
        self._process = process
        self._gpus = {
            agent.id.handle: agent.logical_node_type_id
            for agent in process.agents
            if agent.type == _GPU_AGENT
        }
        self._symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
        self._messages = {item.key: item.value for item in process.strings.marker_api}

    def describe_devices(self) -> list[dict[str, Any]]:
        """Return the properties of the GPUs with work, under the names that Kineto gives them."""
        used = {item.dispatch_info.agent_id.handle for item in self._records.kernel_dispatch}
        return [
            {
                "id": agent.logical_node_type_id,
                "name": agent.product_name,
                "numSms": agent.cu_count,
                "warpSize": agent.wave_front_size,
            }
            for agent in self._process.agents
            if agent.id.handle in used
        ]

    def read(self) -> list[Chunk]:
        """Return the events of all kinds."""
        records = self._records
        marks = [item for item in records.marker_api if self._operation(item) in _MARKS]
        chunks = [
            self._read_kernels(),
            self._read_copies(),
            self._read_calls("runtime_call", [*records.hip_api, *records.hsa_api], self._operation),
            self._read_calls("annotation", marks, self._name_range),
            self._read_calls("annotation", records.rccl_api, self._operation),
        ]
        return [chunk for chunk in chunks if chunk.event_count]

    @property
    def _records(self) -> _Records:
        return self._process.buffer_records

    def _operation(self, call: _Call) -> str:
        """Name the operation of a record."""
        kinds = self._process.strings.buffer_records
        names = kinds[call.kind].operations if 0 <= call.kind < len(kinds) else []
        is_named = 0 <= call.operation < len(names)
        return names[call.operation] if is_named else f"operation {call.operation}"

    def _name_range(self, call: _Call) -> str:
        return self._messages.get(call.correlation_id.internal, self._operation(call))

    def _read_kernels(self) -> Chunk:
        items = self._records.kernel_dispatch
        infos = [item.dispatch_info for item in items]
        symbols = [self._symbols.get(info.kernel_id) for info in infos]
        names = [
            f"kernel {info.kernel_id}"
            if symbol is None
            else symbol.formatted_kernel_name or symbol.kernel_name
            for info, symbol in zip(infos, symbols, strict=True)
        ]
        devices = [self._gpus.get(info.agent_id.handle, 0) for info in infos]
        blocks = [_measure_grid(info) for info in infos]
        return self._make_chunk(
            "kernel",
            items,
            names,
            [(f"GPU {device}", info.queue_id.handle) for device, info in zip(devices, infos)],  # noqa: B905
            device=np.array(devices, dtype=np.int64),
            stream=np.array([info.queue_id.handle for info in infos], dtype=np.int64),
            grid=np.array(blocks, dtype=np.int32).reshape(-1, 3),
            block=np.array(
                [(s.x, s.y, s.z) for s in (info.workgroup_size for info in infos)], dtype=np.int32
            ).reshape(-1, 3),
            shared_memory_bytes=np.array([i.group_segment_size for i in infos], dtype=np.int64),
            registers_per_thread=np.array(
                [0 if symbol is None else symbol.arch_vgpr_count for symbol in symbols],
                dtype=np.int64,
            ),
        )

    def _read_copies(self) -> Chunk:
        items = self._records.memory_copy
        names = [_COPY_NAMES.get(self._operation(item), "Memcpy unknown") for item in items]
        handles = [
            next(
                (h for h in (i.dst_agent_id.handle, i.src_agent_id.handle) if h in self._gpus), None
            )
            for i in items
        ]
        devices = [0 if handle is None else self._gpus[handle] for handle in handles]
        # Copies run on engines of their own, one for each direction.
        streams = [-1 - list(_COPY_NAMES.values()).index(n) if n in _COPY_NAMES.values() else -9
                   for n in names]  # fmt: skip
        return self._make_chunk(
            "memcpy",
            items,
            names,
            [(f"GPU {device}", stream) for device, stream in zip(devices, streams)],  # noqa: B905
            device=np.array(devices, dtype=np.int64),
            stream=np.array(streams, dtype=np.int64),
            bytes=np.array([-1 if i.bytes is None else i.bytes for i in items], dtype=np.int64),
        )

    def _read_calls(self, kind: str, items: Sequence[_Call], name: Callable[[_Call], str]) -> Chunk:
        tracks = [(self._process.metadata.pid, item.thread_id) for item in items]
        chunk = self._make_chunk(kind, items, [name(item) for item in items], tracks)
        if kind == "annotation" and items:
            del chunk.columns[schema.event_kind(kind)]["correlation"]
        return chunk

    def _make_chunk(
        self,
        kind: str,
        items: Sequence[_Call] | Sequence[_KernelDispatch],
        names: Sequence[str],
        tracks: Sequence[tuple[int | str, int]],
        **columns: NDArray[Any],
    ) -> Chunk:
        """Make a chunk of events of one kind."""
        strings, track_codes = kineto.Interner(), kineto.Interner()
        start = np.array([item.start_timestamp for item in items], dtype=np.int64)
        end = np.array([item.end_timestamp for item in items], dtype=np.int64)
        correlation = [item.correlation_id.internal for item in items]
        chunk = Chunk(event_count=len(items))
        if items:
            chunk.columns[schema.event_kind(kind)] = {
                "order": np.arange(len(items), dtype=np.int64),
                "track": kineto.codes_of(track_codes, tracks),
                "name": kineto.codes_of(strings, names),
                "start": np.where(
                    start == 0, INVALID, start
                ),  # 0 stands for a time that is missing
                "duration": end - start,
                "correlation": np.array(correlation, dtype=np.int64),
                **columns,
            }
        chunk.strings, chunk.tracks = list(strings), list(track_codes)
        return chunk


def _measure_grid(info: _Dispatch) -> tuple[int, int, int]:
    """Return the number of work groups by axis; the file states work items."""
    pairs = (
        (info.grid_size.x, info.workgroup_size.x),
        (info.grid_size.y, info.workgroup_size.y),
        (info.grid_size.z, info.workgroup_size.z),
    )
    x, y, z = (-(-items // size) if size else 0 for items, size in pairs)
    return x, y, z
