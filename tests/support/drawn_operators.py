"""Calls of operators, written as a tree, and the columns a recording of them would have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np


class Strings(NamedTuple):
    codes: Any
    values: list[str | None]


def strings(texts: Sequence[str | None]) -> Strings:
    """A column of strings."""
    values = sorted({text for text in texts if text is not None})
    codes = [-1 if text is None else values.index(text) for text in texts]
    return Strings(np.array(codes, dtype=np.int32), list(values))


def numbers(values: Sequence[int]) -> Any:
    """A column of integers."""
    return np.array(values, dtype=np.int64)


@dataclass
class Op:
    """A call: time of its own, time in runtime calls of its own, kernels these launched, bytes
    that it allocated (or, negative, released) itself."""

    name: str
    own: int
    inside: list[Op] = field(default_factory=list)
    runtime: int = 0
    kernels: list[tuple[str, int]] = field(default_factory=list)
    dims: str | None = None
    allocations: list[int] = field(default_factory=list)
    id: int = -1

    @property
    def duration(self) -> int:
        return self.own + self.runtime + sum(op.duration for op in self.inside)

    @property
    def device_self(self) -> int:
        return sum(duration for _, duration in self.kernels)

    @property
    def device_total(self) -> int:
        return self.device_self + sum(op.device_total for op in self.inside)

    def walk(self, depth: int = 0, parent: int = -1) -> Iterator[tuple[Op, int, int]]:
        """Every call with its depth and the id of its caller, callers first."""
        yield self, depth, parent
        for op in self.inside:
            yield from op.walk(depth + 1, self.id)

    def merged(self) -> Op:
        """The call with only children of the same name taken into it, here and below."""
        call = self
        while len(call.inside) == 1 and call.inside[0].name == call.name:
            (child,) = call.inside
            call = replace(
                child,
                own=call.own + child.own,
                runtime=call.runtime + child.runtime,
                kernels=call.kernels + child.kernels,
                allocations=call.allocations + child.allocations,
            )
        return replace(call, inside=[inner.merged() for inner in call.inside])


def op(name: str, own: int, *inside: Op, **more: Any) -> Op:
    """A call that takes so long itself, and calls others."""
    return Op(name, own, list(inside), **more)


def number_calls(roots: Sequence[Op]) -> None:
    """Gives every call an id; they ascend, with holes, as places in a file do."""
    ids = iter(range(3, 1_000_000, 2))
    for root in roots:
        for call, _, _ in root.walk():
            call.id = next(ids)


def operator_columns(*roots: Op) -> dict[str, Any]:
    """The table `operators` of a recording of these calls, one after the other."""
    number_calls(roots)
    rows = [row for root in roots for row in root.walk()]
    starts: dict[int, int] = {}
    now = 1_000
    for root in roots:
        _place(root, now, starts)
        now += root.duration + 10
    return {
        "id": numbers([call.id for call, _, _ in rows]),
        "name": strings([call.name for call, _, _ in rows]),
        "parent": numbers([parent for _, _, parent in rows]),
        "depth": np.array([depth for _, depth, _ in rows], dtype=np.int16),
        "track": numbers([0] * len(rows)),
        "start_ns": numbers([starts[call.id] for call, _, _ in rows]),
        "duration_ns": numbers([call.duration for call, _, _ in rows]),
        "host_self_ns": numbers([call.own for call, _, _ in rows]),
        "device_self_ns": numbers([call.device_self for call, _, _ in rows]),
        "device_total_ns": numbers([call.device_total for call, _, _ in rows]),
        "runtime_ns": numbers([call.runtime for call, _, _ in rows]),
        "launched_ns": numbers([call.device_self for call, _, _ in rows]),
        "launched_below_ns": numbers([c.device_total - c.device_self for c, _, _ in rows]),
        "input_dims": strings([call.dims for call, _, _ in rows]),
        "python": numbers([-1] * len(rows)),
        "forward": numbers([-1] * len(rows)),
        "forward_thread": numbers([0] * len(rows)),
    }


def _place(call: Op, start: int, starts: dict[int, int]) -> None:
    starts[call.id] = start
    for inner in call.inside:
        _place(inner, start, starts)
        start += inner.duration


def kernel_columns(*roots: Op) -> dict[str, Any]:
    """The table `kernels` of the same recording; the calls have been numbered."""
    found = [
        (name, duration, call.id)
        for root in roots
        for call, _, _ in root.walk()
        for name, duration in call.kernels
    ]
    count = len(found)
    columns: dict[str, Any] = {
        "name": strings([name for name, _, _ in found]),
        "duration_ns": numbers([duration for _, duration, _ in found]),
        "operator": numbers([operator for _, _, operator in found]),
        "carry_over": numbers([0] * count),
        "blocks_per_multiprocessor": np.full(count, np.nan),
        "occupancy_percent": np.full(count, np.nan),
    }
    properties = ("grid", "block")
    for each in (f"{name}_{axis}" for name in properties for axis in "xyz"):
        columns[each] = numbers([-1] * count)
    for each in ("registers_per_thread", "shared_memory_bytes", "graph", "launch"):
        columns[each] = numbers([-1] * count)
    return columns
