"""A recording drawn as a tree of calls with their kernels, as columns. Times are nanoseconds."""

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
    """A kernel, or a copy where `copied`."""

    name: str
    start: int
    duration: int
    copied: bool = False


@dataclass
class Op:
    """A call of an operator and what it launched itself."""

    name: str
    start: int = 0
    own: int = 10
    dims: list[Any] | None = None
    types: list[str] | None = None
    values: list[str] | None = None
    launches: list[Launch] = field(default_factory=list)
    inside: list[Op] = field(default_factory=list)


def mm(start: int, *launches: tuple[int, int], size: int = 64, type_: str = "float") -> Op:
    """A square product whose kernels run at (start, duration)."""
    return Op(
        "aten::mm",
        start,
        dims=[[size, size], [size, size]],
        types=[type_, type_],
        values=["", ""],
        launches=[Launch("gemm", *each) for each in launches],
    )


def strings(texts: list[str | None]) -> Strings:
    values = list(dict.fromkeys(text for text in texts if text is not None))
    codes = [values.index(text) if text is not None else -1 for text in texts]
    return Strings(np.array(codes, dtype=np.int32), list(values))


def accounted(
    *ops: Op,
    orphans: list[Launch] | None = None,
    carried: list[Launch] | None = None,
    with_ids: tuple[int, int] = (7, 3),
) -> Account:
    """The account of a recording; ids begin at and step by `with_ids`."""
    rows: list[tuple[Op, int, int]] = []
    first, step = with_ids

    def walk(op: Op, parent: int) -> None:
        number = first + step * len(rows)
        rows.append((op, number, parent))
        for each in op.inside:
            walk(each, number)

    for op in ops:
        walk(op, -1)
    launches = [(each, number, 0) for op, number, _ in rows for each in op.launches]
    launches += [(each, -1, 0) for each in orphans or []]
    launches += [(each, -1, 1) for each in carried or []]
    operators = {
        "id": _numbers([number for _, number, _ in rows]),
        "parent": _numbers([parent for _, _, parent in rows]),
        "start_ns": _numbers([op.start for op, _, _ in rows]),
        "host_self_ns": _numbers([op.own for op, _, _ in rows]),
        "name": strings([op.name for op, _, _ in rows]),
        "input_dims": strings([_json(op.dims) for op, _, _ in rows]),
        "input_types": strings([_json(op.types) for op, _, _ in rows]),
        "input_strides": strings([None for _ in rows]),
        "concrete_inputs": strings([_json(op.values) for op, _, _ in rows]),
    }
    kernels, copies = (
        _events([each for each in launches if each[0].copied == copied]) for copied in (False, True)
    )
    return account_device_time(operators, kernels, copies)


def _events(rows: list[tuple[Launch, int, int]]) -> dict[str, Any]:
    return {
        "operator": _numbers([operator for _, operator, _ in rows]),
        "name": strings([each.name for each, _, _ in rows]),
        "start_ns": _numbers([each.start for each, _, _ in rows]),
        "duration_ns": _numbers([each.duration for each, _, _ in rows]),
        "carry_over": _numbers([carried for _, _, carried in rows]),
    }


def _numbers(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))
