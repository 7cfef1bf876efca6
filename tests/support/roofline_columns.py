"""A trace drawn as a tree of calls with their kernels, as columns. Times are nanoseconds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepscope.analysis.roofline.accounting import Account, account_device_time


@dataclass(frozen=True)
class Strings:
    codes: Any
    values: list[str | None]


@dataclass(frozen=True)
class Launch:
    """A kernel, or a copy if `copied`."""

    name: str
    start: int
    duration: int
    copied: bool = False


@dataclass
class Op:
    """A call of an operator and the work that it launched itself."""

    name: str
    start: int = 0
    self_ns: int = 10
    dims: list[Any] | None = None
    types: list[str] | None = None
    values: list[str] | None = None
    launches: list[Launch] = field(default_factory=list)
    inside: list[Op] = field(default_factory=list)


def mm(start: int, *launches: tuple[int, int], size: int = 64, type_: str = "float") -> Op:
    """Make a square product whose kernels run at (start, duration)."""
    return Op(
        "aten::mm",
        start,
        dims=[[size, size], [size, size]],
        types=[type_, type_],
        values=["", ""],
        launches=[Launch("gemm", *times) for times in launches],
    )


def strings(texts: list[str | None]) -> Strings:
    values = list(dict.fromkeys(text for text in texts if text is not None))
    codes = [values.index(text) if text is not None else -1 for text in texts]
    return Strings(np.array(codes, dtype=np.int32), list(values))


def accounted(
    *ops: Op,
    orphans: list[Launch] | None = None,
    carry_over: list[Launch] | None = None,
    annotations: list[tuple[str, int, int]] | None = None,
    with_ids: tuple[int, int] = (7, 3),
) -> Account:
    """Account the device time of a trace.

    `annotations` are names with start and duration on the host; `with_ids` is the first id and
    their increment.
    """
    rows: list[tuple[Op, int, int]] = []
    first, step = with_ids

    def walk(op: Op, parent: int) -> None:
        number = first + step * len(rows)
        rows.append((op, number, parent))
        for inner in op.inside:
            walk(inner, number)

    for op in ops:
        walk(op, -1)
    launches = [(launch, number, 0) for op, number, _ in rows for launch in op.launches]
    launches += [(launch, -1, 0) for launch in orphans or []]
    launches += [(launch, -1, 1) for launch in carry_over or []]
    operators = {
        "id": _numbers([number for _, number, _ in rows]),
        "parent": _numbers([parent for _, _, parent in rows]),
        "start_ns": _numbers([op.start for op, _, _ in rows]),
        "host_self_ns": _numbers([op.self_ns for op, _, _ in rows]),
        "name": strings([op.name for op, _, _ in rows]),
        "input_dims": strings([_json(op.dims) for op, _, _ in rows]),
        "input_types": strings([_json(op.types) for op, _, _ in rows]),
        "input_strides": strings([None for _ in rows]),
        "concrete_inputs": strings([_json(op.values) for op, _, _ in rows]),
    }
    kernels, copies = (
        _events([launch for launch in launches if launch[0].copied == copied])
        for copied in (False, True)
    )
    ranges = annotations or []
    named_ranges = {
        "name": strings([name for name, _, _ in ranges]),
        "on_device": _numbers([0 for _ in ranges]),
        "start_ns": _numbers([start for _, start, _ in ranges]),
        "duration_ns": _numbers([duration for _, _, duration in ranges]),
    }
    return account_device_time(operators, kernels, copies, named_ranges)


def _events(rows: list[tuple[Launch, int, int]]) -> dict[str, Any]:
    return {
        "operator": _numbers([operator for _, operator, _ in rows]),
        "name": strings([launch.name for launch, _, _ in rows]),
        "start_ns": _numbers([launch.start for launch, _, _ in rows]),
        "duration_ns": _numbers([launch.duration for launch, _, _ in rows]),
        "carry_over": _numbers([carry_over for _, _, carry_over in rows]),
    }


def _numbers(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))
