"""A caching allocator that allocates nothing, and its snapshots as torch.cuda.memory writes them.

It knows at any time which blocks are allocated, as the expectation of a replay.
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from typing import Any, NamedTuple

START_US = 1_796_000_000_000_000
ROUNDING = 512
Frames = list[dict[str, Any]]


def stack(function: str = "step", line: int = 12, file: str = "/home/u/train.py") -> Frames:
    """Return the frames of an allocation by a line of the job, innermost first."""
    return [
        frame("empty_cuda", 0, "??"),
        frame("relu", 1500, "/env/lib/python3.11/site-packages/torch/nn/functional.py"),
        frame(function, line, file),
        frame("<module>", 40, file),
    ]


def frame(name: str, line: int, file: str) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


class Owner(NamedTuple):
    """Block that is allocated."""

    size: int
    function: str


class Allocator:
    """Caching allocator of one device, first fit, without joining free blocks.

    Args:
        max_entries: size of the ring of its history.
        device: number of the device.
        segment_bytes: size of its segments.
    """

    def __init__(
        self, max_entries: int = 10_000, device: int = 0, segment_bytes: int = 1 << 20
    ) -> None:
        self.device = device
        self.segment_bytes = segment_bytes
        self.segments: list[dict[str, Any]] = []
        self.history: deque[dict[str, Any]] = deque(maxlen=max_entries)
        self.owners: deque[tuple[dict[int, Owner], int]] = deque(maxlen=max_entries)
        """Allocated blocks by address, and reserved bytes, after each entry of the history."""
        self.before: tuple[dict[int, Owner], int] = ({}, 0)
        """The same before the first entry of the ring."""
        self._now: dict[int, Owner] = {}
        self._count = 0

    @property
    def reserved_bytes(self) -> int:
        return sum(segment["total_size"] for segment in self.segments)

    def allocate(self, size: int, function: str = "step") -> int:
        """Allocate a block, and return its address."""
        rounded = -(-size // ROUNDING) * ROUNDING
        frames = stack(function)
        block = self._find_free(rounded)
        if block is None:
            block = self._reserve(max(rounded, self.segment_bytes), frames)
        self._split(block, rounded)
        block.update(state="active_allocated", requested_size=size, frames=frames)
        self._now[block["address"]] = Owner(size, function)
        self._note("alloc", block["address"], size, frames)
        return int(block["address"])

    def release(self, address: int, *, is_awaited: bool = False) -> None:
        """Release a block; an awaited one is still in use by another stream."""
        block = next(b for s in self.segments for b in s["blocks"] if b["address"] == address)
        size = self._now.pop(address).size
        block["state"] = "active_awaiting_free"
        self._note("free_requested", address, size, stack("clean", 20))
        if not is_awaited:
            block["state"] = "inactive"
            self._note("free_completed", address, size, stack("clean", 20))

    def fail(self, size: int, function: str = "step", free: int = 4096) -> None:
        """Fail an allocation."""
        frames = stack(function)
        entry = {"action": "oom", "device_free": free, "size": size, "stream": 0, "frames": frames}
        self._append(entry)

    def snapshot(self) -> dict[str, Any]:
        """Return the structure of torch.cuda.memory._snapshot()."""
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device)]
        return {
            "segments": self.segments,
            "device_traces": [*traces, list(self.history)],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
            "external_annotations": [],
        }

    def dump(self, protocol: int = 4) -> bytes:
        """Return the content of a file of torch.cuda.memory._dump_snapshot()."""
        return pickle.dumps(self.snapshot(), protocol)

    def _find_free(self, size: int) -> dict[str, Any] | None:
        blocks = (block for segment in self.segments for block in segment["blocks"])
        return next((b for b in blocks if b["state"] == "inactive" and b["size"] >= size), None)

    def _reserve(self, size: int, frames: Frames) -> dict[str, Any]:
        address = 0x7F00_0000_0000 + len(self.segments) * (1 << 32)
        block = {"address": address, "size": size, "state": "inactive", "requested_size": 0}
        block["frames"] = []
        self.segments.append(
            {
                "device": self.device,
                "address": address,
                "total_size": size,
                "allocated_size": 0,
                "active_size": 0,
                "requested_size": 0,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": frames,
                "blocks": [block],
            }
        )
        self._note("segment_alloc", address, size, frames)
        return block

    def _split(self, block: dict[str, Any], size: int) -> None:
        rest = block["size"] - size
        if not rest:
            return
        blocks = next(s["blocks"] for s in self.segments if block in s["blocks"])
        block["size"] = size
        free = {**block, "address": block["address"] + size, "size": rest, "frames": []}
        blocks.insert(blocks.index(block) + 1, free)

    def _note(self, action: str, address: int, size: int, frames: Frames) -> None:
        self._append(
            {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames}
        )

    def _append(self, entry: dict[str, Any]) -> None:
        if len(self.owners) == self.owners.maxlen:
            self.before = self.owners[0]
        entry |= {"time_us": START_US + 10 * self._count, "pool_id": (0, 0)}
        self._count += 1
        self.history.append(entry)
        self.owners.append((dict(self._now), self.reserved_bytes))


def train(allocator: Allocator, actions: int, seed: int = 0) -> Allocator:
    """Allocate and release blocks at random."""
    numbers = random.Random(seed)
    addresses: list[int] = []
    for _ in range(actions):
        if addresses and numbers.random() < 0.45:
            address = addresses.pop(numbers.randrange(len(addresses)))
            allocator.release(address, is_awaited=numbers.random() < 0.1)
        else:
            size = numbers.randrange(1, 300_000)
            addresses.append(allocator.allocate(size, f"layer{numbers.randrange(4)}"))
    return allocator
