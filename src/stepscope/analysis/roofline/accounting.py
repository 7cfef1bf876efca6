"""Whose work was on the devices, and for how long: every kernel once, under one call.

A kernel belongs to the operator that launched it, and is accounted to the outermost operator
around that one which has a model: `_scaled_dot_product_flash_attention` rather than the
`_flash_attention_forward` inside it. An operator without a model around it is accounted itself.
So no parent counts beside its children, and no kernel twice. Per call,

    device time = union of its kernels, copies and sets

On a recording without devices the operators' own host times take that place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.grouping import Grouping, group_rows
from stepscope.analysis.kernel_classes import (
    is_communication,
    is_host_communication,
    match_rows,
)
from stepscope.analysis.operator_tree import find_rows
from stepscope.analysis.roofline.calls import MATRIX_FAMILIES, Call, Family, Work
from stepscope.analysis.roofline.registry import Model, model_of, work_of
from stepscope.intervals import Int, Intervals, union

SIGNATURE = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
"""Columns of `operators` that tell calls apart."""
ROOFLINE_OPERATOR_COLUMNS = ("id", "parent", "start_ns", *SIGNATURE)
"""Columns that `account` wants of `operators`: of those that launched something or have one below
them that did."""
HOST_COLUMNS = (*ROOFLINE_OPERATOR_COLUMNS, "host_self_ns")
"""Columns that it wants of all operators, where there are no devices."""
EVENT_COLUMNS = ("operator", "name", "start_ns", "duration_ns", "carry_over")
"""Columns that `account` wants of `kernels` and of `copies`."""

_TF32 = re.compile(r"tf32|xf32|s1688gemm", re.IGNORECASE)
_HOST_COPY = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost", re.IGNORECASE)
_decoder = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Calls of one operator with the same arguments."""

    name: str
    dims: str | None
    types: str | None
    strides: str | None
    values: str | None
    family: Family | None
    """None for an operator without a model."""
    work: Work | None
    reason: str | None
    """Why there are no figures."""

    @property
    def is_matrix(self) -> bool:
        """Whether matrix units should do it, be it modelled or not."""
        return self.family in MATRIX_FAMILIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Calls that had work on a device (or the host), one row each."""

    signatures: Sequence[Signature]
    signature: Int
    """Place in `signatures`."""
    start_ns: Int
    """When the host called."""
    busy_ns: Int
    """Union of what it launched, or the host time."""
    tf32: NDArray[np.bool_]
    """Whether one of its kernels multiplies in TF32, if its operands are FP32."""
    host_copy: NDArray[np.bool_]
    """Whether it moved data between host and device: memory's bandwidth says nothing of that."""
    communication: NDArray[np.bool_]
    """Whether it is a collective: that is bound by the network."""
    on_device: bool
    unlinked_ns: int
    """Device time, summed, of work in the window whose operator is unknown."""
    carry_over_ns: int
    """Device time, summed, of work launched before the window."""

    @property
    def communication_ns(self) -> int:
        """Time of the collectives."""
        return int(self.busy_ns[self.communication].sum())

    @property
    def total_ns(self) -> int:
        """Time of all other calls, and of work whose operator is unknown."""
        return int(self.busy_ns.sum()) - self.communication_ns + self.unlinked_ns


@dataclass(frozen=True, slots=True)
class _Events:
    """Work on devices. `name` are codes into `names`."""

    operator: Int
    name: Int
    start: Int
    duration: Int
    names: list[str]

    def take(self, rows: NDArray[Any]) -> _Events:
        return _Events(
            self.operator[rows], self.name[rows], self.start[rows], self.duration[rows], self.names
        )


def account(operators: Columns, kernels: Columns | None, copies: Columns | None) -> Account:
    """Accounts the device time of a recording.

    Args:
        operators: see `ROOFLINE_OPERATOR_COLUMNS` and `HOST_COLUMNS`.
        kernels, copies: see `EVENT_COLUMNS`; both None, or without a row, for a recording of the
            host alone.
    """
    events, carried_ns = _events([each for each in (kernels, copies) if each is not None])
    on_device = bool(len(events.start)) or carried_ns > 0
    grouping = _signatures(operators)
    key = grouping.group
    row = find_rows(operators["id"], events.operator) if on_device else None
    hints = _kernel_of(key, events, row) if row is not None else {}
    signatures = [
        _describe(operators, int(where), hints.get(code))
        for code, where in enumerate(grouping.first)
    ]
    models = [model_of(each.name) for each in signatures]
    if row is None:
        signatures = _without_wrappers(operators, key, signatures, models)
    owner = _owners(operators, key, signatures, models)
    if row is None:
        return _of_host(operators, key, signatures, owner)
    linked = row >= 0
    chosen, unit_of_event = np.unique(owner[row[linked]], return_inverse=True)
    mine = events.take(linked)
    return Account(
        signatures=signatures,
        signature=key[chosen],
        start_ns=operators["start_ns"][chosen],
        busy_ns=_union_per_unit(unit_of_event, mine, len(chosen)),
        tf32=_any_named(_is_tf32, unit_of_event, mine, len(chosen)),
        host_copy=_any_named(_is_host_copy, unit_of_event, mine, len(chosen)),
        communication=_any_named(is_communication, unit_of_event, mine, len(chosen)),
        on_device=True,
        unlinked_ns=int(events.duration[~linked].sum()),
        carry_over_ns=carried_ns,
    )


def _of_host(operators: Columns, key: Int, signatures: Sequence[Signature], owner: Int) -> Account:
    chosen, unit = np.unique(owner, return_inverse=True)
    busy = np.zeros(len(chosen), dtype=np.int64)
    np.add.at(busy, unit, np.maximum(operators["host_self_ns"], 0))
    nothing = np.zeros(len(chosen), dtype=np.bool_)
    return Account(
        signatures=signatures,
        signature=key[chosen],
        start_ns=operators["start_ns"][chosen],
        busy_ns=busy,
        tf32=nothing,
        host_copy=nothing,
        communication=match_rows(operators["name"], _is_host_collective)[chosen],
        on_device=False,
        unlinked_ns=0,
        carry_over_ns=0,
    )


def _events(tables: list[Columns]) -> tuple[_Events, int]:
    """Work launched in the window, and the time of what was launched before."""
    names: list[str] = []
    parts: list[tuple[Int, Int, Int, Int, Int]] = []
    for table in tables:
        strings: Strings = table["name"]
        codes = np.asarray(strings.codes, dtype=np.int64) + len(names)
        names.extend(value or "" for value in strings.values)
        parts.append(
            (
                np.asarray(table["operator"], dtype=np.int64),
                codes,
                table["start_ns"],
                table["duration_ns"],
                np.asarray(table["carry_over"], dtype=np.int64),
            )
        )
    empty = np.empty(0, dtype=np.int64)
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [empty] * 5
    operator, name, start, duration, carried = columns
    found = _Events(operator, name, start, duration, names)
    possible = duration > 0
    carried_ns = int(duration[possible & (carried == 1)].sum())
    return found.take(possible & (carried != 1)), carried_ns


def _signatures(operators: Columns) -> Grouping:
    """Rows that agree in everything that tells calls apart."""
    return group_rows(*(operators[column].codes for column in SIGNATURE))


def _describe(operators: Columns, row: int, kernel: str | None) -> Signature:
    """The signature of a row, with what its model says."""
    texts = [_text(operators[column], row) for column in SIGNATURE]
    name, dims, types, strides, values = texts
    model = model_of(name or "")
    work: Work | str = "the operator has no model"
    if model is not None:
        work = "the shapes of its arguments were not recorded"
        if dims and types:
            try:
                call = Call(
                    name=name or "",
                    dims=_decoder.decode(dims),
                    types=_decoder.decode(types),
                    strides=_decoder.decode(strides) if strides else (),
                    values=_decoder.decode(values) if values else (),
                    kernel=kernel,
                )
            except msgspec.DecodeError:
                work = "what was recorded of its arguments cannot be read"
            else:
                work = work_of(call)
    return Signature(
        name=name or "",
        dims=dims,
        types=types,
        strides=strides,
        values=values,
        family=model.family if model is not None else None,
        work=work if isinstance(work, Work) else None,
        reason=work if isinstance(work, str) else None,
    )


def _text(strings: Strings, row: int) -> str | None:
    code = int(strings.codes[row])
    return strings.values[code] if code >= 0 else None


def _kernel_of(key: Int, events: _Events, row: Int) -> dict[int, str]:
    """A kernel that calls of each signature launched themselves."""
    linked = np.flatnonzero(row >= 0)
    codes, where = np.unique(key[row[linked]], return_index=True)
    return {
        int(code): events.names[int(events.name[linked[at]])]
        for code, at in zip(codes, where, strict=True)
    }


def _owners(
    operators: Columns,
    key: Int,
    signatures: Sequence[Signature],
    models: Sequence[Model | None],
) -> Int:
    """The row to which work of each row is accounted."""
    whole = np.array(
        [
            model is not None and not model.leaf_only and signature.work is not None
            for model, signature in zip(models, signatures, strict=True)
        ],
        dtype=np.bool_,
    )[key]
    owner = np.arange(len(key), dtype=np.int64)
    above = find_rows(operators["id"], operators["parent"])
    climbing = np.flatnonzero(above >= 0)
    at = above[climbing]
    while len(climbing):
        modelled = whole[at]
        owner[climbing[modelled]] = at[modelled]
        at = above[at]
        climbing, at = climbing[at >= 0], at[at >= 0]
    return owner


def _union_per_unit(unit: Int, events: _Events, count: int) -> Int:
    """Union of the events of each unit.

    Units are laid behind one another on one axis, so one union serves them all.
    """
    end = events.start + events.duration
    opens: Int = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(opens, unit, events.start)
    closes: Int = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(closes, unit, end)
    length: Int = closes - opens
    single = np.bincount(unit, minlength=count) == 1
    several = ~single[unit]
    if not several.any():
        return length
    base = np.cumsum(length + 1) - length - 1
    shift = (base - opens)[unit[several]]
    merged = union(Intervals(events.start[several] + shift, end[several] + shift))
    total = np.zeros(count, dtype=np.int64)
    owner = np.searchsorted(base, merged.start, side="right") - 1
    np.add.at(total, owner, merged.end - merged.start)
    return np.where(single, length, total).astype(np.int64)


def _without_wrappers(
    operators: Columns,
    key: Int,
    signatures: Sequence[Signature],
    models: Sequence[Model | None],
) -> list[Signature]:
    """On the host every operator takes some time, so a wrapper is one that calls operators."""
    above = find_rows(operators["id"], operators["parent"])
    calls = np.zeros(len(signatures), dtype=np.bool_)
    calls[key[above[above >= 0]]] = True
    return [
        replace(
            signature, family=None, work=None, reason="its work is in the operators that it calls"
        )
        if model is not None and model.leaf_only and calls[code]
        else signature
        for code, (signature, model) in enumerate(zip(signatures, models, strict=True))
    ]


def _is_tf32(name: str) -> bool:
    return _TF32.search(name) is not None


def _is_host_copy(name: str) -> bool:
    return _HOST_COPY.search(name) is not None


def _is_host_collective(name: str) -> bool:
    return (
        name == "record_param_comms"
        or name.startswith("c10d::")
        or is_communication(name)
        or is_host_communication(name)
    )


def _any_named(
    test: Callable[[str], bool], unit: Int, events: _Events, count: int
) -> NDArray[np.bool_]:
    """Whether an event of each unit has such a name."""
    fits = np.array([test(name) for name in events.names], dtype=np.bool_)
    found = np.zeros(count, dtype=np.bool_)
    if fits.any():
        found[unit[fits[events.name]]] = True
    return found
