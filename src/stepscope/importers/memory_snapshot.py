"""Importer of snapshots of PyTorch's caching allocator, which `torch.cuda.memory._dump_snapshot`
writes.

    {"segments": [{…, "blocks": [{…, "frames": […]}, …]}, …],
     "device_traces": [[{"action": "alloc", …, "frames": […]}, …], …],    one list per device
     "allocator_settings": {…}}

The format is described at `torch.cuda.memory._snapshot`
(https://github.com/pytorch/pytorch/blob/main/torch/cuda/memory.py). Older snapshots are the list of
segments alone, and their blocks have a `history` with frames.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from stepscope import schema, store
from stepscope.importers.content import (
    Format,
    ProgressCallback,
    Recorded,
    Result,
    read_content,
    refuse,
)
from stepscope.importers.plain_pickle import PICKLE, check_plain, load_plain

FORMAT = Format(
    name="memory snapshot",
    tables=tuple(table.name for table in schema.SNAPSHOT_TABLES),
    file="memory snapshot",
    event="action",
    sentence="{files}, {events} in {run}",
    view="memory-snapshot",
)
_KEYS = (b"segments", b"device_traces", b"total_allocated", b"total_size")
_Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Int64 = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Size = Annotated[int, Meta(ge=0, le=2**60)]
_Microseconds = Annotated[int, Meta(ge=0, le=2**62 // 1000)]
_UNKNOWN_FRAME = "?||0"
_SEPARATORS = str.maketrans(";|\n", ",, ")


class _Block(msgspec.Struct):
    size: _Size
    state: str
    address: _Int64 | None = None
    requested_size: _Size | None = None
    frames: Any = None
    history: Any = None


class _Segment(msgspec.Struct):
    address: _Int64
    total_size: _Size
    blocks: list[_Block]
    device: _Int32 = 0
    stream: _Int64 = 0
    segment_type: str = "large"
    segment_pool_id: tuple[int, int] | None = None
    is_expandable: bool = False


class _Action(msgspec.Struct):
    action: str
    size: _Size
    addr: _Int64 | None = None
    stream: _Int64 = 0
    device_free: _Int64 | None = None
    time_us: _Microseconds | None = None
    frames: Any = None


class _Snapshot(msgspec.Struct):
    segments: list[_Segment]
    device_traces: list[list[_Action]] = []
    allocator_settings: dict[Any, Any] = {}

    @property
    def devices(self) -> list[int]:
        """Devices with segments or a history."""
        recorded = (device for device, actions in enumerate(self.device_traces) if actions)
        return sorted({*recorded, *(segment.device for segment in self.segments)})


class SnapshotIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a snapshot."""

    name: str
    rank: int | None = None
    process: str | None = None
    """Process that stepscope watched."""


class MemorySnapshotImporter:
    """Importer of snapshots; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a pickle that begins like a snapshot."""
        return is_memory_snapshot(head)

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import snapshots one after the other; see `registry.Importer.import_files`."""
        results: list[Result] = []
        with store.RunWriter(run, node) as writer:
            for index, path in enumerate(files):
                identity = SnapshotIdentity(name=path.name, rank=schema.rank_in_name(path.name))
                try:
                    count = import_snapshot(path, writer, identity)
                except (OSError, EOFError, zlib.error, ValueError) as error:
                    results.append(refuse(path, error))
                else:
                    results.append(Recorded(name=path.name, form=FORMAT.name, event_count=count))
                progress(index, 1.0)
        return results


def is_memory_snapshot(content: bytes) -> bool:
    """Return True for the start of a pickle of torch.cuda.memory's snapshots."""
    return bool(PICKLE.match(content)) and any(key in content for key in _KEYS)


def import_snapshot(path: Path, writer: store.RunWriter, identity: SnapshotIdentity) -> int:
    """Import a snapshot, and return the number of actions in its history.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read, or the run not be written.
        ValueError: it is no complete snapshot, or holds more than plain data.
    """
    content = read_content(path)
    check_plain(content)
    data = load_plain(content)
    try:
        snapshot = msgspec.convert(
            {"segments": data} if isinstance(data, list) else data, _Snapshot
        )
    except msgspec.ValidationError as error:
        raise ValueError(f"it is no memory snapshot ({error})") from error
    devices = snapshot.devices
    if not devices:
        raise ValueError("it has no memory: no device was used before it was taken")
    number, stacks = secrets.randbits(48), _Stacks()
    actions = [
        (device, action)
        for device, actions in enumerate(snapshot.device_traces)
        for action in actions
    ]
    tables = {
        "memory_segments": _make_segments(number, snapshot.segments),
        "memory_blocks": _make_blocks(number, snapshot.segments, stacks),
        "memory_history": _make_history(number, actions, stacks),
        "memory_snapshots": _make_devices(number, identity, devices, snapshot.allocator_settings),
    }  # the last one comes last: a snapshot with it is complete
    for table, columns in tables.items():
        writer.append(table, columns)
    return len(actions)


def _make_devices(
    number: int, identity: SnapshotIdentity, devices: Sequence[int], settings: Mapping[Any, Any]
) -> dict[str, Any]:
    count = len(devices)
    texts = {str(key): str(value) for key, value in settings.items()}
    return {
        "snapshot": np.full(count, number, dtype=np.int64),
        "name": store.DictColumn.constant(identity.name, count),
        "rank": _integers([identity.rank] * count, np.int32),
        "process": store.DictColumn.constant(identity.process, count),
        "device": np.array(devices, dtype=np.int32),
        "settings": store.DictColumn.constant(json.dumps(texts) if texts else None, count),
    }


def _make_segments(number: int, segments: Sequence[_Segment]) -> dict[str, Any]:
    pools = (segment.segment_pool_id for segment in segments)
    return {
        **_identify(number, [segment.device for segment in segments]),
        "address": np.array([segment.address for segment in segments], dtype=np.int64),
        "size_bytes": np.array([segment.total_size for segment in segments], dtype=np.int64),
        "stream": np.array([segment.stream for segment in segments], dtype=np.int64),
        "kind": store.DictColumn.encode(_clean(segment.segment_type) for segment in segments),
        "pool": store.DictColumn.encode(f"{pool[0]}.{pool[1]}" if pool else None for pool in pools),
        "is_expandable": np.array([segment.is_expandable for segment in segments], dtype=np.int16),
    }


def _make_blocks(number: int, segments: Sequence[_Segment], stacks: _Stacks) -> dict[str, Any]:
    blocks = [
        (row, segment, block) for row, segment in enumerate(segments) for block in segment.blocks
    ]
    return {
        **_identify(number, [segment.device for _, segment, _ in blocks]),
        "segment": np.array([row for row, _, _ in blocks], dtype=np.int64),
        "address": np.array(
            [address for segment in segments for address in _list_addresses(segment)],
            dtype=np.int64,
        ),
        "size_bytes": np.array([block.size for _, _, block in blocks], dtype=np.int64),
        "requested_bytes": _integers([block.requested_size for _, _, block in blocks]),
        "state": store.DictColumn.encode(_clean(block.state) for _, _, block in blocks),
        "stack": stacks.encode(_find_frames(block) for _, _, block in blocks),
    }


def _list_addresses(segment: _Segment) -> Iterable[int]:
    """List the addresses of blocks, which follow one another; older snapshots lack them."""
    address = segment.address
    for block in segment.blocks:
        address = min(address if block.address is None else block.address, 2**62)
        yield address
        address += block.size


def _find_frames(block: _Block) -> Any:
    """Return the frames of a block, which older snapshots have in its history."""
    latest = block.history[0] if isinstance(block.history, list) and block.history else None
    return latest.get("frames") if isinstance(latest, dict) else block.frames


def _make_history(
    number: int, actions: Sequence[tuple[int, _Action]], stacks: _Stacks
) -> dict[str, Any]:
    times = (action.time_us for _, action in actions)
    return {
        **_identify(number, [device for device, _ in actions]),
        "t_ns": _integers([None if time is None else 1000 * time for time in times]),
        "action": store.DictColumn.encode(_clean(action.action) for _, action in actions),
        "address": _integers([action.addr for _, action in actions]),
        "size_bytes": np.array([action.size for _, action in actions], dtype=np.int64),
        "stream": np.array([action.stream for _, action in actions], dtype=np.int64),
        "device_free_bytes": _integers([action.device_free for _, action in actions]),
        "stack": stacks.encode(action.frames for _, action in actions),
    }


def _identify(number: int, devices: Sequence[int]) -> dict[str, Any]:
    return {
        "snapshot": np.full(len(devices), number, dtype=np.int64),
        "id": np.arange(len(devices), dtype=np.int64),
        "device": np.array(devices, dtype=np.int32),
    }


class _Stacks:
    """Texts of stacks. The recorder shares frames between stacks, so that each is read once."""

    def __init__(self) -> None:
        self._frames: dict[int, tuple[str, bool]] = {}
        """Text of a frame, and True for one of Python, by the identity of its object."""
        self._stacks: dict[tuple[int, ...], str] = {}

    def encode(self, stacks: Iterable[Any]) -> store.DictColumn:
        """Encode lists of frames, innermost first."""
        return store.DictColumn.encode(
            self._read(frames) if isinstance(frames, list) and frames else None for frames in stacks
        )

    def _read(self, frames: list[Any]) -> str:
        key = tuple(map(id, frames))
        if key not in self._stacks:
            texts = [self._read_frame(frame) for frame in reversed(frames)]
            in_python = [text for text, is_python in texts if is_python]
            self._stacks[key] = ";".join(in_python or [text for text, _ in texts])
        return self._stacks[key]

    def _read_frame(self, frame: Any) -> tuple[str, bool]:
        if id(frame) not in self._frames:
            self._frames[id(frame)] = _read_frame(frame)
        return self._frames[id(frame)]


def _read_frame(frame: Any) -> tuple[str, bool]:
    if not isinstance(frame, dict):
        return _UNKNOWN_FRAME, False
    name, file, line = (frame.get(key) for key in ("name", "filename", "line"))
    if not (isinstance(name, str) and isinstance(file, str) and isinstance(line, int)):
        return _UNKNOWN_FRAME, False
    texts = (_clean(text).translate(_SEPARATORS) for text in (name, file))
    return "|".join((*texts, str(line))), file.endswith(".py") or file.startswith("<")


def _clean(text: str) -> str:
    """Return a text without halves of characters, which a pickle can have and a table cannot."""
    return text.encode("utf-8", "replace").decode()


def _integers(values: Sequence[int | None], dtype: Any = np.int64) -> np.ma.MaskedArray:
    mask = np.array([value is None for value in values], dtype=np.bool_)
    return np.ma.MaskedArray(np.array([value or 0 for value in values], dtype=dtype), mask=mask)
