"""Calls of the runtime and the driver, and NVTX ranges, as events."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import schema
from stepscope.importers.kineto import Chunk, OtherKind
from stepscope.importers.nsys.builder import Builder, Codes, Facts, on_thread, texts_of
from stepscope.importers.nsys.database import ABSENT, Rows

ANNOTATION = schema.event_kind("annotation")
DRIVER_CALL = schema.event_kind("driver_call")
OPERATOR = schema.event_kind("operator")
RUNTIME_CALL = schema.event_kind("runtime_call")

_DRIVER_CLASS = 1
_VERSION = re.compile(r"_v\d{4,5}(?:_pt[sd][sz])?$")
"""End of the name of a call, which tells its version and its default stream."""
_FIELDS = re.compile(r", (?=(?:seq|op_id|sizes|input_op_ids) = )")
"""https://github.com/pytorch/pytorch/blob/main/torch/csrc/profiler/util.cpp (getNvtxStr)"""
MARK = 34
RANGES = (59, 60, 70, 71)
"""Types of NVTX events, by ENUM_NSYS_EVENT_TYPE."""


def convert_calls(_process: int, rows: Rows, facts: Facts) -> Chunk:
    builder = on_thread(rows)
    values, inverse = np.unique(rows["nameId"], return_inverse=True)
    texts = [name or "unnamed" for name in facts.database.names_of(values.tolist())]
    codes = np.array([builder.code(_VERSION.sub("", text)) for text in texts], dtype=np.int32)
    is_driver_name = [text.startswith("cu") and not text.startswith("cuda") for text in texts]
    is_driver = np.where(
        rows["eventClass"] == ABSENT,
        np.array(is_driver_name, dtype=np.bool_)[inverse],
        rows["eventClass"] == _DRIVER_CLASS,
    )
    for kind, mask in ((RUNTIME_CALL, ~is_driver), (DRIVER_CALL, is_driver)):
        selected = np.flatnonzero(mask)
        correlation = rows["correlationId"][selected]
        builder.add(kind, codes[inverse][selected], selected, correlation=correlation)
    return builder.finish()


class _Range(NamedTuple):
    """Name of an NVTX range, taken apart."""

    name: str
    is_operator: bool = False
    sequence: int = ABSENT
    input_dims: str | None = None


def convert_ranges(process: int, rows: Rows, facts: Facts) -> Chunk:
    builder = on_thread(rows)
    ranges = [_parse(text) for text in texts_of(rows, facts.database)]
    names = np.array([builder.code(item.name) for item in ranges], dtype=np.int32)
    args = _mark_codes(builder, process, rows, facts)
    kind = rows["eventType"]
    is_range = np.isin(kind, RANGES)
    has_end = is_range & (rows["duration"] >= 0)
    is_operator = has_end & np.array([item.is_operator for item in ranges], dtype=np.bool_)
    selected = np.flatnonzero(is_operator)
    dims = [builder.code(ranges[row].input_dims) for row in selected.tolist()]
    builder.add(
        OPERATOR,
        names[selected],
        selected,
        sequence=np.array([ranges[row].sequence for row in selected.tolist()], dtype=np.int64),
        input_dims=np.array(dims, dtype=np.int32),
        args=args[selected],
    )
    selected = np.flatnonzero(has_end & ~is_operator)
    builder.add(ANNOTATION, names[selected], selected, args=args[selected])
    selected = np.flatnonzero((kind == MARK) | (is_range & ~has_end))
    phases = np.array([builder.code(phase) for phase in "iB"], dtype=np.int32)
    builder.add(
        OtherKind.OTHER,
        names[selected],
        selected,
        phase=phases[is_range[selected].astype(np.int64)],
        category=np.full(len(selected), builder.code("nvtx"), dtype=np.int32),
        has_duration=np.zeros(len(selected), dtype=np.int8),
        args=args[selected],
    )
    return builder.finish()


def _parse(text: str) -> _Range:
    """Take the name of a range apart, which PyTorch's `emit_nvtx` may have written.

    >>> _parse("aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], []]")
    _Range(name='aten::mm', is_operator=True, sequence=7, input_dims='[[2,3],[]]')
    >>> _parse("Optimizer.step#SGD.step, op_id = 4")
    _Range(name='Optimizer.step#SGD.step', is_operator=False, sequence=-1, input_dims=None)
    """
    name, *parts = _FIELDS.split(text)
    fields = dict(part.split(" = ", 1) for part in parts)
    sequence = fields.get("seq", "")
    is_sequence = sequence.isdecimal() and len(sequence) < 19
    return _Range(
        name=name,
        is_operator=is_sequence or ("::" in name and len(fields) > 0),
        sequence=int(sequence) if is_sequence else ABSENT,
        input_dims=_compact(fields["sizes"]) if "sizes" in fields else None,
    )


def _compact(sizes: str) -> str | None:
    """Return a list of sizes as JSON without spaces; None for another text."""
    try:
        return msgspec.json.encode(msgspec.json.decode(sizes, type=list)).decode()
    except schema.MALFORMED_JSON:
        return None


def _mark_codes(builder: Builder, process: int, rows: Rows, facts: Facts) -> Codes:
    """Return the codes of JSON objects with the domain and the category of each row."""
    domains, categories = (np.clip(rows[name], -1, 2**31) for name in ("domainId", "category"))

    def describe(key: int) -> str | None:
        domain, category = (key >> 32) - 1, (key & (2**32 - 1)) - 1
        keys = {"domain": (process, domain, ABSENT)}
        keys |= {"category": (process, domain, category)} if category > 0 else {}
        texts = {name: facts.marks[key] for name, key in keys.items() if key in facts.marks}
        return msgspec.json.encode(texts).decode() if texts else None

    return builder.distinct((domains + 1 << 32) + categories + 1, describe)
