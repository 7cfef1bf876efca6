"""Memory of a device from a snapshot of its allocator: history, holders, fragmentation.

    end            sum of the requested sizes of the allocated blocks of the snapshot
    allocated(i)   end - sum over the later actions: + size of an allocation, - size of a release
    reserved(i)    size of the segments, replayed from their actions in the same way
    peak           the maximum of allocated, at the first action that reaches it

An allocation and the next action at the same address are one block, released by the latter. A
release without an allocation, and a block of the snapshot without one, are of blocks from before
the history, which is a ring of the latest actions. A release counts when the job asks for it, as in
torch.cuda.memory_allocated; another stream may still use the block
(https://docs.pytorch.org/docs/stable/torch_cuda_memory.html).

    rounding        sum of size - requested size of allocated blocks
    free            sum of the sizes of free blocks: reserved, and not used
    fragmentation   1 - largest free block / free

A free block serves a request only if it is at least as large, of the same pool and stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.devices.memory_use import find_extremes

RELEASES = ("free_requested", "free_completed")
"""Actions that release a block; the first one that a history has counts."""
ALLOCATED, AWAITING, FREE = "active_allocated", "active_awaiting_free", "inactive"
_SEGMENT_SIGNS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|^<|/pytorch/torch/")
_NOTHING = -1


class SnapshotDevice(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Tables of one device in a snapshot."""

    segments: Mapping[str, Any]
    """`size_bytes` of `memory_segments`."""
    blocks: Mapping[str, Any]
    """`address`, `size_bytes`, `requested_bytes`, `state`, `stack` of `memory_blocks`; strings are
    dictionary-encoded, missing numbers -1."""
    history: Mapping[str, Any]
    """`t_ns`, `action`, `address`, `size_bytes`, `device_free_bytes`, `stack` of `memory_history`,
    in its order."""


class SnapshotHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that one line of the job has allocated and holds."""

    function: Annotated[str | None, schema.field_label("allocated by")]
    """Innermost function outside of libraries, or of all; null without a stack."""
    file: str | None
    line: int | None
    block_count: int
    held_bytes: int
    held_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of the memory that was allocated."""


class AllocatorMoment(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Memory after an action of the history."""

    index: int
    """Position of the action; -1 before the first one."""
    t_ns: int | None
    allocated_bytes: int
    reserved_bytes: int
    holders: list[SnapshotHolder]
    """The largest first."""


class FailedAllocation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Allocation that failed because memory was full."""

    requested_bytes: int
    device_free_bytes: int | None
    moment: AllocatorMoment
    function: str | None
    file: str | None
    line: int | None
    is_last: bool
    """True if nothing was allocated or released since: the blocks of the snapshot are those of
    this time."""


class Fragmentation(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the reserved memory when the snapshot was taken."""

    reserved_bytes: int
    allocated_bytes: int
    """As requested, without rounding."""
    rounding_bytes: int
    awaiting_bytes: Annotated[int, schema.field_label("released, still in use")]
    """Released blocks that another stream still uses."""
    free_bytes: int
    largest_free_bytes: Annotated[int, schema.field_label("largest free block")]
    free_block_count: int
    fragmentation_ratio: float | None
    """1 - largest free block / free memory; null without free memory."""


class AllocatorCurve(NamedTuple):
    """Memory over time, in the order of the actions."""

    t_ns: intervals.Int | None
    """None if the history has no times."""
    allocated_bytes: intervals.Int
    reserved_bytes: intervals.Int


class AllocatorReplay:
    """Replay of the history of one device."""

    def __init__(self, device: SnapshotDevice) -> None:
        self._blocks, self._history = device.blocks, device.history
        action = device.history["action"]
        names = [name or "" for name in action.values]
        release = next((name for name in RELEASES if name in names), RELEASES[0])
        self._release = release
        sign = np.array([{"alloc": 1, release: -1}.get(name, 0) for name in names], dtype=np.int64)
        segment_sign = np.array([_SEGMENT_SIGNS.get(name, 0) for name in names], dtype=np.int64)
        codes, size = action.codes, device.history["size_bytes"]
        self._sign = sign[codes] if len(names) else np.empty(0, dtype=np.int64)
        self._is_oom = np.array([name == "oom" for name in names], dtype=np.bool_)[codes]
        self.allocated_bytes = _replay(self._sign * size, self._end_bytes)
        """Bytes after each action, the first before all of them."""
        self.reserved_bytes = _replay(
            segment_sign[codes] * size if len(names) else size,
            int(device.segments["size_bytes"].sum()),
        )
        self._lives = self._find_lives()

    @property
    def is_consistent(self) -> bool:
        """False if the history and the blocks do not fit together: sizes would be negative."""
        return bool(self.allocated_bytes.min() >= 0 and self.reserved_bytes.min() >= 0)

    @property
    def _end_bytes(self) -> int:
        rows = self._held_rows
        requested, size = self._blocks["requested_bytes"][rows], self._blocks["size_bytes"][rows]
        return int(np.where(requested >= 0, requested, size).sum())

    @property
    def _held_rows(self) -> intervals.Int:
        """Rows of the blocks that are allocated at the end."""
        state = self._blocks["state"]
        states = {ALLOCATED} if self._release == RELEASES[0] else {ALLOCATED, AWAITING}
        is_held = np.array([value in states for value in state.values], dtype=np.bool_)
        return np.flatnonzero(is_held[state.codes] & (state.codes >= 0))

    def _find_lives(self) -> _Lives:
        """Find the blocks with the actions between which they are allocated."""
        history, blocks = self._history, self._blocks
        rows = np.flatnonzero(self._sign)
        order = rows[np.lexsort((rows, history["address"][rows]))]
        address, sign = history["address"][order], self._sign[order]
        is_same = np.append(address[1:] == address[:-1], False) if len(order) else sign > 0
        following = np.where(is_same, np.append(order[1:], 0), len(self._sign))
        is_alloc = sign > 0
        is_earlier = ~is_alloc & ~np.append(False, is_same[:-1])[: len(order)]
        # Blocks of the snapshot whose allocation the ring has are those without a release.
        open_addresses = address[is_alloc & ~is_same]
        older = self._held_rows
        older = older[~np.isin(blocks["address"][older], open_addresses)]
        requested, size = blocks["requested_bytes"][older], blocks["size_bytes"][older]
        stacks = [*history["stack"].values, *blocks["stack"].values]
        block_stack = blocks["stack"].codes[older]
        shift = len(history["stack"].values)
        return _Lives(
            start=np.concatenate(
                [order[is_alloc], np.full(int(is_earlier.sum()) + len(older), _NOTHING)]
            ),
            end=np.concatenate(
                [following[is_alloc], order[is_earlier], np.full(len(older), len(self._sign))]
            ),
            size_bytes=np.concatenate(
                [
                    history["size_bytes"][order[is_alloc]],
                    history["size_bytes"][order[is_earlier]],
                    np.where(requested >= 0, requested, size),
                ]
            ),
            stack=np.concatenate(
                [
                    history["stack"].codes[order[is_alloc]],
                    np.full(int(is_earlier.sum()), _NOTHING),
                    np.where(block_stack >= 0, block_stack + shift, _NOTHING),
                ]
            ),
            stacks=[stack or "" for stack in stacks],
        )

    def find_peak(self, top: int) -> AllocatorMoment:
        """Explain the peak."""
        return self.explain(int(self.allocated_bytes.argmax()) - 1, top)

    def explain(self, index: int, top: int) -> AllocatorMoment:
        """Return what is allocated after an action, -1 for the start of the history.

        Args:
            index: position of the action.
            top: limit of holders, 0 for all.
        """
        t_ns = self._history["t_ns"][index] if index >= 0 else _NOTHING
        return AllocatorMoment(
            index=index,
            t_ns=None if t_ns < 0 else int(t_ns),
            allocated_bytes=int(self.allocated_bytes[index + 1]),
            reserved_bytes=int(self.reserved_bytes[index + 1]),
            holders=self._lives.sum_by_line(index, top),
        )

    def downsample(self, points: int, *, bucket_ns: int | None = None) -> AllocatorCurve:
        """Downsample the levels after the actions, keeping extremes; see `downsample_curve`."""
        t_ns = self._history["t_ns"]
        allocated, reserved = self.allocated_bytes[1:], self.reserved_bytes[1:]
        if not len(t_ns):
            return AllocatorCurve(None, self.allocated_bytes, self.reserved_bytes)
        has_times = bool((t_ns >= 0).all() and (np.diff(t_ns) >= 0).all())
        if (has_times and bucket_ns is not None) or len(t_ns) > points:
            rows = find_extremes(
                t_ns if has_times else np.arange(len(t_ns), dtype=np.int64),
                [-allocated, allocated, reserved],
                points,
                bucket_ns=bucket_ns if has_times else None,
            )
            t_ns, allocated, reserved = t_ns[rows], allocated[rows], reserved[rows]
        return AllocatorCurve(t_ns if has_times else None, allocated, reserved)

    def list_failures(self, top: int) -> list[FailedAllocation]:
        """List the allocations that failed, the latest first."""
        failures = []
        for index in reversed(np.flatnonzero(self._is_oom).tolist()):
            free = int(self._history["device_free_bytes"][index])
            code = int(self._history["stack"].codes[index])
            frame = (
                _find_user_frame(self._history["stack"].values[code] or "") if code >= 0 else None
            )
            function, file, line = frame or (None, None, None)
            failures.append(
                FailedAllocation(
                    requested_bytes=int(self._history["size_bytes"][index]),
                    device_free_bytes=None if free < 0 else free,
                    moment=self.explain(index, top),
                    function=function,
                    file=file,
                    line=line,
                    is_last=not self._sign[index:].any(),
                )
            )
        return failures


class _Lives(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Blocks with the actions that allocate and release them."""

    start: intervals.Int
    """-1 for a block from before the history."""
    end: intervals.Int
    size_bytes: intervals.Int
    stack: intervals.Int
    """Index in `stacks`; -1 if unknown."""
    stacks: list[str]

    def sum_by_line(self, index: int, top: int) -> list[SnapshotHolder]:
        """Sum the blocks that are allocated after an action by the line of the job."""
        rows = np.flatnonzero((self.start <= index) & (self.end > index))
        by_frame: dict[Frame | None, list[int]] = {}
        for stack in np.unique(self.stack[rows]).tolist():
            of_stack = rows[self.stack[rows] == stack]
            frame = _find_user_frame(self.stacks[stack]) if stack >= 0 else None
            sums = by_frame.setdefault(frame, [0, 0])
            sums[0] += int(self.size_bytes[of_stack].sum())
            sums[1] += len(of_stack)
        total = sum(size for size, _ in by_frame.values())
        holders = [
            SnapshotHolder(
                function=frame[0] if frame else None,
                file=frame[1] if frame else None,
                line=frame[2] if frame else None,
                block_count=count,
                held_bytes=size,
                held_ratio=size / total if total else None,
            )
            for frame, (size, count) in by_frame.items()
        ]
        holders.sort(key=lambda holder: -holder.held_bytes)
        return holders[: top or None]


Frame = tuple[str, str, int | None]
"""Function, file, line."""


def measure_fragmentation(device: SnapshotDevice) -> Fragmentation:
    """Measure the use of the reserved memory when the snapshot was taken."""
    size, requested = device.blocks["size_bytes"], device.blocks["requested_bytes"]
    requested = np.where(requested >= 0, requested, size)
    is_allocated, is_awaiting, is_free = (
        _is_in_state(device.blocks["state"], state) for state in (ALLOCATED, AWAITING, FREE)
    )
    free_bytes = int(size[is_free].sum())
    largest = int(size[is_free].max(initial=0))
    return Fragmentation(
        reserved_bytes=int(device.segments["size_bytes"].sum()),
        allocated_bytes=int(requested[is_allocated].sum()),
        rounding_bytes=int((size - requested)[is_allocated].sum()),
        awaiting_bytes=int(size[is_awaiting].sum()),
        free_bytes=free_bytes,
        largest_free_bytes=largest,
        free_block_count=int(is_free.sum()),
        fragmentation_ratio=1 - largest / free_bytes if free_bytes else None,
    )


def _is_in_state(state: Any, name: str) -> NDArray[np.bool_]:
    is_one = np.array([value == name for value in state.values], dtype=np.bool_)
    return np.asarray(is_one[state.codes]) if len(is_one) else np.zeros(0, dtype=np.bool_)


def _replay(changes: intervals.Int, end: int) -> intervals.Int:
    """Return the level before the first change and after each, from that after the last one."""
    levels = np.concatenate([[0], np.cumsum(changes)])
    return np.asarray(levels + (end - levels[-1]))


def _find_user_frame(stack: str) -> Frame | None:
    """Return the innermost frame outside of libraries, or else of all; None without a stack."""
    frames = [_parse_frame(text) for text in stack.split(";") if text]
    for frame in reversed(frames):
        if frame[1].endswith(".py") and not _LIBRARY.search(frame[1]):
            return frame
    return frames[-1] if frames else None


def _parse_frame(text: str) -> Frame:
    function, _, rest = text.partition("|")
    file, _, line = rest.rpartition("|")
    return function, file, int(line) if line.isdecimal() and int(line) else None
