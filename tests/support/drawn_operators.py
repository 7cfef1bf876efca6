"""Calls of operators, written as a tree, and the columns of a trace of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np


class Strings(NamedTuple):
    codes: Any
    values: list[str | None]


def strings(texts: Sequence[str | None]) -> Strings:
    """Return a column of strings."""
    values = sorted({text for text in texts if text is not None})
    codes = [-1 if text is None else values.index(text) for text in texts]
    return Strings(np.array(codes, dtype=np.int32), list(values))


def numbers(values: Sequence[int]) -> Any:
    """Return a column of integers."""
    return np.array(values, dtype=np.int64)


@dataclass
class Op:
    """Call with its self time, runtime calls, kernels that these launched, and allocated bytes.

    Released bytes are negative.
    """

    name: str
    self_ns: int
    inside: list[Op] = field(default_factory=list)
    runtime: int = 0
    kernels: list[tuple[str, int]] = field(default_factory=list)
    dims: str | None = None
    allocations: list[int] = field(default_factory=list)
    id: int = -1

    @property
    def duration(self) -> int:
        return self.self_ns + self.runtime + sum(op.duration for op in self.inside)

    @property
    def device_self(self) -> int:
        return sum(duration for _, duration in self.kernels)

    @property
    def device_total(self) -> int:
        return self.device_self + sum(op.device_total for op in self.inside)

    def walk(self, depth: int = 0, parent: int = -1) -> Iterator[tuple[Op, int, int]]:
        """Yield every call with its depth and the id of its caller, callers first."""
        yield self, depth, parent
        for op in self.inside:
            yield from op.walk(depth + 1, self.id)

    def merged(self) -> Op:
        """Merge calls whose only child has the same name, here and below."""
        call = self
        while len(call.inside) == 1 and call.inside[0].name == call.name:
            (child,) = call.inside
            call = replace(
                child,
                self_ns=call.self_ns + child.self_ns,
                runtime=call.runtime + child.runtime,
                kernels=call.kernels + child.kernels,
                allocations=call.allocations + child.allocations,
            )
        return replace(call, inside=[inner.merged() for inner in call.inside])


def op(name: str, self_ns: int, *inside: Op, **more: Any) -> Op:
    """Return a call with its self time and the calls inside it."""
    return Op(name, self_ns, list(inside), **more)


def number_calls(roots: Sequence[Op]) -> None:
    """Give every call an id; ids ascend with gaps, like indices in a file."""
    ids = iter(range(3, 1_000_000, 2))
    for root in roots:
        for call, _, _ in root.walk():
            call.id = next(ids)


def operator_columns(*roots: Op) -> dict[str, Any]:
    """Return the table `operators` of a trace of these calls in sequence."""
    number_calls(roots)
    rows = [row for root in roots for row in root.walk()]
    starts: dict[int, int] = {}
    now = 1_000
    for root in roots:
        _schedule(root, now, starts)
        now += root.duration + 10
    return {
        "id": numbers([call.id for call, _, _ in rows]),
        "name": strings([call.name for call, _, _ in rows]),
        "parent": numbers([parent for _, _, parent in rows]),
        "depth": np.array([depth for _, depth, _ in rows], dtype=np.int16),
        "track": numbers([0] * len(rows)),
        "start_ns": numbers([starts[call.id] for call, _, _ in rows]),
        "duration_ns": numbers([call.duration for call, _, _ in rows]),
        "host_self_ns": numbers([call.self_ns for call, _, _ in rows]),
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


def _schedule(call: Op, start: int, starts: dict[int, int]) -> None:
    starts[call.id] = start
    for inner in call.inside:
        _schedule(inner, start, starts)
        start += inner.duration


def kernel_columns(*roots: Op) -> dict[str, Any]:
    """Return the table `kernels` of the same trace; the calls must have ids."""
    kernels = [
        (name, duration, call.id)
        for root in roots
        for call, _, _ in root.walk()
        for name, duration in call.kernels
    ]
    count = len(kernels)
    columns: dict[str, Any] = {
        "name": strings([name for name, _, _ in kernels]),
        "duration_ns": numbers([duration for _, duration, _ in kernels]),
        "operator": numbers([operator for _, _, operator in kernels]),
        "carry_over": numbers([0] * count),
        "blocks_per_multiprocessor": np.full(count, np.nan),
        "occupancy_percent": np.full(count, np.nan),
        "warps_per_multiprocessor": np.full(count, np.nan),
    }
    properties = ("grid", "block")
    for column in (f"{name}_{axis}" for name in properties for axis in "xyz"):
        columns[column] = numbers([-1] * count)
    for column in (
        "registers_per_thread",
        "shared_memory_bytes",
        "graph",
        "launch",
        "captured_operator",
    ):
        columns[column] = numbers([-1] * count)
    return columns
